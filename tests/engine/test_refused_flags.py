"""Flags that an engine's release would refuse are named with their file, and so are flags of medley's own."""

import pytest

from medley.command import Flag
from medley.engine.accepted_flags import read_locked_flags
from medley.engine.refused_flags import require_known_flags, require_no_server_flags
from medley.errors import Problem
from tests.problems import raises_problem


def test_a_flag_of_the_table_is_refused_with_its_file() -> None:
    made = [
        Flag(("--moe-backend",), "marlyn", "of the table"),
        Flag(("--enforce-eager",), None, "of the plan"),
    ]
    with pytest.raises(Problem) as caught:
        require_known_flags(read_locked_flags("vllm"), made, ("--falg-7", "1"), table_file="models/mine.toml")
    assert caught.value.what.endswith("does not take --moe-backend marlyn, --falg-7")
    assert "--moe-backend: did you mean marlin? in models/mine.toml" in caught.value.fix


def test_of_an_unknown_engine_nothing_is_refused() -> None:
    require_known_flags(None, (), ("--anything",))


@pytest.mark.parametrize("words", [("--port", "8011"), ("--port=8011",), ("--served_model_name", "x")])
def test_where_and_as_what_it_listens_is_said_before_the_dashes(words: tuple[str, ...]) -> None:
    option = " ".join(words).replace("=", " ")
    with raises_problem(words[0].partition("=")[0], fix=f"medley serve MODEL {option}"):
        require_no_server_flags(("--max-num-seqs", "8", *words))
    require_no_server_flags(("--max-num-seqs", "8"))
    require_no_server_flags(())


@pytest.mark.parametrize(
    "words",
    [
        ("--tokenizer-worker-num", "2"),
        ("--tokenizer_worker_num=4",),
        ("--tokenizer-w", " 8"),
        ("--tokenizer-worker-num", "1", "--tokenizer-worker-num", "2"),
    ],
)
def test_more_tokenizer_processes_would_open_the_api(words: tuple[str, ...]) -> None:
    with raises_problem("--tokenizer", "without a key", cause=("TCP port", "socket", "media")):
        require_no_server_flags(("--max-num-seqs", "8", *words))
    require_no_server_flags(("--tokenizer-worker-num", "1", "--tokenizer-mode", "2"))
