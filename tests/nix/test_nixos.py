"""What the NixOS module makes of settings; that NixOS takes it was tried with nixpkgs' own module system."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix
MODULE = Path(__file__).with_name("module.nix")


def evaluate(settings: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    if shutil.which("nix-instantiate") is None:
        pytest.skip("there is no nix on PATH")
    made = f"{{ json }}: import {MODULE} {{ settings = builtins.fromJSON json; }}"
    words = ("--eval", "--strict", "--json", "--expr", made, "--argstr", "json", json.dumps(settings))
    return subprocess.run(["nix-instantiate", *words], capture_output=True, text=True, check=False)


def config(**settings: Any) -> dict[str, Any]:
    said = evaluate({"enable": True, **settings})
    assert said.returncode == 0, said.stderr
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def services(found: dict[str, Any]) -> dict[str, Any]:
    return {name: unit for name, unit in found["systemd"]["services"].items() if unit}


def test_nothing_unless_it_is_enabled() -> None:
    assert json.loads(evaluate({"role": "head"}).stdout) == {}


def test_a_head() -> None:
    found = config(role="head", link="192.168.100.0/24")
    ((name, unit),) = services(found).items()
    assert name == "medley-head"
    assert unit["wantedBy"] == ["multi-user.target"]
    assert unit["after"] == unit["wants"] == ["network-online.target"]
    assert unit["environment"] == {"HOME": "/var/lib/medley", "MEDLEY_FLAKE": "/flake"}
    run = unit["serviceConfig"]
    assert run["ExecStartPre"] == '-"/medley/bin/medley" "ray-stop"'
    assert run["ExecStart"] == '"/medley/bin/medley" "ray-head" "--stay" "--link" "192.168.100.0/24"'
    assert (run["LimitMEMLOCK"], run["LimitNOFILE"], run["User"]) == ("infinity", 1_048_576, "medley")
    assert found["users"]["users"]["medley"]["isSystemUser"] is True
    assert "medley" in found["users"]["groups"]


def test_a_worker() -> None:
    unit = services(config(role="worker", head="spark-1", tokenFile="/run/secrets/t"))["medley-worker"]
    assert unit["serviceConfig"]["ExecStart"] == (
        '"/medley/bin/medley" "ray-worker" "--stay" "--token-file" "/run/secrets/t" "spark-1"'
    )


def test_a_model_and_words_that_systemd_would_take_apart() -> None:
    serve = {"model": "demo", "flags": ["--port", "9000", "--served-model-name", 'a "b" 5% $x \\']}
    unit = services(config(serve=serve))["medley-serve"]
    assert unit["after"] == ["network-online.target", "medley-head.service", "medley-worker.service"]
    assert unit["serviceConfig"]["ExecStart"] == (
        '"/medley/bin/medley" "serve" "demo" "--port" "9000" "--served-model-name" "a \\"b\\" 5%% $$x \\\\"'
    )
    assert "ExecStartPre" not in unit["serviceConfig"]


def test_a_user_who_is_there_is_not_made() -> None:
    found = config(user="ann", group="users", home="/home/ann", role="head")
    assert (found["users"]["users"], found["users"]["groups"]) == ({}, {})
    assert services(found)["medley-head"]["serviceConfig"]["User"] == "ann"


def test_the_firewall_opens_on_the_wires_alone() -> None:
    found = config(openFirewall=["enp1s0f0np0"])["networking"]["firewall"]
    assert found == {"interfaces": {"enp1s0f0np0": {"allowedTCPPortRanges": [{"from": 1024, "to": 65_535}]}}}


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        pytest.param({"role": "worker"}, "a worker needs its head", id="no head"),
        pytest.param({"tokenFile": "/nix/store/x"}, "a secret in the store", id="a token in the store"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], what: str) -> None:
    failed = [each["message"] for each in config(**settings)["assertions"] if not each["assertion"]]
    assert len(failed) == 1
    assert what in failed[0]


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        pytest.param({"role": "boss"}, "role cannot be", id="no role"),
        pytest.param({"openFirewall": True}, "openFirewall cannot be", id="which interfaces"),
        pytest.param({"serve": {"modle": "x"}}, "no option services.medley.serve.modle", id="a typo"),
    ],
)
def test_what_has_the_wrong_type(settings: dict[str, Any], what: str) -> None:
    assert what in evaluate({"enable": True, **settings}).stderr


def test_the_flake_has_it_without_nixpkgs(released: "Tree") -> None:
    keys = released.eval("nixosModules", "--offline", "--apply", "builtins.mapAttrs (_: each: each.key)")
    assert keys.keys() == {"medley", "default"}
    assert len(set(keys.values())) == 1, "imported under both names it is still one module"
