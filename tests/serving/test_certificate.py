"""The certificate that a server has."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from medley.serving.certificate import choose_tls
from tests.problems import raises_problem


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("certificate")
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate, and is not here")
    certificate, key, settings = folder / "c.pem", folder / "k.pem", folder / "openssl.cnf"
    settings.write_text("[req]\ndistinguished_name = name\n[name]\n")  # Nix's sandbox has no usual one
    made = ("openssl", "req", "-config", settings, "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a")
    subprocess.run([*made, "-out", certificate, "-keyout", key], check=True, capture_output=True)
    return str(certificate), str(key)


def test_without_the_flags_there_is_none() -> None:
    assert choose_tls("127.0.0.1", None, None, is_requested=False) is None


def test_ones_own_is_taken(pair: tuple[str, str]) -> None:
    found = choose_tls("0.0.0.0", *pair, is_requested=False)
    assert found
    assert (found.certificate, found.key, found.authority) == (Path(pair[0]), Path(pair[1]), None)


def test_medleys_own_names_this_host() -> None:
    found = choose_tls("10.0.0.5", None, None, is_requested=True)
    assert found
    assert {platform.node(), "localhost", "127.0.0.1", "10.0.0.5"} <= set(found.names)


def test_one_without_the_other_is_refused(pair: tuple[str, str]) -> None:
    for words in ((pair[0], None), (None, pair[1])):
        with raises_problem("a certificate needs its key", cause="is missing"):
            choose_tls("0.0.0.0", *words, is_requested=True)


def test_files_that_do_not_belong_together_are_refused(pair: tuple[str, str], tmp_path: Path) -> None:
    for words in ((pair[1], pair[0]), (str(tmp_path / "none"), pair[1])):
        with raises_problem(words[0], fix=f"openssl x509 -noout -subject -in {words[0]}"):
            choose_tls("0.0.0.0", *words, is_requested=True)
