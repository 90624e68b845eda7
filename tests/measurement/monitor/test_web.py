"""The answers of `medley top --web`, the clients that get them, and the addresses to listen on."""

import http.client
import json
import socket
import time
from collections.abc import Iterator

import pytest

from medley.measurement.monitor import metrics, web
from tests.measurement.monitor.hosts import EVIL, Replayed, cluster
from tests.network.test_listeners import flood
from tests.odd_input import COUNTS, blobs, hold
from tests.problems import raises_problem


@pytest.fixture(scope="module")
def place() -> Iterator[web.ListenAddress]:
    with web.serve_page(web.parse_address(None), Replayed(cluster()), 2) as address:
        yield address


def request_page(
    place: web.ListenAddress, path: str, host: str = "127.0.0.1", **more: str
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", place.port, timeout=20)
    connection.request("GET", path, headers={"Host": host, **more})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def test_the_page_fetches_nothing_and_may_run_nothing_but_its_own(place: web.ListenAddress) -> None:
    status, headers, body = request_page(place, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    text = body.decode()
    assert "innerHTML" not in text
    assert "http:" not in text
    assert "https:" not in text


def test_what_the_page_polls(place: web.ListenAddress) -> None:
    page_view = json.loads(request_page(place, "/view.json")[2])
    assert page_view["title"] == "medley top: 4 hosts, 2 of them without an answer; every 2 s"
    assert [table["name"] for table in page_view["tables"]][:2] == ["hosts", "engines"]
    assert {cell["text"] for cell in page_view["tables"][1]["rows"][1]} >= {EVIL}
    assert {table["columns"][0]["title"] for table in page_view["tables"]} == {"host"}


def test_the_same_as_json_and_metrics(place: web.ListenAddress) -> None:
    hosts = json.loads(request_page(place, "/json")[2])["hosts"]
    assert hosts["spark-2"]["problem"]["what"] == "spark-2 does not answer"
    status, headers, body = request_page(place, "/metrics")
    assert (status, headers["Content-Type"]) == (200, metrics.CONTENT_TYPE)
    assert 'medley_host_up{host="thor-1"} 0.0' in body.decode()


@pytest.mark.parametrize(
    ("path", "host", "expected"),
    [
        pytest.param("/view.json?now", "localhost:9180", 200, id="by name"),
        pytest.param("/", "[::1]:80", 200, id="by another loopback"),
        pytest.param("/json", "evil.example", 421, id="a name that was made to lead here"),
        pytest.param("/json", "evil.example:9180", 421, id="with its port"),
        pytest.param("/json", "192.0.2.1", 421, id="an address that is not this host's own"),
        pytest.param("/../../etc/passwd", "127.0.0.1", 404, id="a file"),
        pytest.param("/nothing", "127.0.0.1", 404, id="nothing"),
    ],
)
def test_who_is_answered(place: web.ListenAddress, path: str, host: str, expected: int) -> None:
    status, _, body = request_page(place, path, host)
    assert status == expected
    assert b"root:" not in body


@pytest.fixture(scope="module")
def opened() -> Iterator[web.ListenAddress]:
    with web.serve_page(web.parse_address("0.0.0.0:0"), Replayed(cluster()), 2) as address:
        yield address


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        pytest.param("192.0.2.1:9180", None, 200, id="an address"),
        pytest.param("[2001:db8::1]", None, 200, id="an address of version 6"),
        pytest.param(socket.gethostname().upper(), None, 200, id="this host's name"),
        pytest.param("evil.example", None, 421, id="a name that was made to lead here"),
        pytest.param("192.0.2.1.evil.example", None, 421, id="one that looks like an address"),
        pytest.param("192.0.2.1:9180", "http://192.0.2.1:9180", 200, id="our own page"),
        pytest.param("192.0.2.1:9180", "http://evil.example", 421, id="on behalf of another page"),
        pytest.param("192.0.2.1:9180", "null", 421, id="on behalf of nobody"),
    ],
)
def test_who_is_answered_beyond_this_host(
    opened: web.ListenAddress, host: str, origin: str | None, expected: int
) -> None:
    assert request_page(opened, "/json", host, **({"Origin": origin} if origin else {}))[0] == expected


def test_many_who_never_ask_do_not_keep_others_from_asking(place: web.ListenAddress) -> None:
    with flood(place.port, 100):
        time.sleep(1.2)  # for a second those who came first are safe
        assert request_page(place, "/json")[0] == 200
    assert request_page(place, "/json")[0] == 200


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_requests(count: int, place: web.ListenAddress) -> None:
    """Whatever is asked, an answer comes or the connection ends, and the next one is answered."""
    whole = b"GET /json?a=b HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://127.0.0.1\r\nA: b\r\n\r\n"

    def ask(request: bytes) -> None:
        with socket.create_connection(("127.0.0.1", place.port), timeout=20) as connection:
            try:
                connection.sendall(request[:100_000])
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(1 << 16):
                    pass
            except TimeoutError:
                raise
            except OSError:  # it ended the connection
                pass

    hold(ask, blobs([whole]), count)
    assert request_page(place, "/json")[0] == 200


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, web.ListenAddress("127.0.0.1", 0)),
        ("127.0.0.1:9180", web.ListenAddress("127.0.0.1", 9180)),
        (":9180", web.ListenAddress("127.0.0.1", 9180)),
        ("[::1]:9180", web.ListenAddress("::1", 9180)),
        ("0.0.0.0:0", web.ListenAddress("0.0.0.0", 0)),
    ],
)
def test_a_place(text: str | None, expected: web.ListenAddress) -> None:
    assert web.parse_address(text) == expected


@pytest.mark.parametrize(
    "text", ["9180", "localhost", "127.0.0.1:", "127.0.0.1:99999", "a b:1", "<script>:1", "1.2.3:80"]
)
def test_no_place(text: str) -> None:
    with raises_problem(repr(text), fix="medley top --web 127.0.0.1:9180"):
        web.parse_address(text)


def test_beyond_this_host_only_for_who_means_it() -> None:
    for text in ("0.0.0.0:9180", "192.0.2.1:9180", "[::]:9180"):
        where = web.parse_address(text)
        with raises_problem(
            where.address,
            cause=("port 9180 ", "without a key and unencrypted"),
            fix=f"medley top --web {where.address}:9180 --open",
        ):
            web.require_consent(where, opened=False)
        web.require_consent(where, opened=True)
    web.require_consent(web.parse_address("127.0.0.1:1"), opened=False)


def test_a_port_that_is_taken_is_a_problem(place: web.ListenAddress) -> None:
    with (
        raises_problem(f"127.0.0.1:{place.port}", cause="Address already in use"),
        web.serve_page(web.parse_address(f"127.0.0.1:{place.port}"), Replayed({}), 2),
    ):
        pass
