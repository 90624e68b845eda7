"""The alert rules: each parses, names series and labels that exist, and fires on its fault only."""

import json
import re
from pathlib import Path
from shutil import which
from typing import Any

import pytest
import yaml

from medley import process
from medley.command import Command
from medley.measurement import monitor
from medley.measurement.monitor.metrics import METRIC_HELP_TEXTS
from tests.measurement.monitor.test_metrics import everything, samples

FILE = Path(monitor.__file__).parent / "alerts.yml"
RULES: list[dict[str, Any]] = yaml.safe_load(FILE.read_text())["groups"][0]["rules"]
NAMES = [each["alert"] for each in RULES]
TOKEN = re.compile(
    r"(?P<range>\[\d+[smh]\])|(?P<number>\d+(?:\.\d+)?)|(?P<labels>\{[^}]*\})|(?P<name>[a-z_][a-z0-9_]*)"
    r"|(?P<sign>==|!=|<=|>=|[-+*/<>()])|\s+"
)
COUNTED = {"increase", "rate"}
FUNCTIONS = {*COUNTED, "max_over_time", "delta", "absent"}
LABEL = re.compile(r'(\w+)(=~|=)"([^"]*)"')


class Expression:
    """An expression of the small part of PromQL that the rules use; a ValueError where it is not one."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        self.series: list[tuple[str, str, str]] = []
        """Name, labels, and the function of the range."""
        position = 0
        while position < len(text):
            match = TOKEN.match(text, position)
            if match is None:
                raise ValueError(text[position:])
            if match.lastgroup:
                self.tokens.append((match.lastgroup, match[0]))
            position = match.end()
        self.read_operands()
        if self.tokens:
            raise ValueError(self.tokens)

    def take_token(self, *expected: str) -> str:
        if not self.tokens or self.tokens[0][1] not in expected:
            raise ValueError((expected, self.tokens[:3]))
        return self.tokens.pop(0)[1]

    def is_next(self, kind: str) -> bool:
        return bool(self.tokens) and self.tokens[0][0] == kind

    def read_operands(self) -> None:
        self.read_operand()
        while self.tokens and self.tokens[0][1] in {"and", "or", "==", "!=", "<", ">", "<=", ">=", *"+-*/"}:
            self.tokens.pop(0)
            self.read_operand()

    def read_operand(self) -> None:
        if not self.tokens:
            raise ValueError("it ends too early")
        kind, text = self.tokens.pop(0)
        if text == "(":
            self.read_operands()
            self.take_token(")")
        elif kind == "name" and text in FUNCTIONS:
            self.take_token("(")
            self.read_series(text)
            self.take_token(")")
        elif kind == "name":
            self.tokens.insert(0, (kind, text))
            self.read_series("")
        elif kind != "number":
            raise ValueError(text)

    def read_series(self, function: str) -> None:
        if not self.is_next("name"):
            raise ValueError(self.tokens[:3])
        name = self.tokens.pop(0)[1]
        labels = self.tokens.pop(0)[1] if self.is_next("labels") else ""
        if self.is_next("range") is not (function not in {"", "absent"}):
            raise ValueError((function, name))
        if function not in {"", "absent"}:
            self.tokens.pop(0)
        self.series.append((name, labels, function))


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_names_series_and_labels_that_exist(rule: dict[str, Any]) -> None:
    all_samples = samples(everything())
    rule_series = Expression(rule["expr"]).series
    assert rule_series
    for name, labels, function in rule_series:
        assert name in METRIC_HELP_TEXTS
        assert name.endswith("_total") is (function in COUNTED)
        label_sets = [labels for series, labels, _ in all_samples if series == name]
        for label, sign, value in LABEL.findall(labels):
            values = {labels[label] for labels in label_sets}
            assert [
                labels
                for labels in values
                if (re.fullmatch(value, labels) if sign == "=~" else value == labels)
            ]
    names = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    rule_labels = [set(labels) for series, labels, _ in all_samples if series == rule_series[0][0]]
    assert all(names <= labels for labels in rule_labels)
    assert rule["labels"]["severity"] in {"critical", "warning"}


@pytest.mark.parametrize(
    "wrong", ["medley_host_up ==", "rate(medley_host_up)", "medley_host_up[5m] > 1", "(a > 1", "a ; b", "a b"]
)
def test_what_is_no_expression_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Expression(wrong)


HOST = {"host": "spark-1"}
GPU, LINK, PORT = HOST | {"gpu": "0"}, HOST | {"link": "cx7"}, HOST | {"port": "rocep1s0f0/1"}
ENGINE = HOST | {"model": "demo", "server": "8000"}
# Values a minute apart: what is well, and what is not, `_xN` as promtool repeats.
CASES: dict[str, list[tuple[str, dict[str, str], str, str]]] = {
    "MedleyHostDown": [("medley_host_up", HOST, "1x90", "1x60 0x30")],
    "MedleyFault": [("medley_events_total", HOST | {"kind": "fault"}, "3x90", "3x85 4x5")],
    "MedleyRestarts": [("medley_events_total", HOST | {"kind": "restart"}, "3x90", "0x60 0+1x30")],
    "MedleyEngineDown": [("medley_engine_up", ENGINE, "0x20 1x70", "1x60 0x30")],
    "MedleyNoTokens": [
        ("medley_engine_requests_waiting", ENGINE, "2x90", "2x90"),
        ("medley_engine_requests_running", ENGINE, "1x90", "0x90"),
        ("medley_engine_generated_tokens_total", ENGINE, "0x90", "900x90"),
        ("medley_engine_prompt_tokens_total", ENGINE, "0+50x90", "100x90"),
    ],
    "MedleyKvCacheFull": [
        ("medley_engine_kv_cache_used_ratio", ENGINE, "0.99x90", "0.99x90"),
        ("medley_engine_requests_waiting", ENGINE, "0x90", "4x90"),
    ],
    "MedleyMemoryLow": [
        ("medley_memory_available_bytes", HOST, "8e9x90", "2e9x90"),
        ("medley_memory_total_bytes", HOST, "128e9x90", "128e9x90"),
    ],
    "MedleySwapFilling": [
        ("medley_swap_free_bytes", HOST, "0x90", "16e9-1e8x90"),
        ("medley_swap_total_bytes", HOST, "0x90", "16e9x90"),
    ],
    "MedleyGpuHeldBack": [
        ("medley_gpu_held_back", GPU | {"reason": "heat (hardware)"}, "0x90", "0x60 1x30"),
        ("medley_gpu_held_back", GPU | {"reason": "power cap"}, "1x90", "1x90"),
    ],
    "MedleyGpuHot": [("medley_gpu_temperature_celsius", GPU, "88x90", "95x90")],
    "MedleyLinkDown": [("medley_link_up", LINK, "0x90", "1x60 0x30")],
    "MedleyLinkErrors": [
        ("medley_link_receive_errors_total", LINK, "7x90", "0+5x90"),
        ("medley_link_transmit_errors_total", LINK, "7x90", "7x90"),
    ],
    "MedleyRdmaDown": [("medley_rdma_up", PORT, "0x90", "1x60 0x30")],
    "MedleyRdmaErrors": [
        ("medley_rdma_errors_total", PORT | {"counter": "symbol_error", "sign": "cable"}, "7x90", "0+5x90"),
        (
            "medley_rdma_errors_total",
            PORT | {"counter": "np_cnp_sent", "sign": "congestion"},
            "0+9x90",
            "0x90",
        ),
    ],
    "MedleyRayDown": [("medley_ray_up", HOST | {"role": "worker"}, "1x90", "1x60 0x30")],
}


def test_every_rule_has_a_case() -> None:
    assert {*CASES, "MedleyMonitorDown"} == set(NAMES)


@pytest.mark.slow
@pytest.mark.skipif(which("promtool") is None, reason="needs Debian's prometheus")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ill", [False, True], ids=["well", "ill"])
def test_promtool_fires_each_rule_on_its_fault_alone(name: str, ill: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a case
    series = [(f"{metric}{_labels(labels)}", values[ill]) for metric, labels, *values in CASES[name]]
    up = [] if name == "MedleyHostDown" else [(f"medley_host_up{_labels(HOST)}", "1x90")]
    rule = RULES[NAMES.index(name)]
    assert fired(tmp_path, [*series, *up]) == ({name} if ill else set()), rule["expr"]


@pytest.mark.slow
@pytest.mark.skipif(which("promtool") is None, reason="needs Debian's prometheus")
def test_promtool_fires_where_nothing_is_monitored(tmp_path: Path) -> None:
    assert fired(tmp_path, [("other", "1x90")]) == {"MedleyMonitorDown"}


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def fired(folder: Path, series: list[tuple[str, str]]) -> set[str]:
    """The alerts that fire after 90 minutes of these series, as promtool says where none is expected."""
    tests = {
        "rule_files": [str(FILE)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": each, "values": values} for each, values in series],
                "alert_rule_test": [{"eval_time": "88m", "alertname": name} for name in NAMES],
            }
        ],
    }
    (folder / "tests.yml").write_text(json.dumps(tests))
    done = process.run(Command(("promtool", "test", "rules", str(folder / "tests.yml"))), limit_s=60)
    text = "\n".join(done.lines)
    assert "parsing" not in text, text
    assert done.status == 0 or "alertname" in text, text
    return set(re.findall(r"alertname: ?(\w+)", text))
