"""A report has what is needed to find a failure, and no secret, in whatever form a log shows it."""

from pathlib import Path

import pytest

from medley import reported
from medley.explain.concealed import concealed
from tests.test_explain import of

SECRET = "q7Zk3mPw9xLr"


@pytest.mark.parametrize(
    "text",
    [
        f"HF_TOKEN={SECRET}",
        f"export HUGGING_FACE_HUB_TOKEN='{SECRET}'",
        f"--api-key {SECRET} --port 8000",
        f"--api-key={SECRET}",
        f"'api_key': '{SECRET}'",
        f'"RAY_AUTH_TOKEN": "{SECRET}"',
        f"Authorization: Bearer {SECRET}",
        f"authorization: Basic {SECRET}==",
        f"password: {SECRET}",
        f"AWS_SECRET_ACCESS_KEY={SECRET}",
        f"hf_{SECRET}",
        f"token is hf_{SECRET}.",
        f"sk-{SECRET}",
        f"ghp_{SECRET}{SECRET}",
        f"nvapi-{SECRET}",
        f"https://user:{SECRET}@example.com/x",
        f"http://bot:{SECRET}@10.0.0.1:8080",
        f"eyJ{SECRET}.{SECRET}.{SECRET}",
        f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----",
        f"ServerArgs(api_key='{SECRET}', port=30000)",
    ],
)
def test_a_secret_is_concealed(text: str) -> None:
    said = concealed(f"before {text} after")
    assert SECRET not in said
    assert said.startswith("before ")


@pytest.mark.parametrize(
    "text",
    [
        "Ray couldn't find an authentication token. Create a token file at ~/.ray/auth_token",
        "max_tokens=1024, total_token_num: 4096",
        "Avg prompt throughput: 12.1 tokens/s",
        "sha256:" + "ab" * 32,
        "the API key is in /home/user/key",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert concealed(text) == text


def test_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    token = "ab1" * 20
    (tmp_path / "token").write_text(token)
    log = (
        "medley: alone on vm: the only layout that fits\n$ vllm serve /m\n"
        f"FooError: something odd at 8.8.8.8, in /home/carol/x, {token}, --api-key {SECRET}\n"
    )
    file = reported.write(of(log))
    text = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    for secret in (token, SECRET, "8.8.8.8", "carol"):
        assert secret not in text
    for part in (
        "FooError: something odd",
        "the only layout that fits",
        "vllm serve /m",
        "$ uname -m",
        "medley ",
    ):
        assert part in text
