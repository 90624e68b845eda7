"""URLs of servers on a socket."""

from pathlib import Path

import pytest

from medley.network.socket_url import read_socket_url, write_socket_url


@pytest.mark.parametrize(
    "socket", [Path("/run/user/1000/medley-1a/8000/engine.sock"), Path("/run/A b:c/x.sock")]
)
def test_a_url_is_read_as_it_was_written(socket: Path) -> None:
    assert read_socket_url(write_socket_url(socket)) == (socket, "/v1")
    assert read_socket_url(f"{write_socket_url(socket)}/chat/completions") == (socket, "/v1/chat/completions")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000/v1", "https://unix:8000/v1", "unix:", ""])
def test_a_host_has_no_socket(url: str) -> None:
    assert read_socket_url(url) is None
