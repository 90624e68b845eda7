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


def evaluate(settings: dict[str, Any], **host: Any) -> subprocess.CompletedProcess[str]:
    if shutil.which("nix-instantiate") is None:
        pytest.skip("there is no nix on PATH")
    made = f"{{ json }}: import {MODULE} (builtins.fromJSON json)"
    given = json.dumps({"settings": settings, **host})
    words = ("--eval", "--strict", "--json", "--expr", made, "--argstr", "json", given)
    return subprocess.run(["nix-instantiate", *words], capture_output=True, text=True, check=False)


def config(host: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    said = evaluate({"enable": True, "kind": "cpu", **settings}, **(host or {}))
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
    run = unit["serviceConfig"]
    assert run["ExecStartPre"] == ["-/medley/bin/medley ray-stop"]
    assert run["ExecStart"] == '"/medley/bin/medley" "ray-head" "--stay" "--link=192.168.100.0/24"'
    assert (run["LimitMEMLOCK"], run["LimitNOFILE"], run["User"]) == ("infinity", 1_048_576, "medley")
    assert run["LoadCredential"] == []
    assert found["users"]["users"]["medley"]["isSystemUser"] is True
    assert "medley" in found["users"]["groups"]


def test_a_unit_has_its_toolkit_and_makes_none() -> None:
    """Both are store paths of the system's closure; without a flake medley builds nothing."""
    found = config(host={"system": "aarch64-linux"}, kind="orin", role="head")
    toolchain = {"MEDLEY_TOOLKIT": "/toolkit-orin", "MEDLEY_NCCL": "/nccl-orin/lib/libnccl.so.2"}
    unit = services(found)["medley-head"]
    assert unit["environment"] == toolchain | {"HOME": "/var/lib/medley", "MEDLEY_FLAKE": ""}
    assert found["environment"]["variables"] == toolchain
    assert "nccl" not in json.dumps(services(config(kind="rtx", role="head"))).lower()


def test_a_worker_and_its_token() -> None:
    unit = services(config(role="worker", head="spark-1", tokenFile="/run/secrets/t"))["medley-worker"]
    assert unit["serviceConfig"]["LoadCredential"] == ["token:/run/secrets/t"]
    assert unit["serviceConfig"]["ExecStart"] == (
        '"/medley/bin/medley" "ray-worker" "--stay" --token-file "%d/token" "spark-1"'
    )


def test_a_head_takes_a_token_that_was_made_elsewhere() -> None:
    run = services(config(role="head", tokenFile="/run/secrets/t"))["medley-head"]["serviceConfig"]
    assert run["LoadCredential"] == ["token:/run/secrets/t"]
    assert run["ExecStartPre"][-1] == (
        '/coreutils/bin/install -D -m 600 "%d/token" "/var/lib/medley/.local/state/medley/token"'
    )


def test_a_model_and_words_that_systemd_would_take_apart() -> None:
    serve = {"model": "demo", "extraFlags": ["--port", "9000", "--served-model-name", 'a "b" 5% $x \\']}
    unit = services(config(serve=serve))["medley-serve"]
    ray = ["medley-head.service", "medley-worker.service"]
    assert unit["after"] == ["network-online.target", *ray]
    assert unit["unitConfig"] == {"JoinsNamespaceOf": ray}
    assert unit["serviceConfig"]["ExecStart"] == (
        '"/medley/bin/medley" "serve" "demo" "--port" "9000" "--served-model-name" "a \\"b\\" 5%% $$x \\\\"'
    )
    assert unit["serviceConfig"]["ExecStartPre"] == []


def test_secrets_of_a_server_are_files() -> None:
    serve = {"model": "demo", "apiKeyFile": "/run/secrets/key", "host": "0.0.0.0", "port": 9000}
    found = config(serve=serve, environmentFile="/run/secrets/hub")
    run = services(found)["medley-serve"]["serviceConfig"]
    assert run["LoadCredential"] == ["api-key:/run/secrets/key"]
    assert run["EnvironmentFile"] == "/run/secrets/hub"
    assert run["ExecStart"].endswith('"serve" "demo" "--host=0.0.0.0" --port=9000 --api-key "%d/api-key"')


def test_what_a_unit_may_do() -> None:
    run = services(config(role="head"))["medley-head"]["serviceConfig"]
    assert (run["ProtectSystem"], run["ReadWritePaths"]) == ("strict", ["/var/lib/medley"])
    assert run["NoNewPrivileges"] is run["PrivateTmp"] is run["ProtectHome"] is True
    assert run["CapabilityBoundingSet"] == ""
    breaks = {"PrivateDevices", "DevicePolicy", "ProtectClock", "MemoryDenyWriteExecute", "RemoveIPC"}
    assert not breaks & run.keys()


def test_the_data_are_in_a_state_directory_or_where_one_says() -> None:
    usual = config(role="head")
    assert services(usual)["medley-head"]["serviceConfig"]["StateDirectory"] == "medley"
    assert usual["systemd"]["tmpfiles"]["settings"] == {}
    found = config(role="head", dataDir="/mnt/nvme/medley")
    run = services(found)["medley-head"]["serviceConfig"]
    assert run["StateDirectory"] == {}
    assert run["WorkingDirectory"] == "/mnt/nvme/medley"
    (made,) = found["systemd"]["tmpfiles"]["settings"]["10-medley"].items()
    assert made == ("/mnt/nvme/medley", {"d": {"user": "medley", "group": "medley", "mode": "0700"}})


def test_a_user_who_is_there_is_not_made() -> None:
    found = config(user="ann", group="users", dataDir="/home/ann", role="head")
    assert (found["users"]["users"], found["users"]["groups"]) == ({}, {})
    run = services(found)["medley-head"]["serviceConfig"]
    assert (run["User"], run["ProtectHome"]) == ("ann", False)
    assert run["SupplementaryGroups"] == "video render", "a Jetson's GPU is these groups' for any user"
    assert found["systemd"]["tmpfiles"]["settings"] == {}


def test_the_firewall_opens_on_the_wires_alone() -> None:
    found = config(firewallInterfaces=["enp1s0f0np0"])["networking"]["firewall"]
    assert found == {"interfaces": {"enp1s0f0np0": {"allowedTCPPortRanges": [{"from": 1024, "to": 65_535}]}}}


@pytest.mark.parametrize(
    ("kind", "graphics", "warned"),
    [
        pytest.param("rtx", False, True, id="a GPU without its driver"),
        pytest.param("rtx", True, False, id="a GPU"),
        pytest.param("cpu", False, False, id="no GPU"),
    ],
)
def test_a_driver_that_is_not_enabled(kind: str, *, graphics: bool, warned: bool) -> None:
    warnings = config({"graphics": graphics}, kind=kind)["warnings"]
    assert ["hardware.graphics.enable is false" in each for each in warnings] == ([True] if warned else [])


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        pytest.param({"role": "worker"}, "a worker needs the name", id="no head"),
        pytest.param({"kind": "thor"}, "thor is not a kind of x86_64-linux", id="another system"),
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
        pytest.param({"kind": "toaster"}, "kind cannot be", id="no kind"),
        pytest.param({"tokenFile": "/nix/store/x"}, "tokenFile cannot be", id="a secret in the store"),
        pytest.param({"firewallInterfaces": True}, "firewallInterfaces cannot be", id="which interfaces"),
        pytest.param({"serve": {"model": "demo", "port": 65_536}}, "serve.port cannot be", id="no port"),
        pytest.param({"serve": {"modle": "x"}}, "no option services.medley.serve.modle", id="a typo"),
    ],
)
def test_what_has_the_wrong_type(settings: dict[str, Any], what: str) -> None:
    assert what in evaluate({"enable": True, "kind": "cpu", "role": "head", **settings}).stderr


def test_a_host_says_its_kind() -> None:
    assert "services.medley.kind has no value" in evaluate({"enable": True, "role": "head"}).stderr


def test_the_flake_has_it_without_nixpkgs(released: "Tree") -> None:
    keys = released.eval("nixosModules", "--offline", "--apply", "builtins.mapAttrs (_: each: each.key)")
    assert keys.keys() == {"medley", "default"}
    assert len(set(keys.values())) == 1, "imported under both names it is still one module"
