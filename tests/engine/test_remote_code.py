"""A model with code of its own, through real engines: not run unless it is trusted, then as it was pinned."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from medley import config, storage
from medley.command import Command
from medley.environment import virtualenv
from medley.model import demo
from medley.model.extra_files import NO_EXTRAS
from medley.process import run
from tests.servers import Start, chat

pytestmark = pytest.mark.engine

CODE = """
import os
from pathlib import Path
from transformers import Qwen3Config

Path(os.environ["OWN_CODE_RAN"]).write_text("yes")


class OwnConfig(Qwen3Config):
    model_type = "own_of_this_test"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """The demo model, of a type that nobody knows but its own code."""
    made = config.load_models()["demo"].made
    assert made is not None
    folder = tmp_path / "own"
    folder.mkdir()
    demo.write_model(made, folder)
    told = json.loads((folder / "config.json").read_text())
    told |= {"model_type": "own_of_this_test", "auto_map": {"AutoConfig": "configuration_own.OwnConfig"}}
    (folder / "config.json").write_text(json.dumps(told))
    (folder / "configuration_own.py").write_text(CODE)
    return folder


def test_it_runs_where_it_is_trusted_and_nowhere_else(
    own: Path, start: Start, free_port: int, tmp_path: Path
) -> None:
    ran = tmp_path / "ran"
    env = {"OWN_CODE_RAN": str(ran), "HF_MODULES_CACHE": str(tmp_path / "modules")}
    words = (sys.executable, "-m", "medley", "serve", str(own), "--port", str(free_port))

    def refused(*more: str) -> str:
        finished = subprocess.run(
            [*words, *more],
            env={**os.environ, **env, "MEDLEY_STATE": str(tmp_path / "state")},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert finished.returncode == 1, finished.stderr
        return finished.stderr

    code = storage.hash_checksums({"configuration_own.py": storage.hash_file(own / "configuration_own.py")})
    assert f"medley serve {own} --trust-remote-code --code-revision {code}" in refused()
    assert "would run whatever code the model has now" in refused("--", "--trust-remote-code")
    assert not ran.exists()

    trusting = ("--trust-remote-code", "--code-revision", code, "--served-model-name", "demo")
    served = start(Command((*words, *trusting), env))
    url = served.ready()
    assert chat(url)["usage"]["completion_tokens"] == 16
    assert ran.read_text() == "yes"
    assert any(
        line == f"medley: trusted code: 1 Python file of {own}, SHA-256 {code}" for line in served.lines
    )
    assert served.interrupt() == 128 + signal.SIGINT

    with (own / "configuration_own.py").open("a") as file:
        file.write("# other code\n")
    said = refused("--trust-remote-code")
    assert "has changed since you trusted it" in said
    assert code in said


# Places where SGLang 0.5.23 asks nobody: the server's, and its benchmark client's.
IN_SGLANG = """
import sys
from contextlib import suppress
from types import SimpleNamespace

folder = sys.argv[1]
with suppress(Exception):
    from sglang.srt.model_loader.utils import resolve_transformers_arch

    config = SimpleNamespace(auto_map={"AutoModel": "own.Own"}, architectures=["Own"])
    model = SimpleNamespace(hf_config=config, model_path=folder, revision=None, model_impl="auto")
    resolve_transformers_arch(model, ["Own"])
with suppress(Exception):
    from sglang.benchmark.utils import get_tokenizer

    get_tokenizer(folder)
"""


@pytest.mark.parametrize("is_trusted", [True, False])
def test_sglang_has_no_way_to_code_that_is_not_trusted(tmp_path: Path, *, is_trusted: bool) -> None:
    environment = virtualenv.find_environment("sglang-cpu")
    assert environment, "medley env build sglang-cpu"
    (tmp_path / "own.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'a').write('once ')\nclass Own: pass\n"
    )
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    tokenizer = {"auto_map": {"AutoTokenizer": ["own.Own", None]}, "tokenizer_class": "Own"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (tmp_path / "program.py").write_text(IN_SGLANG)
    variables = {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    if not is_trusted:
        variables |= {variable.name: variable.value for variable in NO_EXTRAS.list_variables()}
    command = Command((str(environment.python), str(tmp_path / "program.py"), str(tmp_path)), variables)
    finished = run(command, limit_s=120)
    assert finished.status == 0, finished.lines
    assert (tmp_path / "ran").exists() == is_trusted, finished.lines
