"""A redacted transcript tells no secret and no lie."""

import platform
from pathlib import Path

import pytest

from medley import credentials
from medley.cluster import events
from medley.engine.server_spec import ServerSpec
from medley.host import redact
from medley.host.facts import read_facts
from medley.host.redact import Redactor
from medley.host.redact.named_values import HIDDEN
from medley.serving import server_records
from medley.transcript import Answer, parse_transcript
from tests.odd_input import COUNTS, MEBIBYTE, hold, texts

HOSTS = Path(__file__).parents[1] / "recorded"
FIRST, SECOND = "11111111-2222-3333-4444-555555555555", "AAAAAAAA-bbbb-cccc-dddd-eeeeeeeeeeee"


@pytest.mark.parametrize(
    ("said", "redacted"),
    [
        pytest.param(
            f"GPU-{FIRST} GPU-{SECOND} GPU-{FIRST}",
            "GPU-00000000-0000-0000-0000-000000000001 GPU-00000000-0000-0000-0000-000000000002 "
            "GPU-00000000-0000-0000-0000-000000000001",
            id="equal stays equal",
        ),
        pytest.param("link/ether 3c:6d:66:01:02:03", "link/ether 02:00:00:00:00:01", id="MAC"),
        pytest.param("brd ff:ff:ff:ff:ff:ff", "brd ff:ff:ff:ff:ff:ff", id="broadcast"),
        pytest.param("inet 8.8.4.4/24", "inet 203.0.113.1/24", id="global IPv4"),
        pytest.param("inet 192.168.1.5 127.0.0.1", "inet 192.168.1.5 127.0.0.1", id="private IPv4"),
        pytest.param("inet6 2a00:1450:4001:80b::200e", "inet6 2001:db8::1", id="global IPv6"),
        pytest.param("inet6 fe80::1 ::1", "inet6 fe80::1 ::1", id="local IPv6"),
        pytest.param("00000000:01:00.0 0000:0f:00.0", "00000000:01:00.0 0000:0f:00.0", id="PCI address"),
        pytest.param("580.126.09 6.8.12-1021-tegra", "580.126.09 6.8.12-1021-tegra", id="versions"),
        pytest.param(
            "    Name                  : secret-plan\n    Name : python3\n  Name : secret-plan",
            "    Name                  : process-1\n    Name : python3\n  Name : process-1",
            id="what has the GPU",
        ),
        pytest.param(
            "        Name : VLLM::EngineCore", "        Name : VLLM::EngineCore", id="an engine has it"
        ),
        pytest.param(
            'tcp dport 22 drop comment "for Alice"\n-A INPUT -m comment --comment bob -j DROP',
            'tcp dport 22 drop comment ""\n-A INPUT -m comment --comment "" -j DROP',
            id="comments of a firewall",
        ),
        pytest.param("/home/alice/.local/bin/uv", "/home/user/.local/bin/uv", id="home"),
        pytest.param("Linux spark-1 6.8 spark-10", "Linux host-1 6.8 spark-10", id="host name"),
        pytest.param("", "", id="nothing"),
        pytest.param(
            "3c:6d:66:01:02:03 fe80::3e6d:66ff:fe01:203 fe80:0000:0000:0000:3e6d:66ff:fe01:0203",
            "02:00:00:00:00:01 fe80::ff:fe00:1 fe80:0000:0000:0000:0000:00ff:fe00:0001",
            id="a MAC inside of an IPv6 address and of a GID",
        ),
        pytest.param(
            "rocep1s0f0/sys_image_guid 3c6d:6603:0001:0203\nroceP2p1s0f0/sys_image_guid 3c6d:6603:0001:0203",
            "rocep1s0f0/sys_image_guid 0200:0000:0000:0001\nroceP2p1s0f0/sys_image_guid 0200:0000:0000:0001",
            id="twins stay twins",
        ),
        pytest.param(
            "fe80::506b:4b03:c1:2 506b:4b03:00c1:0002",
            "fe80::200:0:0:1 0200:0000:0000:0001",
            id="InfiniBand's GID and GUID",
        ),
        pytest.param("fd00:1::3e6d:66ff:fe01:203", "fd00:1::ff:fe00:1", id="a MAC in a private IPv6"),
        pytest.param("fe80::a1b2:c3d4:e5f6:789", "fe80::200:0:0:1", id="a random interface"),
        pytest.param(
            "8.8.4.4 0000:0000:0000:0000:0000:ffff:0808:0404",
            "203.0.113.1 0000:0000:0000:0000:0000:ffff:cb00:7101",
            id="global IPv4 in a GID",
        ),
        pytest.param(
            "0000:0000:0000:0000:0000:ffff:c0a8:640a",
            "0000:0000:0000:0000:0000:ffff:c0a8:640a",
            id="private IPv4 in a GID",
        ),
        pytest.param(
            '"root_id":"8000.3c:6d:66:1:2:3","group_addr":"01:80:c2:00:00:00"',
            '"root_id":"8000.2:0:0:0:0:1","group_addr":"01:80:c2:00:00:00"',
            id="bridge",
        ),
        pytest.param("enx3c6d66010203 3C:6D:66:01:02:03", "enx020000000001 02:00:00:00:00:01", id="named"),
        pytest.param(
            '"phys_switch_id":"8c2e5f000324de24"', '"phys_switch_id":"0200000000000001"', id="switch"
        ),
        pytest.param(
            "80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c1:00:02",
            "80:00:02:08:fe:80:00:00:00:00:00:00:02:00:00:00:00:00:00:01",
            id="IPoIB",
        ),
    ],
)
def test_redact(said: str, redacted: str) -> None:
    assert Redactor(["spark-1"]).transcript({"question": Answer(said, 3)}) == {
        "question": Answer(redacted, 3)
    }


@pytest.mark.parametrize("path", sorted(HOSTS.glob("*.txt")), ids=lambda path: path.stem)
def test_recorded_hosts_are_redacted(path: Path) -> None:
    """Redacting again changes nothing, so no transcript here gives anyone away."""
    answers = parse_transcript(path.read_text())
    assert Redactor().transcript(answers) == answers


def test_redacting_keeps_the_facts() -> None:
    answers = parse_transcript((HOSTS / "rtx-two.txt").read_text())
    again = parse_transcript(
        (HOSTS / "rtx-two.txt").read_text().replace("00000000-0000-0000-0000-000000000002", SECOND)
    )
    assert read_facts(again) != read_facts(answers)
    assert read_facts(Redactor().transcript(again)) == read_facts(answers)


def test_redacting_keeps_the_network() -> None:
    """What the fabric is decided by is the same before and after."""
    text = (HOSTS / "spark-pair-a.txt").read_text()
    secret = text.replace("02:00:00:00:00:", "3c:6d:66:01:02:").replace("0200:0000:", "3c6d:6603:")
    secret = secret.replace(":0000:00ff:fe00:", ":3e6d:66ff:fe01:02").replace("fe01:0200", "fe01:02")
    answers = parse_transcript(secret.replace("fe80::ff:fe00:", "fe80::3e6d:66ff:fe01:20"))
    assert "3c:6d:66" not in str(Redactor().transcript(answers))
    assert "3e6d" not in str(Redactor().transcript(answers))
    assert Redactor().transcript(answers) == parse_transcript(text)


def test_more_public_addresses_than_documentation_has() -> None:
    said = " ".join(f"8.8.{high}.{low}" for high in range(2) for low in range(200))
    words = Redactor().transcript({"q": Answer(said)})["q"].text.split()
    assert len(set(words)) == 400
    assert words[0] == "203.0.113.1"
    assert words[-1] == "198.18.1.144"


def test_json_is_redacted_with_its_keys() -> None:
    found = Redactor(["spark-1"], ["ann"]).table(
        {
            "spark-1": {"MY_TOKEN": "hunter2 hunter2", "token": ["X y"], "tokens": 7},
            "argv": ["serve", "--api-key", "abc def", "--port", "8000", "--key-file", "/home/ann/key"],
            "pair": ("spark-1", None, True, 1.5),
        }
    )
    assert found == {
        "host-1": {"MY_TOKEN": "HIDDEN", "token": ["HIDDEN"], "tokens": 7},
        "argv": ["serve", "--api-key", "HIDDEN", "--port", "8000", "--key-file", "/home/user/key"],
        "pair": ["host-1", None, True, 1.5],
    }


def test_a_host_has_one_number_by_all_of_its_names() -> None:
    redactor = Redactor([("ann-desk", "desk"), ("spark-2", ""), "spark-3", "desk"])
    assert redactor.text("desk ann-desk spark-2 spark-3") == "host-1 host-1 host-2 host-3"


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


def test_the_command_for_events_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic has no shape: the command that names it, or its file, is read for its addresses."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    notify = tmp_path / "notify"
    notify.write_text('curl -s --data-raw "$MEDLEY_EVENT_TEXT" push.lan/tulips-in-may\n')
    for command in (notify.read_text(), str(notify)):
        monkeypatch.setenv("MEDLEY_ON_EVENT", command)
        shown = redact.redactor_of_host().text("could not resolve push.lan/tulips-in-may: MEDLEY_EVENT_TEXT")
        assert shown == f"could not resolve {HIDDEN}: MEDLEY_EVENT_TEXT"


def test_the_path_of_a_webhook_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's log shows it without its host; the path of a program is none."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv(
        "MEDLEY_ON_EVENT", "curl -d x https://push.lan/tulips-in-may; curl http://x.lan:80/medley"
    )
    shown = redact.redactor_of_host().text("POST /tulips-in-may 200; topic tulips-in-may; /srv/medley/x")
    assert shown == f"POST {HIDDEN} 200; topic {HIDDEN}; /srv/medley/x"


def test_the_user_s_own_files_with_secrets_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of --api-key, that of --on-event, and the one where the how-to puts it, after the server's end."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "config"))
    monkeypatch.delenv("MEDLEY_ON_EVENT", raising=False)
    texts = {
        "config/on-event": "#!/bin/sh\ncurl -s push.lan/tulips-in-april\n",
        "mine/notify": "curl -s push.lan/tulips-in-may\n",
        "mine/key": "tulips-grow-for-me-in-june\n",
        "state/bench-key": "a-rose-by-any-name",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    events.write_command_file(str(tmp_path / "mine/notify"))
    with server_records.record_server(ServerSpec("/m", "m", "127.0.0.1", 8000, key=tmp_path / "mine/key")):
        pass
    shown = redact.redactor_of_host().text("at push.lan/tulips-in-april, push.lan/tulips-in-may: #!/bin/sh")
    assert shown == f"at {HIDDEN}, {HIDDEN}: #!/bin/sh"
    for key in ("tulips-grow-for-me-in-june", "a-rose-by-any-name"):
        assert redact.redactor_of_host().text(f"with {key}") == f"with {HIDDEN}"


def test_a_secret_of_several_lines_is_hidden_where_a_log_divides_it() -> None:
    lines = ("aVeryLongLineOfASecretKey", "andAnotherLineOfTheSecret")
    said = Redactor(secrets=["\n".join(("-----BEGIN KEY-----", *lines))]).text(
        f"12:00 {lines[0]}\n12:01   {lines[1]}"
    )
    assert said == f"12:00 {HIDDEN}\n12:01   {HIDDEN}"


def test_each_named_key_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    for name in ("default", "alice"):
        own = tmp_path / "own"
        own.write_text(f"tulips-in-may-grow-for-{name}")
        credentials.add_key(name, str(own))
    text = redact.redactor_of_host().text(
        "one tulips-in-may-grow-for-default, other tulips-in-may-grow-for-alice"
    )
    assert "tulips" not in text
