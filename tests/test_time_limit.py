"""A hung test fails with the stacks of all threads, its clean-up too, and the tests after it run."""

import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).parents[1]
HUNG = """
import subprocess, threading, time
import pytest

@pytest.fixture
def hangs_at_its_end():
    yield
    time.sleep(60)

def test_in_a_child(hangs_at_its_end):
    threading.Thread(target=time.sleep, args=(60,), name="the other", daemon=True).start()
    child = subprocess.Popen(["sleep", "60"])
    try:
        child.wait()
    finally:
        child.kill()
        child.wait()

def test_after_it():
    pass
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["one process", "a worker"])
def test_a_hung_test(tmp_path: Path, workers: tuple[str, ...]) -> None:
    (tmp_path / "test_hung.py").write_text(HUNG)
    words = ("-p", "tests.conftest", "-p", "no:cacheprovider", "--config-file", str(TREE / "pyproject.toml"))
    command = (sys.executable, "-m", "pytest", *words, "--timeout", "1", *workers, str(tmp_path))
    done = subprocess.run(command, cwd=TREE, capture_output=True, text=True, timeout=60, check=False)
    assert "1 failed, 1 passed, 1 error" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("Failed: Timeout: it took more than 1 s") >= 2
    assert "subprocess.py" in done.stdout
    assert "Stack of the other:" in done.stdout
