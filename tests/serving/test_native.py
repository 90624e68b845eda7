"""A host that joins checks the head's order against its own folder."""

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from medley.network.secure_channel import Channel
from medley.serving import native
from tests.problems import raises_problem

TOKEN = "0123456789abcdef" * 2
DRAFT = json.dumps({"model": "org/draft", "revision": "1" * 40})
TERMS = {"target": "org/main", "beside": {"cache": "/head/cache"}}


@pytest.fixture
def channels() -> Iterator[tuple[Channel, Channel]]:
    """The head's end and the worker's."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as client,
        server.accept()[0] as accepted,
        ThreadPoolExecutor() as pool,
    ):
        head = pool.submit(Channel, accepted, TOKEN, server=True)
        worker = pool.submit(Channel, client, TOKEN, server=False)
        yield head.result(20), worker.result(20)


@pytest.mark.parametrize(
    "words",
    [
        ("--speculative-config", DRAFT),
        ("-sc.model=org/draft", "-sc.revision", "1" * 40),
        ("--tokenizer", "org/draft"),
    ],
)
def test_a_folder_here_does_not_take_the_place_of_a_draft(
    words: tuple[str, ...],
    channels: tuple[Channel, Channel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    head, worker = channels
    argv = ["/head/bin/vllm", "serve", "org/main", *words]
    order = {"words": argv, "flags": [], "variables": [], "extra": [], "files": {}}
    head.send({"order": order})
    command = native.receive_command(worker, TERMS, Path("/own/bin"), ())
    assert command is not None
    assert command.argv == ("/own/bin/vllm", *argv[1:])
    (tmp_path / "org" / "draft").mkdir(parents=True)
    head.send({"order": order})
    with raises_problem("org/draft is a repository of the hub, and a name in this folder"):
        native.receive_command(worker, TERMS, Path("/own/bin"), ())
    messages = iter(lambda: head.receive(20), None)
    assert "org/draft" in next(message["ended"] for message in messages if "ended" in message)
    head.send({"end": True})
    assert native.receive_command(worker, TERMS, Path("/own/bin"), ()) is None


def test_no_secret_goes_to_a_host_that_joins() -> None:
    """The channel is not encrypted."""
    plain = {"NCCL_DEBUG": "INFO", "HF_ENDPOINT": "https://hub.example", "VLLM_LOGGING_LEVEL": "DEBUG"}
    secret = {
        "HF_TOKEN": "hf_abcdefgh12345678",
        "HF_API_KEY": "0123456789abcdef",
        "HF_PASSWORD": "hunter2",
        "SGLANG_ADMIN_API_KEY": "adm1n",
        "VLLM_S3_SECRET": "s3s",
        "LMCACHE_REMOTE_URL": "redis://:hunter2@10.0.0.2:6379",
        "HF_HUB_URL": "https://bob:hunter2@hub.example",
    }
    carried = native.list_carried_variables({**plain, **secret})
    assert {variable.name: variable.value for variable in carried} == plain
