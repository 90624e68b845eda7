"""What `medley top --web` answers, to whom, and where it may listen."""

import http.client
import json
from collections.abc import Iterator

import pytest

from medley.monitor import exposition, web
from medley.problem import Problem
from tests.monitored import EVIL, Replayed, cluster


@pytest.fixture(scope="module")
def place() -> Iterator[web.Place]:
    with web.served(web.place(None), Replayed(cluster()), 2) as found:
        yield found


def got(place: web.Place, path: str, host: str = "127.0.0.1") -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(place.address, place.port, timeout=5)
    connection.request("GET", path, headers={"Host": host})
    answer = connection.getresponse()
    return answer.status, dict(answer.getheaders()), answer.read()


def test_the_page_fetches_nothing_and_may_run_nothing_but_its_own(place: web.Place) -> None:
    status, headers, body = got(place, "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "connect-src 'self'" in policy
    assert "unsafe" not in policy
    text = body.decode()
    assert "innerHTML" not in text
    assert "http:" not in text
    assert "https:" not in text


def test_what_the_page_polls(place: web.Place) -> None:
    told = json.loads(got(place, "/view.json")[2])
    assert told["title"] == "medley top: 4 hosts, 2 of them without an answer; every 2 s"
    assert [table["name"] for table in told["tables"]][:2] == ["hosts", "engines"]
    assert {cell["text"] for cell in told["tables"][1]["rows"][1]} >= {EVIL}


def test_the_same_as_json_and_metrics(place: web.Place) -> None:
    hosts = json.loads(got(place, "/json")[2])["hosts"]
    assert hosts["spark-2"]["problem"]["what"] == "spark-2 does not answer"
    status, headers, body = got(place, "/metrics")
    assert (status, headers["Content-Type"]) == (200, exposition.TYPE)
    assert 'medley_host_up{host="thor-1"} 0' in body.decode()


@pytest.mark.parametrize(
    ("path", "host", "expected"),
    [
        pytest.param("/view.json?now", "localhost:9180", 200, id="by name"),
        pytest.param("/", "[::1]:80", 200, id="by another loopback"),
        pytest.param("/json", "evil.example", 421, id="a name that was made to lead here"),
        pytest.param("/json", "evil.example:9180", 421, id="with its port"),
        pytest.param("/../../etc/passwd", "127.0.0.1", 404, id="a file"),
        pytest.param("/nothing", "127.0.0.1", 404, id="nothing"),
    ],
)
def test_who_is_answered(place: web.Place, path: str, host: str, expected: int) -> None:
    status, _, body = got(place, path, host)
    assert status == expected
    assert b"root:" not in body


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, web.Place("127.0.0.1", 0)),
        ("127.0.0.1:9180", web.Place("127.0.0.1", 9180)),
        (":9180", web.Place("127.0.0.1", 9180)),
        ("[::1]:9180", web.Place("::1", 9180)),
        ("0.0.0.0:0", web.Place("0.0.0.0", 0)),
    ],
)
def test_a_place(text: str | None, expected: web.Place) -> None:
    assert web.place(text) == expected


@pytest.mark.parametrize(
    "text", ["9180", "localhost", "127.0.0.1:", "127.0.0.1:99999", "a b:1", "<script>:1", "1.2.3:80"]
)
def test_no_place(text: str) -> None:
    with pytest.raises(Problem, match="is no place to listen at"):
        web.place(text)


def test_beyond_this_host_only_for_who_means_it() -> None:
    for text in ("0.0.0.0:9180", "192.0.2.1:9180", "[::]:9180"):
        where = web.place(text)
        with pytest.raises(Problem, match="others would reach") as told:
            web.require_meant(where, opened=False)
        assert "without a key and unencrypted" in told.value.cause
        assert "--open" in told.value.fix
        web.require_meant(where, opened=True)
    web.require_meant(web.place("127.0.0.1:1"), opened=False)


def test_a_port_that_is_taken_is_a_problem(place: web.Place) -> None:
    with (
        pytest.raises(Problem, match="cannot be listened at"),
        web.served(web.place(f"127.0.0.1:{place.port}"), Replayed({}), 2),
    ):
        pass
