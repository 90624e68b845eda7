import shlex
from pathlib import Path

from medley import config
from medley.engine import Serving, vllm
from medley.launch import Launch, Tools, launch
from medley.plan import Plan
from medley.weights import Weights

HOSTS = config.hosts()


def one(*extra: str, tools: Tools | None = None) -> Launch:
    return launch(
        vllm,
        Weights("demo", "/models/demo", config.models()["demo"]),
        HOSTS["rtx"],
        Plan(gpus=(1,), why=("GPU 1",)),
        Serving("/models/demo", "demo", "127.0.0.1", 8000),
        tools=tools or Tools(Path("/env/bin")),
        environ={"PATH": "/usr/bin"},
        extra=extra,
    )


def test_the_command_has_what_the_reasons_name() -> None:
    found = one("--max-model-len", "99")
    text = shlex.split(str(found.command))
    for name, reason in found.why():
        assert reason
        assert name == "plan" or all(word in text for word in name.split()), name
    assert found.command.argv[-2:] == ("--max-model-len", "99")


def test_a_shells_own_python_settings_are_kept_from_the_engine() -> None:
    assert str(one().command).startswith("env -u PYTHONPATH -u PYTHONHOME CUDA_DEVICE_ORDER=PCI_BUS_ID ")
    assert "PYTHONPATH" not in one().command.environment({"PYTHONPATH": "/x"})


def test_the_toolkit_is_merged_and_ours_wins() -> None:
    env = one(
        tools=Tools(Path("/env/bin"), {"CUDA_HOME": "/c", "CUDA_VISIBLE_DEVICES": "9"}, ("/c/bin",))
    ).command.env
    assert (env["CUDA_HOME"], env["PATH"]) == ("/c", "/env/bin:/c/bin:/usr/bin")
    assert env["CUDA_VISIBLE_DEVICES"] == "1"


def test_without_a_toolkit_only_the_environments_programs_are_added() -> None:
    assert one().command.env["PATH"] == "/env/bin:/usr/bin"
