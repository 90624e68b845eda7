"""What came first among lines, ranks and hosts; what is mended, echoed, or only follows."""

import pytest

from tests.explain.test_explain import example, names, of

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of"
TAKEN = (
    "ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): address already in use"
)
LOST = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:12345."
READY = "(APIServer pid=1) INFO:     Application startup complete."
DEAD = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above."


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([f"{OOM}\n{DEAD}\n"], ["cuda-out-of-memory"], id="a cause before what follows"),
        pytest.param([f"{DEAD}\n{OOM}\n"], ["cuda-out-of-memory"], id="also where it is printed later"),
        pytest.param([f"{DEAD}\n{LOST}\n"], ["gloo-lost"], id="what tells more where there is no cause"),
        pytest.param([f"{LOST}\n", f"{OOM}\n"], ["cuda-out-of-memory"], id="the cause in another rank's log"),
        pytest.param([f"{OOM}\n{READY}\n"], [], id="ready after all"),
        pytest.param([f"{READY}\n{OOM}\n"], ["cuda-out-of-memory"], id="it served, then failed"),
        pytest.param([f"{READY}\nINFO:     Shutting down\n{LOST}\n{DEAD}\n"], [], id="it was told to end"),
        pytest.param(
            [
                (
                    f"2026-11-22T08:00:00 medley keeps x: y\n2026-11-22T08:00:01 {OOM}\n"
                    f"2026-11-22T08:00:02 medley keeps x: y\n2026-11-22T08:00:03 {TAKEN}\n"
                )
            ],
            ["port-taken"],
            id="the last try of a unit",
        ),
        pytest.param([f"INFO 11-21 08:00:00 [x.py:1] {OOM}\n"], [], id="an information"),
        pytest.param(
            [f"INFO 11-21 08:00:00 [x.py:1] non-default args: {{'x': '{OOM}'}}\n{READY}\n"],
            [],
            id="its settings",
        ),
        pytest.param([f"prompt: '{OOM}'\n"], [], id="somebody's question"),
        pytest.param([f'{{"role": "user", "content": "{OOM}"}}\n'], [], id="a request"),
        pytest.param([f"    raise ValueError({OOM!r})\n"], [], id="a program's own text"),
        pytest.param([f"+ echo {OOM}\n"], [], id="a shell's"),
        pytest.param(
            ["mlx5_core 0000:01:00.0 eth0: Link down\nmlx5_core 0000:01:00.0 eth0: Link up\n"], [], id="link"
        ),
        pytest.param(
            [
                (
                    "2026-11-22 08:00:00,1 WARNING utils.py:1 -- Unable to connect to GCS at 10.0.0.1:6379.\n"
                    "Ray runtime started.\n"
                )
            ],
            [],
            id="Ray came up",
        ),
        pytest.param(
            ["progress 10%\rprogress 20%\r" + OOM + "\n"], ["cuda-out-of-memory"], id="a line drawn anew"
        ),
        pytest.param([OOM], ["cuda-out-of-memory"], id="no end of line"),
        pytest.param([""], [], id="empty"),
        pytest.param(["\0\xff\n" + OOM], ["cuda-out-of-memory"], id="bytes that are no text"),
    ],
)
def test_which_is_named(texts: list[str], expected: list[str]) -> None:
    assert names(of(*texts)) == expected


def test_the_first_by_time_among_hosts() -> None:
    found = of(
        f"ERROR 11-21 08:00:09 [x.py:1] {OOM}\n",
        f"(RayWorkerWrapper pid=1, ip=10.0.0.2) ERROR 11-21 08:00:05 [x.py:1] {TAKEN}\n",
        f"(RayWorkerWrapper pid=1, ip=10.0.0.3) ERROR 11-21 08:00:07 [x.py:1] {TAKEN}\n",
    )
    assert names(found) == ["port-taken", "cuda-out-of-memory"]
    first, then = (each.table for each in found.problems)
    assert (first["host"], first["also"]) == ("10.0.0.2", ["log-2, host 10.0.0.3"])
    assert "follows" not in first
    assert then["follows"]


def test_the_first_by_time_in_one_log_of_two_pasted_ones() -> None:
    """A reader pastes the log of the process that failed first below the other, as of one clock."""
    oom = f"ERROR 11-21 {{}} [x.py:1] {OOM}\n"
    taken = f"ERROR 11-21 08:00:09 [x.py:1] {TAKEN}\n"
    assert names(of(taken + oom.format("08:00:05"))) == ["cuda-out-of-memory"]
    # An hour apart is another time zone, and in one second the order of the lines counts.
    assert names(of(taken + oom.format("07:00:05"))) == ["port-taken"]
    assert names(of(taken + oom.format("08:00:09"))) == ["port-taken"]


def test_a_head_that_answers_is_not_unreachable() -> None:
    gone = "2026-11-22 08:00:00,1 WARNING x.py:1 -- Failed to connect to GCS at address 10.0.0.1:6379\n"
    answer = "2026-11-22 08:00:09,1 INFO node.py:375 -- Failed to get node info b'GCS cannot find the node'\n"
    assert names(of(gone)) == ["ray-unreachable"]
    assert "ray-unreachable" not in names(of(gone + answer))


def test_a_certain_line_with_several_causes_is_shown_as_likely() -> None:
    (found,) = of(f"{TAKEN}\n").problems
    assert found.match.failure.confidence == "high"
    assert found.confidence == "medium"


def test_without_times_in_the_order_given() -> None:
    assert names(of(f"{TAKEN}\n", f"{OOM}\n")) == ["port-taken", "cuda-out-of-memory"]


def test_another_host_became_ready_after_it() -> None:
    worker = f"2026-11-22T08:00:00 {OOM}\n"
    head = "2026-11-22T08:0{}:00 INFO:     Application startup complete.\n"
    assert names(of(worker, head.format(1))) == []
    assert names(of(worker.replace("08:00:00", "08:02:00"), head.format(1))) == ["cuda-out-of-memory"]


def test_of_one_log_one_failure() -> None:
    assert names(of(f"{OOM}\n{TAKEN}\n{DEAD}\n")) == ["cuda-out-of-memory"]


def test_the_one_by_which_it_ended() -> None:
    """What was said long before was overcome."""
    between = "INFO 11-21 08:00:00 [x.py:1] loading\n" * 700
    assert names(of(f"{TAKEN}\n{between}{OOM}\n{DEAD}\n")) == ["cuda-out-of-memory"]


@pytest.mark.parametrize("fill", [100, (1 << 20) - 150, (1 << 20) - 20, (1 << 20) + 10, 3 << 20])
def test_wherever_it_stands(fill: int) -> None:
    """Also where a block ends in it, and the lines that belong to it are in the next."""
    from medley.explain.diagnosis import explain_logs
    from medley.explain.lines import BLOCK_BYTES
    from medley.explain.scanned_log import Log

    versions = (
        "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.52.0\n    Python: 3.12.3\n"
        "This process on node 10.0.0.2 was started with:\n    Ray: 2.54.0\n    Python: 3.12.3\n"
    )
    data = (b"x" * 99 + b"\n") * (fill // 100) + b"y" * (fill % 100) + b"\n" + versions.encode()
    blocks = (data[at : at + BLOCK_BYTES] for at in range(0, len(data), BLOCK_BYTES))
    (found,) = explain_logs([Log("log", blocks)]).problems
    assert "Ray 2.52.0 and Python 3.12.3, this host Ray 2.54.0" in found.problem().cause
    assert found.match.number == fill // 100 + 2


def test_many_of_one_kind_cost_little() -> None:
    found = of("".join(f"ERROR 11-21 08:00:{at % 60:02} [x.py:1] {OOM}\n" for at in range(20_000)))
    assert names(found) == ["cuda-out-of-memory"]
    assert found.problems[0].match.number == 1


def test_a_line_that_reports_no_error_gives_way_to_one_that_does() -> None:
    worked = "gpu-1:211:310 [0] NCCL INFO Connected all rings, use ring PXN 0 GDR 1\n"
    ended = "gpu-1:211:310 [0] NCCL INFO transport/generic.cc:19 -> 2\n"
    found = of(f"{worked}{example('shared-memory-full')}{ended}").problems[0]
    assert found.match.failure.name == "shared-memory-full"
    unknown = (
        f'{worked}Traceback (most recent call last):\n  File "/v/vllm/x.py", line 1, in f\nValueError: blue\n'
    )
    assert of(unknown).problems[0].match.failure.name == "unknown-error"


def test_a_line_of_source_code_has_no_values_yet() -> None:
    sentence = "GGUF model with architecture {} is not supported yet."
    code = f'    raise ValueError(f"{sentence.format("{architecture}")}")'
    raised = f"{code}\nValueError: {sentence.format('blue3')}\n"
    (found,) = of(f'Traceback (most recent call last):\n  File "/v/x.py", line 1, in f\n{raised}').problems
    assert "blue3" in found.problem().cause


def test_lines_that_belong_to_it_among_those_of_another_rank() -> None:
    text = example("flag-range")
    other = "(Worker_TP1 pid=7) INFO 11-22 08:00:00 [x.py:1] busy\n"
    (found,) = of("".join(f"[rank0]: {each}\n{other}" for each in text.splitlines())).problems
    assert found.match.failure.name == "flag-range"
    assert found.match.number == 5


VLLM = "(APIServer pid=3) INFO 11-21 08:00:01 [utils.py:2] non-default args: {{'model_tag': 'm/x'{}}}\n"
RAISED = """(APIServer pid=3) Traceback (most recent call last):
(APIServer pid=3)   File "/v/lib/python3.12/site-packages/vllm/config/vllm.py", line 9, in __post_init__
(APIServer pid=3)     raise ValueError(
(APIServer pid=3) ValueError: {}
"""


@pytest.mark.parametrize(
    ("sentence", "name"),
    [
        ("--enable-foo is incompatible with pipeline parallelism (PP > 1).", "wording-settings-exclude"),
        ("--enable-foo is not supported for this model", "wording-model"),
        ("Foo is only supported on NVIDIA CUDA platforms.", "wording-gpu"),
        ("Foo requires prefix caching.", "wording-needs"),
        ("foo_size (3) must be divisible by bar_size (2)", "wording-indivisible"),
        ("Unknown foo algorithm: 'x1'. Valid options are: x2, x3", "wording-choice"),
        ("foo_len=9 cannot be larger than bar_len=8", "wording-range"),
        ("Foo backend 'X' has been removed. Please select another.", "wording-removed"),
        ("The fuzzy size went away", "unknown-error"),
        ("unsupported operand type(s) for |: 'dict' and 'NoneType'", "unknown-error"),
    ],
)
def test_a_sentence_of_the_engine_is_said_in_plain_words(sentence: str, name: str) -> None:
    """Alone, and as pydantic reports it for a configuration."""
    (found,) = of(RAISED.format(sentence)).problems
    assert (found.match.failure.name, found.confidence) == (
        name,
        "low" if name == "unknown-error" else "medium",
    )
    assert sentence.rstrip(".") in found.problem().cause
    if name != "unknown-error":
        pydantic = f"ValidationError: 1 validation error for VllmConfig\n  Value error, {sentence} [type=x]\n"
        assert names(of(pydantic)) == [name]


def test_a_refused_setting_is_named_as_the_log_sets_it() -> None:
    log = VLLM.format(", 'pipeline_parallel_size': 2, 'enable_foo': True, 'seed': 7")
    (found,) = of(log + RAISED.format("enable_foo is incompatible with pipeline parallelism")).problems
    problem = found.problem()
    flags = "--enable-foo and --pipeline-parallel-size 2"
    assert f"the log sets {flags}" in problem.cause
    assert f"leave one of the two out, the optional one first: {flags}; start it without" in problem.fix
    assert "seed" not in f"{problem.cause}{problem.fix}"


def test_a_known_failure_precedes_the_form_of_its_sentence() -> None:
    assert names(of(RAISED.format("LoRA rank 32 is greater than max_lora_rank 16."))) == ["lora-rank"]


@pytest.mark.parametrize(
    "last",
    [
        "ERRO[0000] the frob was odd",
        "FATA[0001] no frob",
        "Pipeline <- 10.0.0.2 FAILED rc=3 (10.0s)",
        "E: no frob",
    ],
)
def test_the_last_line_of_a_command_is_its_error(last: str) -> None:
    (found,) = of(f"$ frobnicate\nstep one\n{last}\n").problems
    assert (found.match.failure.name, found.confidence, found.match.number) == ("unknown-error", "low", 3)
    assert last in found.problem().cause
    # Five lines later it still reads like an error, and a server that became ready goes on.
    assert names(of(f"$ frobnicate\n{last}\n" + "a\nb\nc\nd\n")) == ["unknown-error"]
    assert names(of(f"{READY}\n{last}\n")) == []


OWN_SYMBOL = (
    "ImportError: /v/vllm/_C.abi3.so: undefined symbol: _Z24silu_and_mul_nvfp4_quantRN2at6TensorES1_\n"
)


def test_a_line_that_ends_a_traceback_needs_no_error_after_it() -> None:
    trace = 'Traceback (most recent call last):\n  File "/v/vllm/x.py", line 4, in <module>\n    import x\n'
    assert names(of(trace + OWN_SYMBOL)) == ["symbol-own-kernel"]


def test_an_error_whose_known_failure_does_not_count_is_still_an_error() -> None:
    text = OWN_SYMBOL.replace("/v/vllm/_C.abi3", "/v/nixl/core").replace("ImportError", "OddError")
    assert names(of(text)) == ["unknown-error"]


def test_a_status_of_a_kernel_refuses_no_setting() -> None:
    raised = RAISED.replace("ValueError: {}", "RuntimeError: Invalid status")
    assert names(of(raised)) == ["unknown-error"]


def test_a_message_that_names_its_remedy_is_not_unknown() -> None:
    sentence = "the plan has run dry. Please install oddpart to fill it"
    (failure,) = of(RAISED.format(sentence)).problems
    assert "unknown" not in failure.problem().what
    assert "install oddpart" in failure.problem().fix
    assert failure.confidence == "medium"


def test_a_sentence_of_docker_is_not_about_a_setting_of_the_engine() -> None:
    """Its unknown storage driver was "a name that this version of the engine does not know"."""
    log = "docker: Error response from daemon: Unknown storage driver specified btrfs2.\n"
    assert names(of(log)) == ["unknown-error"]
