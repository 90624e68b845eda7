"""What pip is told of indexes, uv is told too; what the user says to uv itself wins."""

import os
from pathlib import Path

import pytest

from medley import process
from medley.command import Command
from medley.environment import uv
from medley.errors import Problem
from medley.progress import SilentProgress
from tests.problems import assert_problem

HOME = Path("/home/someone")
PREFIX = Path("/opt/python")
BEST = {"UV_INDEX_STRATEGY": "unsafe-best-match"}
GLOBAL = "[global]\nindex-url = http://site/simple\nextra-index-url = http://a/simple\n    http://b/simple\n"


@pytest.mark.parametrize(
    ("texts", "environ", "expected"),
    [
        pytest.param([], {}, {}, id="nothing"),
        pytest.param(
            [GLOBAL],
            {},
            {"index-url": "http://site/simple", "extra-index-url": "http://a/simple\nhttp://b/simple"},
            id="global",
        ),
        pytest.param(
            [GLOBAL, "[install]\nindex_url = http://mine/simple\n[global]\nindex-url = http://late/simple\n"],
            {},
            {"index-url": "http://mine/simple", "extra-index-url": "http://a/simple\nhttp://b/simple"},
            id="install overrides global, underscores are hyphens",
        ),
        pytest.param(
            ["[global]\nindex-url = http://weak/s\n", "[global]\nindex-url = http://strong/s\n"],
            {},
            {"index-url": "http://strong/s"},
            id="a later file overrides",
        ),
        pytest.param(
            ["[install]\ncert = /weak.pem\n"],
            {"PIP_CERT": "/strong.pem", "PIP_INDEX_URL": ""},
            {"cert": "/strong.pem"},
            id="a variable overrides, an empty one does not",
        ),
        pytest.param(
            ["no section\n", "[global]\nfind-links = /w%20x\n"], {}, {"find-links": "/w%20x"}, id="broken"
        ),
        pytest.param(["[list]\nformat = columns\n"], {}, {}, id="another command's section"),
    ],
)
def test_options(texts: list[str], environ: dict[str, str], expected: dict[str, str]) -> None:
    assert uv.merge_pip_options(texts, environ) == expected


@pytest.mark.parametrize(
    ("options", "environ", "expected"),
    [
        pytest.param({}, {}, {}, id="nothing"),
        pytest.param(
            {"index-url": " http://site/simple ", "extra-index-url": "http://a/s\nhttp://b/s"},
            {},
            {"UV_DEFAULT_INDEX": "http://site/simple", "UV_INDEX": "http://a/s http://b/s"},
            id="indexes",
        ),
        pytest.param(
            {"find-links": "http://w/x file:///w/y"},
            {},
            {"UV_FIND_LINKS": "http://w/x,file:///w/y"},
            id="links",
        ),
        pytest.param(
            {"cert": "/c.pem", "trusted-host": "a b:8080", "proxy": "http://p:1", "no-index": "true"},
            {},
            {
                "SSL_CERT_FILE": "/c.pem",
                "UV_INSECURE_HOST": "a b:8080",
                "ALL_PROXY": "http://p:1",
                "UV_NO_INDEX": "1",
            },
            id="the way there",
        ),
        pytest.param({"no-index": "false"}, {}, {}, id="an index after all"),
        pytest.param(
            {"index-url": "http://pip/s", "extra-index-url": "http://pip/t", "cert": "/pip.pem"},
            {"UV_INDEX_URL": "http://uv/s", "UV_INDEX": "http://uv/t", "SSL_CERT_FILE": "/uv.pem"},
            {},
            id="what uv is told wins",
        ),
        pytest.param({"find-links": "/no/such/folder"}, {}, {}, id="a folder that is not there"),
        pytest.param({"timeout": "180", "disable-pip-version-check": "1"}, {}, {}, id="not of interest"),
    ],
)
def test_variables(options: dict[str, str], environ: dict[str, str], expected: dict[str, str]) -> None:
    assert uv.convert_options(options, environ) == {**expected, **BEST}


def test_a_strategy_of_the_users_own_stays() -> None:
    assert uv.convert_options({}, {"UV_INDEX_STRATEGY": "first-index"}) == {}


def test_a_relative_folder_is_read_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "wheels").mkdir()
    monkeypatch.chdir(tmp_path)
    told = uv.convert_options({"find-links": "wheels"}, {})
    assert told["UV_FIND_LINKS"] == str(tmp_path / "wheels")


SYSTEM = ["/etc/xdg/pip/pip.conf", "/etc/pip.conf"]
USER = ["/home/someone/.pip/pip.conf", "/home/someone/.config/pip/pip.conf"]
SITE = ["/opt/python/pip.conf"]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        pytest.param({}, [*SYSTEM, *USER, *SITE], id="usual"),
        pytest.param(
            {"XDG_CONFIG_DIRS": "/x:/y", "XDG_CONFIG_HOME": "/z"},
            ["/x/pip/pip.conf", "/y/pip/pip.conf", "/etc/pip.conf", USER[0], "/z/pip/pip.conf", *SITE],
            id="XDG",
        ),
        pytest.param({"PIP_CONFIG_FILE": "/etc/passwd"}, [*SYSTEM, *SITE, "/etc/passwd"], id="named"),
        pytest.param(
            {"PIP_CONFIG_FILE": "/no/file"}, [*SYSTEM, *USER, *SITE, "/no/file"], id="named in vain"
        ),
        pytest.param({"PIP_CONFIG_FILE": os.devnull}, [], id="none"),
    ],
)
def test_files(environ: dict[str, str], expected: list[str]) -> None:
    assert [str(path) for path in uv.list_pip_files(environ, HOME, PREFIX)] == expected


def test_read(tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text("[global]\nindex-url = http://site/simple\n")
    environ = {"PIP_CONFIG_FILE": str(tmp_path / "missing"), "XDG_CONFIG_DIRS": str(tmp_path)}
    found = uv.read_pip_config(environ, tmp_path, tmp_path)
    assert found["index-url"] == "http://site/simple", "the interpreter's own file counts"


@pytest.mark.parametrize(
    ("told", "environ", "expected"),
    [
        pytest.param(BEST, {}, False, id="PyPI alone"),
        pytest.param({"UV_FIND_LINKS": "/w"}, {}, True, id="pip's"),
        pytest.param({}, {"UV_INDEX": "http://a/s"}, True, id="uv's"),
    ],
)
def test_offers_wheels(told: dict[str, str], environ: dict[str, str], *, expected: bool) -> None:
    assert uv.has_other_wheels(told, environ) is expected


@pytest.mark.parametrize(
    ("told", "environ", "index", "strategy"),
    [
        pytest.param({}, {}, "https://h/jp6", "first-index", id="before PyPI, and alone for what it has"),
        pytest.param(
            {"UV_INDEX": "http://a"}, {}, "https://h/jp6 http://a", "first-index", id="before pip's"
        ),
        pytest.param({}, {"UV_INDEX": "http://b"}, "https://h/jp6 http://b", "first-index", id="and uv's"),
        pytest.param(
            BEST, {"UV_INDEX_STRATEGY": "x"}, "https://h/jp6", "unsafe-best-match", id="as the user says"
        ),
    ],
)
def test_a_locks_own_indexes_come_first(
    told: dict[str, str], environ: dict[str, str], index: str, strategy: str
) -> None:
    found = uv.put_indexes_first(told, ("https://h/jp6",), environ)
    assert (found["UV_INDEX"], found["UV_INDEX_STRATEGY"]) == (index, strategy)


def test_without_any_nothing_changes() -> None:
    assert uv.put_indexes_first(BEST, (), {}) == BEST


HASH = """\
Using Python 3.11.7 environment at: v
Resolved 1 package in 35ms
error: Failed to download `idna==3.20`
  cause: Hash mismatch for `idna==3.20`

         Expected:
           sha256:0000

         Computed:
           sha256:1111"""
NETWORK = """\
error: Request failed after 3 retries in 5.8s
  cause: Failed to fetch: http://index/simple/pygments/
  cause: client error (Connect)
  cause: dns error"""
SPACE = """\
error: Failed to install: uv-0.13.8-py3-none-manylinux_2_28_x86_64.whl (uv==0.13.8)
  cause: failed to copy file from /a to /b: No space left on device (os error 28)"""
LACKS = """\
error: No solution found when resolving dependencies
  cause: Because there is no version of torch==2.13.0+cpu and you require torch==2.13.0+cpu, we can conclude
         that your requirements are unsatisfiable."""


@pytest.mark.parametrize(
    ("said", "what", "cause", "fix"),
    [
        pytest.param(HASH, "idna==3.20 is not the file", "sha256:1111", "do not install", id="hash"),
        pytest.param(NETWORK, "cannot be reached", "dns error", "HTTPS_PROXY", id="network"),
        pytest.param(NETWORK, "cannot be reached", "dns error", "wheels of index into", id="its host"),
        pytest.param(SPACE, "disk is full", "os error 28", "MEDLEY_CACHE", id="space"),
        pytest.param(LACKS, "offered nowhere", "torch==2.13.0+cpu", "PIP_FIND_LINKS", id="lacks"),
        pytest.param(
            "error: new and strange",
            "v cannot",
            "new and strange",
            "env build v --dry-run",
            id="anything else",
        ),
        pytest.param("", "v cannot", "exited with 2", "env build v --dry-run", id="silence"),
    ],
)
def test_failure(said: str, what: str, cause: str, fix: str) -> None:
    problem = uv.build_failure_problem("v", 2, said.splitlines())
    assert isinstance(problem, Problem)
    assert what in problem.what
    assert cause in problem.cause
    assert fix in problem.fix


def test_an_offline_uv_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    problem = uv.build_failure_problem("v", 2, LACKS.splitlines())
    assert_problem(problem, "v cannot", cause="torch==2.13.0+cpu", fix="unset UV_OFFLINE")


def test_lacks() -> None:
    assert uv.is_missing_package(LACKS.splitlines())
    assert not uv.is_missing_package(NETWORK.splitlines())


def test_the_first_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDLEY_UV", raising=False)
    assert uv.find_uv("/toolkit/uv") == "/toolkit/uv"
    assert uv.find_uv(None).endswith("uv")
    monkeypatch.setenv("MEDLEY_UV", "/mine/uv")
    assert uv.find_uv("/toolkit/uv") == "/mine/uv"


def test_downloads_are_shown_in_bytes() -> None:
    shown: list[str] = []

    class Shown(SilentProgress):
        def line(self, text: str) -> None:
            shown.append(text)

        moved = line

    downloads = uv.Downloads(Shown())
    for line in ("Resolved 9 packages in 3ms", "Downloading torch (1.5GiB)", "Downloading ruff (10.0MiB)"):
        downloads.show_line(line)
    downloads.show_line(" Downloaded ruff")
    downloads.show_line(" Downloaded something small")
    assert shown[0] == "Resolved 9 packages in 3ms"
    assert shown[1:4] == ["0.00 of 1.61 GB, 0 MB/s", "0.00 of 1.62 GB, 0 MB/s", "0.01 of 1.62 GB, 10 MB/s"]
    assert shown[4] == " Downloaded something small"
    downloads.show_bytes(2**40)
    assert shown[5].startswith("1.62 of 1.62 GB"), "files are larger unpacked, and not yet done"


def test_a_folder_of_somebody_else_does_not_configure_uv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv itself says what it would do: a hostile uv.toml here names a version that no uv has."""
    (tmp_path / "uv.toml").write_text('required-version = "0.0.1"\n')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    asked = (uv.find_uv(None), "python", "list", "--only-installed")
    assert process.run(Command(asked)).status != 0, "uv obeys the folder by itself"
    assert process.run(Command(asked, uv.choose_configuration(os.environ, Path.home()))).status == 0


def test_the_users_own_configuration_stays(tmp_path: Path) -> None:
    own = tmp_path / ".config" / "uv" / "uv.toml"
    assert uv.choose_configuration({}, tmp_path) == {"UV_NO_CONFIG": "1"}
    own.parent.mkdir(parents=True)
    own.touch()
    assert uv.choose_configuration({}, tmp_path) == {"UV_CONFIG_FILE": str(own)}
    assert uv.choose_configuration({"UV_CONFIG_FILE": "/x.toml"}, tmp_path) == {}


def test_a_printed_command_has_no_login() -> None:
    command = Command(
        ("uv", "--index", "https://bob:S3cret@a/x"), {"UV_INDEX": "http://b:S3cret@c/s https://d/s"}
    )
    shown = str(uv.hide_logins(command))
    assert "S3cret" not in shown
    assert "UV_INDEX='http://USER:PASSWORD@c/s https://d/s'" in shown
