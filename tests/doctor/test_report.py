"""What programs read of an examination; reports without secrets."""

import json
import platform
import shlex
from pathlib import Path

import pytest

from medley.doctor import report
from medley.doctor.checks import Mend
from medley.doctor.registry import checks
from medley.host import redact
from medley.host.redact import HIDDEN, Redactor
from tests.explain.test_explain import of
from tests.host.health.cases import case_of
from tests.odd_input import COUNTS, MEBIBYTE, hold, texts

GROUP = ("spark-mtu-mismatch", "spark-pair-b")


def test_of_one_host_no_place_is_named() -> None:
    found = tuple(checks(case_of({"spark-twins-one-subnet": None})))
    (row,) = (row for row in report.table(found)["checks"] if row["rule"] == "one-subnet")
    assert row["problem"]["fix"].startswith("sudo $(command -v medley) link setup")


def test_the_table_is_json_and_counts() -> None:
    found = tuple(checks(case_of(dict.fromkeys(GROUP))))
    table = json.loads(json.dumps(report.table(found)))
    assert table["counts"]["wrong"] == 2
    assert sum(table["counts"].values()) == len(table["checks"]) == len(found)
    assert {row["state"] for row in table["checks"]} <= {"ok", "better", "wrong", "unknown"}
    assert all((row["problem"] is None) == (row["state"] in {"ok", "unknown"}) for row in table["checks"])


@pytest.mark.parametrize(
    ("names", "status"), [(GROUP, 1), (("spark-pair-a", "spark-pair-b"), 0), (("spark-pcie-x2",), 0)]
)
def test_only_what_is_wrong_is_an_error(names: tuple[str, ...], status: int) -> None:
    assert report.status(tuple(checks(case_of(dict.fromkeys(names))))) == status


def test_a_mend_is_shown_as_it_is_pasted() -> None:
    mends = report.mends(tuple(checks(case_of(dict.fromkeys(GROUP)))))
    assert [mend.words[4] for mend in mends] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert all(mend.unasked == ("--yes",) and mend.root for mend in mends)
    drop = Mend("x", ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"), root=True)
    assert shlex.split(drop.shown) == ["sudo", *drop.words]


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
        f"non-default args: {{'model': '/m', 'api_key': ['{SECRET}', '{SECRET}'], 'port': 8000}}",
        f"args=['--api-key', '{SECRET}', '--port', '8000']",
        "Authorization: Bearer q7Zk3mPw9xLr",
        f"curl -H 'Authorization: token {SECRET}'",
        f"Bearer {SECRET}",
        f"Cookie: session={SECRET}; theme=dark",
        f"Set-Cookie: id={SECRET}; HttpOnly",
        f"https://cdn.example.com/x.safetensors?X-Amz-Signature={SECRET}&X-Amz-Date=1",
        f"https://s.blob.core.windows.net/c/x?sv=1&sig={SECRET}",
        f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={SECRET}==;EndpointSuffix=y",
        f"password={SECRET[:4]}{SECRET}",
        f"WANDB_API_KEY={SECRET}",
        f"AIza{SECRET}{SECRET}",
        f"tskey-auth-{SECRET}",
        f"ghu_{SECRET}{SECRET}",
        f"ghr_{SECRET}{SECRET}",
        f"Received request chatcmpl-1: prompt: 'my {SECRET} story', params: SamplingParams(n=1)",
        f'{{"messages": [{{"role": "user", "content": "my {SECRET}"}}]}}',
        f"sessionid={SECRET}",
        f"HfToken: {SECRET}",
        f"MEDLEY_GUARD_KEY={SECRET}",
        f"AWS_SECRET_ACCESS_KEY=/{SECRET}",
        f"api_key=~{SECRET}",
        f"(b'x-api-key', b'{SECRET}')",
        f"[('authorization', 'Bearer {SECRET}')]",
        f'inputs="my {SECRET}"',
        f"prompts=['my {SECRET}']",
        f"prompt=TextPrompt('my {SECRET}')",
    ],
)
def test_a_secret_is_concealed(text: str) -> None:
    said = Redactor().text(f"before {text} after")
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
        "tokenizer='Qwen/Qwen3-8B', tokenizer_mode=auto, author: someone",
        "KV cache 0.19 GiB on each rank: 64 sequences of 2048 tokens need no more",
        "snapshots/" + "ab12" * 10 + " revision=" + "cd34" * 10,
        "--api-key none, api_key=None, 'auth': True",
        "https://huggingface.co/Qwen/Qwen3-8B/resolve/main/config.json",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:94",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "/Users/carol/models",
        "/data/home/carol/models",
        "USER=carol LOGNAME=carol",
        "carol     1234  0.0  1.2 123456 7890 ?  Sl  10:00  0:01 python",
        "mail carol@corp.example.com about it",
        "ssh carol@spark-2.corp.internal",
        "Name: carol.lan",
    ],
)
def test_people_are_not_named(text: str) -> None:
    assert "carol" not in Redactor().text(text)
    assert "corp" not in Redactor().text(text)


def test_a_home_that_is_called_home_keeps_its_folders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/data/home")
    assert Redactor().text("/data/home/models /data/home/.cache") == "/data/home/models /data/home/.cache"
    assert Redactor().text("/home/carol/.cache") == "/home/user/.cache"
    monkeypatch.setenv("HOME", "/home")
    assert Redactor().text("/home/carol/.cache") == "/home/user/.cache"
    monkeypatch.setenv("HOME", "/home/carol")
    assert (
        Redactor().text("/home/carol/x /home/dave/x /x/home/.cache")
        == "/home/user/x /home/user/x /x/home/.cache"
    )


def test_hosts_are_not_named_in_any_writing() -> None:
    text = (
        "ec2-3-14-15-92 ip-10-0-0-1 3c-6d-66-01-02-03 3c6d.6601.0203 3c:6d:66:01:02:03 "
        "Serial Number : 1324021000042 serial: 1324021000042 spark-7.corp.example.com thor.fritz.box desk"
    )
    told = Redactor(["desk"]).text(text)
    assert told == (
        "ec2-203-0-113-1 ip-10-0-0-1 02-00-00-00-00-01 0200.0000.0001 02:00:00:00:00:01 "
        "Serial Number : serial-1 serial: serial-1 name-1.example.net name-2.example.net host-1"
    )


def test_what_is_told_is_secret_is_hidden_in_any_form(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("MY_SERVICE_PASSWORD", "tulips-in-may")
    (tmp_path / "token").write_text("a-plain-word-of-the-hub\n")
    monkeypatch.setattr(platform, "node", lambda: "spark-1")
    said = redact.redactor_of_host().text("tulips-in-may at spark-1, a-plain-word-of-the-hub")
    assert said == f"{HIDDEN} at host-1, {HIDDEN}"


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_redaction(count: int) -> None:
    """In time, whatever a log holds: one pattern was cubic, and took minutes for a line of `-token`."""
    sample = (
        "--api-key x --token=y 'api_key': ['a', 'b'] Authorization: Bearer z prompt: 'p' 8.8.8.8 "
        "https://u:p@h.example.com/x?sig=1 3c:6d:66:01:02:03 fe80::1 /home/carol Serial Number: 12345 a@b.lan"
    )
    longest = MEBIBYTE if count > 300 else MEBIBYTE // 64  # the slow group has the time
    hold(Redactor(["spark"], ["carol"], ["secret-word"]).text, texts([sample], longest=longest), count, ())


def test_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    token = "ab1" * 20
    (tmp_path / "token").write_text(token)
    log = (
        "medley: alone on vm: the only layout that fits\n$ vllm serve /m\n"
        f"FooError: something odd at 8.8.8.8, in /home/carol/x, {token}, --api-key {SECRET}\n"
    )
    file = report.write(of(log))
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
