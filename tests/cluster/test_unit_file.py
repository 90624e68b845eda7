"""A unit as systemd reads it; tests/rack/test_systemd.py has a real systemd read it."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley.cluster.restart_rule import Restart
from medley.cluster.unit_file import BootOptions, Unit, format_unit, quote_word
from medley.command import Command
from tests.problems import raises_problem

PLAIN = Unit("medley-serve-8000", "serve demo", Command(("/bin/medley", "serve", "demo")))
FULL = Unit(
    "medley-ray",
    "Ray, 100% of it",
    Command(
        ("/opt/my env/bin/ray", "start", "--block", "$HOME", "100%", ";"),
        env={"PATH": "/usr/bin:/bin", "ODD": 'a "b" \\ $HOME 5%'},
    ),
    Restart(longest_s=30),
    stop_limit_s=2.5,
)
BOOT = BootOptions("ann", before=("/bin/medley", "ray-stop"))
SYMBOLS = st.text(
    st.sampled_from("\n\t \"'\\$%;{}") | st.characters(exclude_categories=["Cs", "Cc", "Cn"]), max_size=30
)


def test_the_least() -> None:
    assert format_unit(PLAIN) == (
        "[Unit]\n"
        "Description=serve demo\n"
        "\n"
        "[Service]\n"
        "Type=exec\n"
        "ExecStart=/bin/medley serve demo\n"
        "Restart=no\n"
        "SuccessExitStatus=130 143\n"
        "KillMode=mixed\n"
        "TimeoutStartSec=infinity\n"
        "TimeoutStopSec=30\n"
        "LimitMEMLOCK=infinity\n"
        "LimitNOFILE=1048576\n"
        "OOMPolicy=continue\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def test_all_of_a_users_own() -> None:
    assert format_unit(FULL) == (
        "[Unit]\n"
        "Description=Ray, 100%% of it\n"
        "StartLimitIntervalSec=0\n"
        "\n"
        "[Service]\n"
        "Type=exec\n"
        'Environment="ODD=a \\"b\\" \\\\ $HOME 5%%"\n'
        "Environment=PATH=/usr/bin:/bin\n"
        'ExecStart="/opt/my env/bin/ray" start --block "$$HOME" "100%%" ";"\n'
        "Restart=always\n"
        "SuccessExitStatus=130 143\n"
        "RestartSec=2\n"
        "RestartSteps=4\n"
        "RestartMaxDelaySec=30\n"
        "KillMode=mixed\n"
        "TimeoutStartSec=infinity\n"
        "TimeoutStopSec=2.5\n"
        "LimitMEMLOCK=infinity\n"
        "LimitNOFILE=1048576\n"
        "OOMPolicy=continue\n"
        "\n"
        "[Install]\n"
        "WantedBy=default.target\n"
    )


def test_what_a_unit_of_the_systems_has_besides() -> None:
    own, systems = (
        format_unit(PLAIN).splitlines(),
        format_unit(PLAIN.replace(restart=Restart()), BOOT).splitlines(),
    )
    assert [line for line in systems if line not in own] == [
        "Wants=network-online.target",
        "After=network-online.target",
        "StartLimitIntervalSec=0",
        "User=ann",
        "WorkingDirectory=~",
        "ExecStartPre=-/bin/medley ray-stop",
        "Restart=always",
        "RestartSec=2",
        "RestartSteps=5",
        "RestartMaxDelaySec=60",
        "OOMScoreAdjust=-500",
        "MemoryMin=64M",
        "WantedBy=multi-user.target",
    ]


@pytest.mark.parametrize(
    "unit",
    [
        PLAIN.replace(command=PLAIN.command.replace(secrets={"KEY": "/file"})),
        PLAIN.replace(command=PLAIN.command.replace(unset=("LANG",))),
        PLAIN.replace(command=PLAIN.command.replace(undo=("/bin/true",))),
        PLAIN.replace(start_hook=Command(("/bin/tell", "it"))),
        PLAIN.replace(restart=Restart(limit=3)),
    ],
    ids=["a secret", "unset", "undo", "after", "a limit"],
)
def test_what_its_keeper_does_is_not_in_its_file(unit: Unit) -> None:
    with pytest.raises(AssertionError):
        format_unit(unit)


@pytest.mark.parametrize(
    "name",
    [
        *("HF_TOKEN", "OPENAI_API_KEY", "MY_SECRET", "db_password", "AWS_CREDENTIALS", "HF_PASS", "GH_TOKEN"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "NGC_API_KEY", "WANDB_API_KEY", "PGPASSWORD"),
        *("KEY_PASSPHRASE", "GITHUB_PAT", "SSH_PASS", "KAGGLE_KEY"),
    ],
)
def test_a_secret_of_the_environment_is_the_users(name: str) -> None:
    with raises_problem(name, fix=(f"unset {name}", "hf auth login")) as caught:
        format_unit(PLAIN.replace(command=PLAIN.command.replace(env={name: "hidden"})))
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (Command(("/m", "serve"), {"HF_ENDPOINT": "https://ann:tulips@mirror.lan/hf"}), "HF_ENDPOINT"),
        (Command(("/m", "serve"), {"HTTPS_PROXY": "http://tulips@proxy.lan:3128"}), "HTTPS_PROXY"),
        (Command(("/m", "serve", "--x=socks5h://ann:tulips@proxy.lan")), "the command"),
    ],
)
def test_a_login_in_a_url_is_in_no_unit_of_the_system(command: Command, name: str) -> None:
    with raises_problem(name, cause="every user") as caught:
        format_unit(Unit("a", "t", command), BootOptions("ann"))
    assert "tulips" not in str(caught.value)
    assert "tulips" in format_unit(Unit("a", "t", command)), "a user's own file is closed to others"


WEBHOOK = "https://hooks.slack.com/services/T0123/B0123/tulips"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (Command(("/m", "serve"), {"SLACK_URL": WEBHOOK}), "SLACK_URL"),
        (Command(("/m", "serve"), {"MEDLEY_NOTICE": WEBHOOK}), "MEDLEY_NOTICE"),
        (Command(("/m", "serve"), {"VLLM_X": "hf_tulipsTulips01234567"}), "VLLM_X"),
        (Command(("/m", "serve"), {"VLLM_X": '{"api_key": "tulips"}'}), "VLLM_X"),
        (Command(("/m", "serve"), {"VLLM_X": "Bearer tulips1"}), "VLLM_X"),
        (Command(("/m", "serve"), {"HF_ENDPOINT": "https://mirror.lan/hf?key=tulips"}), "HF_ENDPOINT"),
        (Command(("/m", "serve"), {"HF_ENDPOINT": "https://mirror.lan/?x=1&hf-token=tulips"}), "HF_ENDPOINT"),
        (Command(("/m", "serve"), {"OTEL_EXPORTER_OTLP_HEADERS": "x-team=tulips"}), "OTLP_HEADERS"),
        (Command(("/m", "serve"), {"OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-team=tulips"}), "TRACES_HEADERS"),
        (Command(("/m", "serve"), {"AWS_ACCESS_KEY_ID": "tulips"}), "AWS_ACCESS_KEY_ID"),
        (Command(("/m", "serve", "demo", "--", "--otlp-traces-headers", "x-team=tulips")), "headers"),
        (Command(("/m", "serve", "demo", "--", "--hf-token", "tulips")), "--hf-token"),
        (Command(("/m", "serve", "demo", "--", "--admin-api-key=tulips")), "--admin-api-key"),
        (Command(("/m", "serve", "demo", "--", "--key-pass", "tulips")), "--key-pass"),
        (Command(("/m", "serve", "demo", "--", "--wandb-key", "tulips")), "--wandb-key"),
        (Command(("/m", "serve", "demo", "--", "--api-key", "tulips")), "--api-key"),
        (Command(("/m", "serve", "demo", "--", "--api-key", "token-a1", "tulips-b2")), "--api-key"),
        (Command(("/m", "serve", "demo", "--api-key=tulips")), "--api-key"),
        (Command(("/m", "serve", "demo", "--", "--ssl-keyfile-password", "tulips")), "password"),
        (Command(("/m", "serve", "demo", "--", "--x", '{"token": "tulips"}')), "--x"),
        (Command(("/m", "serve", "demo", "--", "--x", f"curl {WEBHOOK}")), "--x"),
        (Command(("/m", "serve", "demo", "--x", "/services/T0123ABC/B0123ABC/tulipsTulips0123")), "--x"),
        (Command(("/m", "serve"), {"MEDLEY_TOPIC": "/api/push/tulipsTulips0123"}), "MEDLEY_TOPIC"),
        (Command(("/m", "serve", "sk-tulips0123456789abcdef")), "a word of the command"),
    ],
)
def test_a_secret_of_any_name_is_in_no_unit_of_the_system(command: Command, name: str) -> None:
    with raises_problem(name, cause="every user") as caught:
        format_unit(Unit("a", "t", command), BootOptions("ann"))
    assert "\n(umask 077; cat > ~/.config/medley/" in caught.value.fix
    assert "tulips" not in str(caught.value)
    assert "tulips" in format_unit(Unit("a", "t", command)), "a user's own file is closed to others"


@pytest.mark.parametrize("name", ["SSHPASS", "PASS", "PASSCODE", "USERPWD", "CURLOPT_USERPWD", "dbpass"])
@pytest.mark.parametrize("value", ["tulips", "20260101"])
def test_a_secret_of_a_name_in_one_word_is_in_no_unit_of_the_system(name: str, value: str) -> None:
    with raises_problem(name, cause="every user") as caught:
        format_unit(Unit("a", "t", Command(("/m", "serve"), {name: value})), BootOptions("ann"))
    assert value not in str(caught.value)


@pytest.mark.parametrize(
    ("flag", "value"),
    [("--api-key", "1234567890"), ("--api-key", "pass"), ("--password", "1234"), ("--hf-token", "20260101")],
)
def test_a_key_of_digits_or_a_plain_word_is_in_no_unit_of_the_system(flag: str, value: str) -> None:
    for words in ((flag, value), (f"{flag}={value}",)):
        with raises_problem(flag, cause="every user"):
            format_unit(Unit("a", "t", Command(("/m", "serve", "demo", "--", *words))), BootOptions("ann"))


@pytest.mark.parametrize(
    "words",
    [
        ("serve", "Qwen/Qwen3-8B", "--api-key", "/home/ann/key", "--on-event", "~/.config/medley/on-event"),
        (
            "serve",
            "demo",
            "--on-event",
            "/srv/hooks/on-event-2",
            "--",
            "--x",
            "/srv/services/vllm-0.33.0-cuda13",
        ),
        ("serve", "demo", "--api-key", "none", "--token-file", "/t", "--", "--max-model-len", "8192"),
        ("serve", "demo", "--", "--revision", "0123456789abcdef0123456789abcdef01234567"),
        ("serve", "/models/snapshots/0123456789abcdef0123456789abcdef01234567"),
        ("serve", "ann/hf-qwen3-8B-awq", "--image", f"vllm@sha256:{'0123456789abcdef' * 4}"),
        ("serve", "demo", "--", "--override-generation-config", '{"stop": ["x"], "max_new_tokens": 5}'),
        ("serve", "demo", "--", "--tokenizer-mode", "auto", "--speculative-config", '{"method": "mtp"}'),
        (
            "serve",
            "demo",
            "--",
            "--max-num-batched-tokens",
            "8192",
            "--prompt-tokens-details",
            "--seed",
            "123456",
        ),
        ("ray-worker", "spark-1", "--stay", "--link", "192.168.100.0/24"),
    ],
)
def test_what_is_no_secret_is_in_the_unit(words: tuple[str, ...]) -> None:
    env = {
        "HF_HOME": "/data/hf_cache-2024",
        "HF_ENDPOINT": "https://hf-mirror.com",
        "NCCL_DEBUG": "INFO",
        "BYPASS": "all",
    }
    env |= {
        "MEDLEY_ON_EVENT": "/home/ann/notify",
        "PATH": "/nix/store/0123456789abcdfghijklmnpqrsvwxyz-x/bin",
    }
    assert words[1] in format_unit(Unit("a", "t", Command(("/m", *words), env)), BootOptions("ann"))


@pytest.mark.parametrize("word", ["ssh://ann@spark-1", "http://a.lan/x?to=b@c", "ann@spark-1", "a://b/c@d"])
def test_what_is_no_login_in_a_url(word: str) -> None:
    assert word in format_unit(Unit("a", "t", Command(("/m", word))), BootOptions("ann"))


def test_a_secrets_file_is_none() -> None:
    assert "RAY_AUTH_TOKEN_PATH=/t" in format_unit(
        PLAIN.replace(command=PLAIN.command.replace(env={"RAY_AUTH_TOKEN_PATH": "/t"}))
    )


@pytest.mark.parametrize("odd", ["\r", "\x00", "\x1b", "\x7f", "\ud800", "￾"], ids=ascii)
def test_what_systemd_would_not_take_is_a_problem(odd: str) -> None:
    with raises_problem(repr(f"a{odd}"), cause=repr(odd)):
        quote_word(f"a{odd}")


def test_a_title_is_one_line() -> None:
    with raises_problem(repr("a\nb"), cause=repr("\n")):
        format_unit(PLAIN.replace(title="a\nb"))


def test_a_program_has_its_whole_path() -> None:
    with pytest.raises(AssertionError):
        format_unit(PLAIN.replace(command=Command(("medley",))))


@given(st.lists(SYMBOLS))
def test_every_argument_is_read_as_it_was(words: list[str]) -> None:
    line = " ".join(quote_word(each) for each in words)
    assert [each.replace("%%", "%").replace("$$", "$") for each in read(line)] == words
    assert all(re.fullmatch(r"(?:[^%$]|%%|\$\$)*", each) for each in read(line)), "none is left to expand"


@given(SYMBOLS)
def test_every_variable_is_read_as_it_was(value: str) -> None:
    (found,) = read(quote_word(f"NAME={value}", variables="literal"))
    assert found.replace("%%", "%") == f"NAME={value}"


def read(line: str) -> list[str]:
    """The words of a line as systemd.syntax(7) tells to take them, before specifiers and variables."""
    return list(_words(line))


def _words(line: str) -> Iterator[str]:
    assert "\n" not in line
    at = 0
    while at < len(line):
        if line[at] == " ":
            at += 1
            continue
        quote = line[at] if line[at] in "\"'" else ""
        at += len(quote)
        word = ""
        while at < len(line) and line[at] != (quote or " "):
            if line[at] == "\\":
                at += 1
                word += {"n": "\n", "t": "\t", "\\": "\\", '"': '"'}[line[at]]
            else:
                assert quote or line[at] not in "\"'", "a quote in the middle of a word"
                word += line[at]
            at += 1
        assert not quote or at < len(line), "a quote that is not closed"
        at += len(quote)
        assert at == len(line) or line[at] == " ", "a quote is closed where the word ends"
        assert quote or word != ";", "systemd takes it for the end of the command"
        yield word


@pytest.mark.parametrize(("unit", "boot"), [(FULL, None), (FULL, BOOT)], ids=["a user's own", "the system's"])
def test_systemd_finds_no_fault(unit: Unit, boot: BootOptions | None, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze: apt-get install systemd")
    run = unit.replace(command=Command(("/bin/sh", *unit.command.argv[1:]), unit.command.env))
    file = tmp_path / "medley-x.service"
    file.write_text(format_unit(run, boot.replace(before=("/bin/sh",)) if boot else None))
    whose = "--system" if boot else "--user"
    said = subprocess.run(
        ["systemd-analyze", whose, "verify", file],
        env={"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    faults = [line for line in said.stderr.splitlines() if "medley-x" in line]
    # Those before 254 do not know them, and go on.
    assert [line for line in faults if not re.search("Unknown key.*Restart(Steps|MaxDelaySec)", line)] == []
