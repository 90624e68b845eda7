"""The metrics for Prometheus: units, labels, families; a dashboard and a page that name no others."""

import json
import re
from pathlib import Path

import pytest

from medley.measurement import monitor
from medley.measurement.monitor.metrics import METRIC_HELP_TEXTS, format_metrics
from medley.serving.metrics import parse_families
from tests.measurement.monitor.hosts import EVIL, LOST, METRICS, build_status, cluster, spark, workstation

DASHBOARD = json.loads((Path(monitor.__file__).parent / "dashboard.json").read_text())
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


OWN_LABEL = '# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{host="its own"} 5\n'
"""An engine of another kind, with a label that is named as ours is."""
RTX = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
RANK = 'engine_type="unified",model_name="demo",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
QUOTED = EVIL.replace('"', '\\"')


def everything() -> str:
    """Return the metrics of a cluster with all kinds of series, and of engines with recorded metrics."""
    vllm, sglang = ((METRICS / f"{name}.txt").read_text() for name in ("vllm", "sglang"))
    first, second = build_status(spark()), build_status(workstation(EVIL))
    assert first.sample
    assert second.sample
    engine = first.sample.engines[0].replace(said=vllm)
    second_engine = second.sample.engines[0].replace(said=f"{sglang}{OWN_LABEL}")
    return format_metrics(
        {
            **cluster(),
            "spark-1": first.replace(sample=first.sample.replace(engines=(engine,))),
            "workstation": second.replace(sample=second.sample.replace(engines=(second_engine,))),
        }
    )


def samples(text: str) -> list[tuple[str, dict[str, str], float]]:
    return [
        (sample.name, sample.labels, sample.value)
        for family in parse_families(text.split("\n"))
        for sample in family.samples
    ]


def test_it_reads_as_it_was_written_and_no_family_comes_twice() -> None:
    text = everything()
    read_families = parse_families(text.split("\n"))
    assert {family.name for family in read_families} > {
        name.removesuffix("_total") for name in METRIC_HELP_TEXTS
    }
    assert sum(len(family.samples) for family in read_families) == len(
        re.findall(r"^[^#]", text, re.MULTILINE)
    )
    declared = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    assert len(declared) == len(set(declared))
    keys = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    "line",
    [
        'medley_host_up{host="spark-1"} 1',
        'medley_host_up{host="spark-2"} 0',
        'medley_host_up{host="thor-1"} 0',
        'medley_memory_unified{host="spark-1"} 1',
        f'medley_gpu_memory_used_bytes{{host="workstation",gpu="1",name="{RTX}"}} 85899345920',
        'medley_gpu_clock_hertz{host="spark-1",gpu="0",name="NVIDIA GB10"} 2405000000',
        'medley_gpu_held_back{host="spark-1",gpu="0",name="NVIDIA GB10",reason="power cap"} 1',
        'medley_link_receive_bytes_total{host="spark-1",link="enp1s0f0np0"} 2000000000',
        'medley_link_speed_bytes_per_second{host="spark-1",link="enp1s0f0np0"} 25000000000',
        'medley_rdma_errors_total{host="spark-1",port="rocep1s0f0/1",counter="symbol_error",sign="cable"} 7',
        'medley_ray_up{host="spark-1",role="head"} 1',
        f'medley_engine_up{{host="workstation",model="{QUOTED}",server="8000"}} 0',
        'medley_engine_kv_cache_used_ratio{host="spark-1",model="gpt-oss-120b",server="8000"} 0.45',
        'vllm:generation_tokens_total{host="spark-1",server="8000",engine="0",model_name="demo"} 28',
        'vllm:num_requests_running{host="workstation",server="8000",exported_host="its own"} 5',
        f'sglang:token_usage{{host="workstation",server="8000",{RANK}}} 0',
    ],
)
def test_a_sample(line: str) -> None:
    assert samples(line)[0] in samples(everything())


def test_of_a_host_that_does_not_answer_there_are_no_old_figures() -> None:
    assert (
        format_metrics({"a": build_status(spark()).replace(problem=LOST)}).splitlines()[-1]
        == 'medley_host_up{host="a"} 0.0'
    )


def test_names_and_units() -> None:
    text = everything()
    for name, help_ in METRIC_HELP_TEXTS.items():
        assert re.fullmatch(r"medley_[a-z0-9]+(_[a-z0-9]+)*", name)
        assert f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n" in text
        assert help_.endswith(".")
        assert not re.search(r"_(mib|gib|kb|mb|ms|percent|mhz|mbit)(_|$)", name)


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_the_dashboard_names_series_that_exist(expression: str) -> None:
    names = {sample.name for family in parse_families(everything().split("\n")) for sample in family.samples}
    dashboard_names = set(re.findall(r"\b(?:medley_|vllm:|sglang:)[a-z0-9_]+", expression))
    assert dashboard_names
    assert dashboard_names <= names


def test_the_dashboard_shows_every_host_and_its_panels_do_not_overlap() -> None:
    used_cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not used_cells & cells
        assert place["x"] + place["w"] <= 24
        used_cells |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert [variable["name"] for variable in DASHBOARD["templating"]["list"]] == ["datasource", "host"]
