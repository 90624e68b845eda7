"""A row's words become hardware, model and load; what it does not say is named; the rest is left out."""

from pathlib import Path

import pytest

from benchmarks import hardware, published
from benchmarks.published import DECODE, PREFILL, TTFT, Case, Left
from medley import config

COLUMNS = "hw,nodes,link,engine,model,params_total_b,params_active_b,quant,tp,pp,concurrency"
WHOLE = "DGX Spark GB10,1,none,vllm,Llama-3.1-8B,8.03,8.03,fp8,1,1,1,decode,24,tok/s,someone"


def read(tmp_path: Path, line: str) -> Case | Left:
    file = tmp_path / "rows.csv"
    file.write_text(f"{COLUMNS},metric,value,unit,source\n{line}\n")
    return published.read(file)[0]


def case(tmp_path: Path, old: str = "", new: str = "") -> Case:
    found = read(tmp_path, WHOLE.replace(old, new, 1))
    assert isinstance(found, Case)
    return found


@pytest.mark.parametrize(
    ("old", "new", "unknown"),
    [
        pytest.param("", "", (), id="all-said"),
        pytest.param("fp8", "(see source)", ("quantisation",), id="quantisation"),
        pytest.param("none", "200GbE bond; transport not said", ("transport",), id="transport"),
        pytest.param("1,1,1,decode", "1,1,high,decode", ("concurrency",), id="concurrency"),
        pytest.param("Llama-3.1-8B,8.03,8.03", "Mystery,,", ("parameters",), id="parameters"),
        pytest.param("8.03,8.03", "8.03,", (), id="known-without-active"),
        pytest.param("DGX Spark GB10", "Abacus 3", ("hardware",), id="hardware"),
        pytest.param("DGX Spark GB10", "CPU x86_64-linux", ("hardware",), id="cpu"),
        pytest.param("DGX Spark GB10", "RTX 4090 24GB", (), id="gpu-without-a-kind"),
    ],
)
def test_unknown(tmp_path: Path, old: str, new: str, unknown: tuple[str, ...]) -> None:
    assert case(tmp_path, old, new).unknown == unknown


def test_a_model_with_a_table_has_its_shape(tmp_path: Path) -> None:
    found = case(tmp_path, "Llama-3.1-8B,8.03,8.03", "qwen3.8-flash-next-fp8,,")
    assert found.scored
    assert found.shape == config.load_models()["qwen3.8-flash-next-fp8"].shape


@pytest.mark.parametrize(
    ("old", "new", "because"),
    [
        pytest.param("vllm", "vllm MTP-4", "speculative", id="speculative"),
        pytest.param("decode", "rdma_bw", "wire", id="wire"),
        pytest.param(",24,", ",,", "no value", id="no-value"),
    ],
)
def test_left_out(tmp_path: Path, old: str, new: str, because: str) -> None:
    found = read(tmp_path, WHOLE.replace(old, new, 1))
    assert isinstance(found, Left)
    assert because in found.because


@pytest.mark.parametrize(
    ("metric", "engine", "source", "what", "tokens"),
    [
        ("decode(tg32@d32768)", "llama.cpp", "", DECODE, (1, 32, 32785, 32768)),
        ("decode_agg(ctx4096)", "llama.cpp", "", DECODE, (4096, 128, 4160, 0)),
        ("decode(64k)", "ds4", "", DECODE, (65536, 128, 65600, 0)),
        ("prefill(pp2048@d32768)", "llama.cpp", "", PREFILL, (2048, 128, 34880, 32768)),
        ("output_throughput", "vllm", "in512 out2000", DECODE, (512, 2000, 1512, 0)),
        ("output_throughput", "vllm", "ISL2048/OSL128", DECODE, (2048, 128, 2112, 0)),
        ("mean_ttft", "vllm", "", TTFT, (512, 128, 576, 0)),
        ("mean_tpot", "vllm", "", DECODE, (512, 128, 576, 0)),
    ],
    ids=str,
)
def test_tokens(
    tmp_path: Path, *, metric: str, engine: str, source: str, what: str, tokens: tuple[int, ...]
) -> None:
    line = WHOLE.replace("decode", metric).replace("vllm", engine).replace("someone", source)
    found = read(tmp_path, line)
    assert isinstance(found, Case)
    assert found.what == what
    assert published.tokens(found.row) == tokens


@pytest.mark.parametrize(
    ("words", "mbit", "rdma"),
    [
        ("10GbE TCP", 10_000, False),
        ("200GbE RoCE direct, one twin", 200_000, True),
        ("CX7 RoCE", 200_000, True),
        ("25GbE RoCEv2", 25_000, True),
        ("100GbE TCP", 100_000, False),
        ("", 10_000, False),
    ],
    ids=str,
)
def test_link(words: str, mbit: int, *, rdma: bool) -> None:
    found = hardware.link(words)
    assert (found.mbit, found.rdma) == (mbit, rdma)


def test_hosts_are_named_apart(tmp_path: Path) -> None:
    mixed = case(tmp_path, "DGX Spark GB10,1,none", "DGX Spark GB10 + RTX PRO 6000,2,100GbE RoCE").layout
    # No tp and no pp over both: two copies.
    assert [stages[0].devices[0].kind for stages in (mixed.stages, *mixed.other_pipelines)] == [
        "spark",
        "rtx",
    ]
    twice = case(tmp_path, "fp8,1,1", "fp8,2,1").layout
    assert [(device.host, device.index) for device in twice.stages[0].devices] == [
        ("host-1", 0),
        ("host-1", 1),
    ]
