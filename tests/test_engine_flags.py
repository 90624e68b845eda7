import pytest

from medley.engine.flags import known, unknown

# Lines of `vllm serve --help=all` as vLLM 0.32.0 prints them.
HELP = """usage: vllm serve [model_tag] [options]

  Use `--help=all` to show all available flags at once.

options:
  --enable-log-requests, --no-enable-log-requests
                        Enable logging request information, dependent on --log-level:
  -h, --help            show this help message and exit

ModelConfig:
  --kv-cache-dtype {auto,bfloat16,fp8}
  --max-model-len MAX_MODEL_LEN
  --max-num-batched-tokens MAX_NUM_BATCHED_TOKENS
  --max-num-seqs MAX_NUM_SEQS
  --pipeline-parallel-size PIPELINE_PARALLEL_SIZE, -pp PIPELINE_PARALLEL_SIZE
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
  --compilation-config COMPILATION_CONFIG, -cc COMPILATION_CONFIG
"""
NAMES = known(HELP)


def test_names_are_all_that_the_help_lists_and_nothing_that_it_mentions() -> None:
    assert len(NAMES) == 14
    assert {"-h", "--help", "-tp", "--no-enable-log-requests", "--max-num-seqs"} <= set(NAMES)
    assert "--log-level" not in NAMES


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--max-model-len", "99"), id="as it is listed"),
        pytest.param(("--max_model_len=99",), id="with underscores and ="),
        pytest.param(("--max-model", "99"), id="the beginning of one name"),
        pytest.param(("-tp", "2", "-pp=2"), id="short"),
        pytest.param(("-cc.mode=2", "--compilation-config.backend", "eager"), id="keys of a table"),
        pytest.param(("-O3", "-O", "2"), id="levels of optimisation"),
        pytest.param(("--max-num-seqs", "-1"), id="a negative number is a value"),
        pytest.param(("positional",), id="no flag"),
    ],
)
def test_what_the_engine_takes(words: tuple[str, ...]) -> None:
    assert list(unknown(words, NAMES)) == []


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        pytest.param("--kv-cache-dtpye", "--kv-cache-dtype is the nearest", id="two letters"),
        pytest.param("--tensor-paralel-size=2", "--tensor-parallel-size is the nearest", id="with a value"),
        pytest.param("--swap-space", "keeps no swap space any more", id="gone, as guides have it"),
        pytest.param("--swap_space=0", "keeps no swap space any more", id="gone, with an underscore"),
        pytest.param("--max-num", "--max-num-batched-tokens or --max-num-seqs", id="of two names"),
        pytest.param("--xyzzy", "leave it out", id="nothing like it"),
        pytest.param("-z", "leave it out", id="a short one"),
    ],
)
def test_what_it_would_refuse(word: str, advice: str) -> None:
    (found,) = unknown((word,), NAMES)
    assert found.word == word
    assert advice in found.advice
