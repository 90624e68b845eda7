"""What stands before a line's own words: time, level, rank and host, in every form that programs give it."""

import pytest

from medley.explain.lines import ERROR, INFO, WARNING, parse_line

TEXT = "ValueError: no"


@pytest.mark.parametrize(
    ("prefix", "level", "when", "rank", "host"),
    [
        ("", None, None, None, None),
        ("2026-11-22T08:01:33 ", None, (11, 22, 28893.0), None, None),
        ("2026-11-22T08:01:33.250000000Z ", None, (11, 22, 28893.25), None, None),
        (
            "2026-11-22T08:01:33+01:00 ERROR 11-22 08:01:33 [core.py:1109] ",
            ERROR,
            (11, 22, 28893.0),
            None,
            None,
        ),
        ("Nov 22 08:01:33 spark-1 vllm[812]: ", None, (11, 22, 28893.0), None, None),
        (
            "(EngineCore_DP0 pid=12) ERROR 11-21 08:01:33 [core.py:1109] ",
            ERROR,
            (11, 21, 28893.0),
            None,
            None,
        ),
        (
            "(ServeReplica:default:LLM pid=41) ERROR 2026-05-13 10:00:00,500 default_LLM q7x -- ",
            ERROR,
            (5, 13, 36000.5),
            None,
            None,
        ),
        ("ERROR 04-01 02:46:00 ray_utils.py:214] ", ERROR, (4, 1, 9960.0), None, None),
        ("(Worker_TP1 pid=12) WARNING 11-21 08:01:33 [x.py:1] ", WARNING, (11, 21, 28893.0), "1", None),
        (
            "(RayWorkerWrapper pid=1, ip=10.0.0.2) INFO 11-21 08:01:33 [x.py:1] ",
            INFO,
            (11, 21, 28893.0),
            None,
            "10.0.0.2",
        ),
        ("[rank1]: ", None, None, "1", None),
        ("[rank3]:[E219 08:58:32.606 ProcessGroupNCCL.cpp:616] ", ERROR, (2, 19, 32312.606), "3", None),
        ("[rank1]:[W1122 08:01:33.5 socket.cpp:767] ", WARNING, (11, 22, 28893.5), "1", None),
        ("E1121 08:09:10.000000 331 torch/distributed/api.py:874] ", ERROR, (11, 21, 29350.0), None, None),
        (
            "[2026-11-22 08:01:33,120] [ERROR] [MainThread] [vllm.worker] >>> ",
            ERROR,
            (11, 22, 28893.12),
            None,
            None,
        ),
        ("#14 65.05 ", None, None, None, None),
        ("[2026-11-22 08:01:33 DP0 TP1] ", None, (11, 22, 28893.0), "DP0 TP1", None),
        (
            "[2026-11-22 08:01:33,120 E 812 840] file_system_monitor.cc:116: ",
            ERROR,
            (11, 22, 28893.12),
            None,
            None,
        ),
        (
            "[2026-11-22 08:01:33,120 E 812 812] (raylet) worker_pool.cc:586: ",
            ERROR,
            (11, 22, 28893.12),
            None,
            None,
        ),
        ("2026-11-22 08:01:33,120\tWARNING utils.py:1397 -- ", WARNING, (11, 22, 28893.12), None, None),
        ("spark-1:4711:4800 [0] NCCL WARN ", WARNING, None, "0", "spark-1"),
        ("[0] NCCL INFO ", INFO, None, "0", None),
        ("vllm-server  | ", None, None, None, None),
        ("ERROR:    ", ERROR, None, None, None),
        (
            "\x1b[36m(EngineCore pid=811)\x1b[0;0m ERROR 11-21 08:01:33 [x.py:1] ",
            ERROR,
            (11, 21, 28893.0),
            None,
            None,
        ),
        ("[ 8012.113221] ", None, None, None, None),
        ("#12 0.268 ", None, None, None, None),
        ("0.268 ", None, None, None, None),
        (
            "Nov 22 08:01:33 spark-1 vllm[812]: ERROR 11-21 08:01:33 [core.py:1109] ",
            ERROR,
            (11, 21, 28893.0),
            None,
            None,
        ),
        ("2026-11-22T08:01:33.250000000Z stderr F ", None, (11, 22, 28893.25), None, None),
        ("[pod/vllm-0/vllm] ", None, None, None, None),
        ("head-1  | 2026-11-22T08:01:33Z ", None, (11, 22, 28893.0), None, None),
    ],
)
def test_a_prefix(prefix: str, level: str | None, when: object, rank: str | None, host: str | None) -> None:
    found = parse_line(prefix + TEXT)
    assert (found.text, found.level, found.when, found.rank, found.host) == (TEXT, level, when, rank, host)


def test_nccl_keeps_the_place_in_its_source() -> None:
    found = parse_line("gpu-1:812:931 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 1")
    assert found.text == "transport/nvls.cc:254 Cuda failure 1"
    assert found.nccl


@pytest.mark.parametrize("prefix", ["2026-11-22T08:01:33Z ", "head-1  | ", "[pod/vllm-0/vllm] ", "[rank1]: "])
def test_what_is_set_in_stays_so(prefix: str) -> None:
    assert parse_line(f"{prefix}    raise ValueError(").text == "    raise ValueError("
