"""Every parser of what comes from elsewhere takes odd input: a result or a Problem, in time.

Those with an API, a socket or a process behind them have their own tests of the same kind beside them.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from medley import config, transcript
from medley.cluster import cluster_file, remote
from medley.cluster.discovery import sources, ssh_keys
from medley.cluster.discovery.candidates import parse_host
from medley.environment import toolkit, virtualenv
from medley.host import facts, health
from medley.host_schema import HostTable
from medley.measurement.bench import record
from medley.measurement.bench.clients import CLIENTS
from medley.measurement.bench.figures import read_result
from medley.measurement.bench.load import BenchRun
from medley.measurement.link import tools
from medley.measurement.monitor import watch
from medley.model import checkpoint
from medley.model.checkpoint import Checkpoint, parse_table
from medley.model.shape import compute_shape
from medley.model.transfer import Manifest, inventory
from medley.network import link_apply
from medley.planner import devices
from medley.schema import Model
from medley.serving import batch, metrics
from tests.model.test_shape import SMALL
from tests.odd_input import COUNTS, MEBIBYTE, hold, json_texts, texts, values
from tests.problems import raises_problem

ROOT = Path(__file__).parents[1]
SPARK = (ROOT / "tests" / "host" / "recorded" / "spark.txt").read_text(encoding="utf-8")
KEY = "10.0.0.1 ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJxd9GtO1u4zpsoGbXQQVZ5ZkB0zM9CBzVYV1w6cYVZ5"
SSH = "Host spark-* !x\n  HostName 10.0.0.1\n  User me\nMatch all\nHost b\n  Port=22\nInclude more\n"
CLUSTER = """[hosts.spark-1]
role = "head"
ssh = "me@10.0.0.1"
[hosts.spark-2]
kind = "spark"
slots = 1
"""
METRICS = """# HELP vllm:x Waiting.
# TYPE vllm:x histogram
vllm:x_bucket{le="0.1",model_name="a b"} 1.0 1395066363000
vllm:x_sum 3e5
"""
BATCH = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": "x"}}
HEADER = {"a.weight": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}, "__metadata__": {}}
MANIFEST = {
    "piece_bytes": 1024,
    "files": [["a/b", 1500, "ab" * 64], ["config.json", 2, "cd" * 32]],
    "links": [["a/l", "../config.json"]],
}
LOOK = {
    "transcript": "$ uname\\n  x",
    "processes": 1,
    "membership": {
        "role": "head",
        "head": "h:1",
        "address": "10.0.0.1",
        "interface": "e",
        "environment": "/e",
        "token": "/t",
    },
    "units": [{"name": "medley-ray", "keeper": 1, "running": True, "since_s": 1.0}],
    "boots": None,
    "user": "me",
    "free_bytes": 1,
    "state": "/s",
}
SPEED = {"host": "a", "index": 0, "name": "n", "memory_bytes": 1, "gb_s": 1.0, "few_tflops": 1.0}
SPEED |= {"tflops": 1.0, "dtype": "bf16", "threads": 1, "when": "2026", "torch": "2"}
NOTE = {"what": "w", "path": "/p", "text": "t", "old": None, "undo": [["ip", "x"]]}
FIGURES = {"mean_ttft_ms": 1.0, "output_throughput": 2.0, "num_requests": 3, "elapsed_time": 1.0}
IPERF = {"end": {"sum_received": {"bits_per_second": 1e9}, "sum_sent": {"retransmits": 1}}}
PING = (
    "3 packets transmitted, 3 received, 0% packet loss, time 2ms\nrtt min/avg/max/mdev = 0.1/0.2/0.3/0.0 ms"
)
BUILT = {"name": "cpu", "digest": "ab", "parts": {"lock": "x"}, "built": "2026"}
SAMPLE = {"at_s": 1.0, "cpu": {}, "memory": {}, "gpus": [], "links": [], "ports": [], "engines": []}
RECORD = {"format": 1, "id": "x", "load": {"concurrencies": [1]}, "done": [], "expected": {}}


def of_table(reader: Callable[[Any], object]) -> Callable[[Any], object]:
    """For one that is given the table which somebody else's JSON held."""
    return lambda value: reader(value) if isinstance(value, dict) else None


def texts_of(*samples: str) -> Callable[[int], Iterator[str]]:
    """Whole mebibytes in the slow group alone: most of the time goes into making them."""
    return lambda count: texts(samples, longest=MEBIBYTE if count > 300 else MEBIBYTE // 8)


def json_of(*samples: Any) -> Callable[[int], Iterator[str]]:
    return lambda _: json_texts(samples)


def values_of(*samples: Any) -> Callable[[int], Iterator[Any]]:
    return lambda _: values(samples)


def toml_of(*samples: str) -> Callable[[int], Iterator[str]]:
    return lambda _: texts(samples, longest=MEBIBYTE // 8)


def of_repository(folder: str) -> str:
    return next(iter(sorted((ROOT / folder).glob("*.toml")))).read_text(encoding="utf-8")


def recorded(text: str) -> None:
    answers = transcript.parse_transcript(text)
    facts.read_facts(answers)
    health.read_health(answers)


PEER = ssh_keys.SshPeer("spark", 22, Path("/known"), has_hashed_names=True, is_indirect=False)
RUN = BenchRun(concurrency=1, requests=4, input_tokens=8, output_tokens=8, seed=0, repeat=1)
READERS: dict[str, tuple[Callable[[Any], object], Callable[[int], Iterator[Any]]]] = {
    "transcripts": (recorded, texts_of(SPARK)),
    "metrics": (lambda text: metrics.parse_families(text.split("\n")), texts_of(METRICS)),
    "host keys": (
        lambda text: ssh_keys.select_key_lines(text.splitlines(), PEER),
        texts_of(KEY, f"# x\n{KEY}"),
    ),
    "what ssh means by a host": (
        lambda text: ssh_keys.parse_peer(text.splitlines(), Path("/home")),
        texts_of("hostname spark\nport 22\nuserknownhostsfile ~/x\nhashknownhosts yes\nproxyjump none"),
    ),
    "known_hosts": (
        lambda text: sources.parse_known_hosts(text, "f"),
        texts_of(f"[10.0.0.1]:2222,spark {KEY[9:]}"),
    ),
    "ssh_config": (lambda text: sources.parse_ssh_config(text, "f", lambda _: ()), texts_of(SSH)),
    "a host as typed": (parse_host, texts_of("me@spark-1:22", "10.0.0.1", "fe80::1%eth0")),
    "ping": (tools.read_ping, texts_of(PING)),
    "batch lines": (lambda text: list(batch.parse_lines(text.splitlines())), json_of(BATCH)),
    "toolkit.json": (
        lambda text: toolkit.parse_toolkit(text, "t"),
        json_of({"kind": "cpu", "uv": "/uv", "path": ["/p"]}),
    ),
    "safetensors": (lambda text: checkpoint.parse_header(text, "f"), json_of(HEADER)),
    "a checkpoint's tables": (lambda text: parse_table(text.encode("utf-8", "replace"), "f"), json_of(SMALL)),
    "iperf3": (lambda text: tools.read_throughput(text, "h"), json_of(IPERF)),
    "vLLM's figures": (
        lambda text: CLIENTS["vllm"].read_offline_figures(text, "throughput", RUN),
        json_of(FIGURES),
    ),
    "SGLang's figures": (
        lambda text: CLIENTS["sglang"].read_offline_figures(text, "throughput", RUN),
        json_of(FIGURES),
    ),
    "an engine's figures": (read_result, json_of(FIGURES)),
    "manifests": (of_table(Manifest.parse), values_of(MANIFEST)),
    "config.json": (of_table(lambda table: compute_shape(Checkpoint("x", table, {}))), values_of(SMALL)),
    "an agent's answer": (lambda value: remote.require_answer("h", "look", {}, value), values_of(LOOK)),
    "a sample of top": (of_table(lambda table: watch.read_sample("h", table)), values_of(SAMPLE)),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", READERS)
def test_odd_input(name: str, count: int) -> None:
    reader, inputs = READERS[name]
    hold(reader, inputs(count), count)


FILES: dict[str, tuple[str, Callable[[Path], object], Callable[[int], Iterator[str]]]] = {
    "cluster.toml": ("c.toml", lambda file: cluster_file.read_cluster(str(file)), toml_of(CLUSTER)),
    "a model's table": (
        "m.toml",
        lambda file: config.read_table(file, Model),
        toml_of(of_repository("models")),
    ),
    "a kind's table": (
        "h.toml",
        lambda file: config.read_table(file, HostTable),
        toml_of(of_repository("hosts")),
    ),
    "measured.json": (
        "state/measured.json",
        lambda _: devices.read_measurements(),
        json_of({"speeds": [SPEED], "wires": []}),
    ),
    "links.json": ("state/links.json", lambda _: link_apply.load_records(), json_of([NOTE])),
    "an environment's manifest": (
        "env/medley.json",
        lambda file: virtualenv.read_environment(file.parent),
        json_of(BUILT),
    ),
    "a bench's record": ("b.json", record.read, json_of(RECORD)),
    "file of batch answers": (
        "answers.jsonl",
        batch.read_complete_lines,
        json_of({"custom_id": "a", "error": {"code": "x"}}),
    ),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("name", FILES)
def test_odd_input_of_files(name: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a power cut, an editor or somebody else may leave them."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch()
    path, reader, inputs = FILES[name]
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)

    def torn(text: str) -> None:
        file.write_bytes(text.encode("utf-8", "replace"))
        reader(file)

    hold(torn, inputs(count), count)


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_hashes(count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was kept of a file's hashes: another is another file's."""
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "x"
    file.write_bytes(b"content")
    (whole,) = inventory.hash_file_pieces(file, 1024)
    (note,) = (tmp_path / "cache" / "hashes").iterdir()
    sample = json.loads(note.read_text())

    def torn(text: str) -> None:
        note.write_bytes(text.encode("utf-8", "replace"))
        assert all(isinstance(each, str) for each in inventory.hash_file_pieces(file, 1024))

    hold(torn, json_texts([sample]), count)
    assert inventory.hash_file_pieces(file, 1024, fresh=True) == (whole,)


def test_a_table_may_have_a_mark_before_it_and_other_ends_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_bytes(b"\xef\xbb\xbf" + CLUSTER.replace("\n", "\r\n").encode())
    assert set(cluster_file.read_cluster(str(file)).hosts) == {"spark-1", "spark-2"}


@pytest.mark.parametrize(
    "text", ["a = [" * 50_000, "a = " + "9" * 5000, "a.b" * 50_000, "a = 1\0", "x" * (2 << 20)], ids=range(5)
)
def test_what_no_table_holds_is_a_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.toml").write_text(text)
    with raises_problem(str(tmp_path / "c.toml")):
        cluster_file.read_cluster(str(tmp_path / "c.toml"))
