from pathlib import Path

import pytest

from medley.serving.community_recipe.engine_flags import CommandSource, list_flag_entries
from medley.serving.community_recipe.entries import RecipeEntry
from medley.serving.community_recipe.shell_command import parse_engine_command


def became(flags: str, program: str = "vllm serve a/b") -> list[RecipeEntry]:
    return list(list_flag_entries(parse_engine_command(f"{program} {flags}", "r.yaml"), CommandSource("a/b")))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param("-tp 2", "--tp 2", id="a short name"),
        pytest.param("--tensor-parallel-size=2", "--tp 2", id="with an equals sign"),
        pytest.param("--tensor_parallel_size 2", "--tp 2", id="with underscores"),
        pytest.param("--pipeline-parallel-size 3", "--pp 3", id="stages"),
        pytest.param("-dp 4", "--dp 4", id="replicas"),
        pytest.param("--max-model-len 32768", "--context 32768", id="context"),
        pytest.param("--max-model-len 32K", "--context 32768", id="context in units of 1,024"),
        pytest.param("--max-model-len 25.6k", "--context 25600", id="context in units of 1,000"),
        pytest.param("--kv-cache-dtype fp8_e4m3", "--kv-type fp8", id="8-bit KV cache"),
        pytest.param("--enable-eplb", "--eplb", id="the balancer"),
        pytest.param("--served-model-name x", "--served-model-name x", id="a name"),
        pytest.param("--host 0.0.0.0 --port 9000", "--host 0.0.0.0 --port 9000", id="an address"),
    ],
)
def test_what_medley_has_an_option_for_becomes_it(flags: str, words: str) -> None:
    found = became(flags)
    assert {(each.outcome, each.word_kind) for each in found} == {("carried", "option")}
    assert " ".join(word for each in found for word in each.words) == words


@pytest.mark.parametrize(
    "flags",
    [
        "--max-num-seqs 10",
        "--enable-prefix-caching",
        "--mamba_ssm_cache_dtype float32",
        "--compilation-config.cudagraph_mode none",
        "--load-format instanttensor",
        """--speculative-config '{"method": "mtp", "num_speculative_tokens": 2}'""",
    ],
)
def test_the_engine_s_own_flags_go_behind_the_dashes_as_they_are(flags: str) -> None:
    (found,) = became(flags)
    assert (found.outcome, found.word_kind) == ("carried", "flag")
    assert found.words == parse_engine_command(f"vllm serve a/b {flags}", "r").flags[0].words


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--gpu-memory-utilization 0.9", "from each host's free memory"),
        # Of eugr/spark-vllm-docker's patch gpu-mem-util-gb; vLLM 0.33 does not have it.
        ("--gpu-memory-utilization-gb 108", "from each host's free memory"),
        ("--distributed-executor-backend ray", "launcher"),
        ("--nnodes 2", "launcher"),
        ("--trust-remote-code", "a recipe cannot trust code for you"),
        ("--kv-cache-dtype auto", "default"),
        ("--max-model-len -1", "longest context that fits"),
        ("--model a/b", "the recipe's model"),
    ],
)
def test_what_medley_decides_is_in_no_command(flags: str, why: str) -> None:
    (found,) = became(flags)
    assert (found.outcome, found.words) == ("decided", ())
    assert why in found.why


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--chat-template unsloth.jinja", "unsloth.jinja is a file in the recipe's image"),
        ("--download-dir /models", "/models is a file"),
        ("--reasoning-parser-plugin p.py", "read it, then add -- --reasoning-parser-plugin FILE"),
        ("--api-key abc", "--api-key FILE"),
        ("--config x", "add its flags after --"),
        ("--worker-extension-cls mine.Worker", "other code or open the server: read it"),
        ("--worker-ext mine.Worker", "other code or open the server"),
        ("--hf-overrides '{\"trust_remote_code\":true}'", "trust_remote_code may be other code"),
        ("--seed {seed}", "{seed} has no value in 'defaults'"),
        ("--override '{\"a\": {b}}'", "{b} has no value in 'defaults'"),
        ("--seed $SEED", "needs a shell"),
        ("-tp all", "not a number from 1 to 64"),
        ("-tp ٣", "not a number from 1 to 64"),
        (f"--max-model-len {'9' * 400}k", "is not a number of tokens"),
        ("-tp 128", "not a number from 1 to 64"),
        ("--port", "no value"),
        ("--max-model-len 1", "from 16 to 10,000,000"),
        ("--model other/one", "the recipe's 'model' is a/b"),
    ],
)
def test_what_cannot_be_carried_is_refused_with_a_reason(flags: str, why: str) -> None:
    (found,) = became(flags)
    assert (found.key, found.outcome, found.words) == (
        f"command {flags.split(maxsplit=1)[0]}",
        "refused",
        (),
    )
    assert why in found.why


def test_a_parser_of_a_plugin_is_left_out_with_it() -> None:
    found = became("--reasoning-parser-plugin p.py --reasoning-parser mine --tool-call-parser hermes")
    assert [each.outcome for each in found] == ["refused", "refused", "carried"]


def test_a_kv_type_that_the_plan_does_not_know_stays_the_engine_s() -> None:
    first, second = became("--kv-cache-dtype fp8_e5m2")
    assert (first.words, second.words) == (("--kv-type", "fp8"), ("--kv-cache-dtype", "fp8_e5m2"))
    first, second = became("--kv-cache-dtype nvfp4")
    assert (first.outcome, second.words) == ("decided", ("--kv-cache-dtype", "nvfp4"))


def test_one_of_several_names_is_taken() -> None:
    first, second = became("--served-model-name one two")
    assert first.words == ("--served-model-name", "one")
    assert (second.outcome, second.why) == ("refused", "medley accepts one value: two is left out")


def test_sglang_s_names_are_read() -> None:
    found = became(
        "--model-path a/b --tp 2 --pp-size 2 --context-length 4096 --mem-fraction-static 0.8 "
        "--max-running-requests 8 --load-format instanttensor --kv-cache-dtype fp8_e4m3",
        "sglang serve",
    )
    assert [(each.outcome, *each.words) for each in found] == [
        ("decided",),
        ("carried", "--tp", "2"),
        ("carried", "--pp", "2"),
        ("carried", "--context", "4096"),
        ("decided",),
        ("carried", "--max-running-requests", "8"),
        ("refused",),
        ("carried", "--kv-type", "fp8"),
    ]


def test_data_parallel_attention_is_not_replicas() -> None:
    found = became("--tp 4 --dp 2 --enable-dp-attention", "sglang serve")
    assert [(each.word_kind, *each.words) for each in found] == [
        ("option", "--tp", "4"),
        ("flag", "--dp", "2"),
        ("flag", "--enable-dp-attention"),
    ]


@pytest.mark.parametrize(
    ("flags", "program"),
    [
        ("--prefill-compute-share auto", "vllm serve a/b"),
        ("--mxfp4-backend CUTLASS", "vllm serve a/b"),
        ("--quantization exl3", "vllm serve a/b"),
        ("--load-format b12x", "vllm serve a/b"),
        ("--attention-backend B12X_MLA_SPARSE", "vllm serve a/b"),
        ("--tool-call-parser motif", "vllm serve a/b"),
        ("""--engram-config '{"table_memory":"disk"}'""", "vllm serve a/b"),
        ("""--speculative-config '{"method":"mtp","attention_backend":"B12X_X"}'""", "vllm serve a/b"),
        ("--model-type llm", "sglang serve"),
        ("--attention-backend b12x", "sglang serve"),
    ],
)
def test_what_the_locked_release_lacks_is_of_a_fork(flags: str, program: str) -> None:
    (found,) = became(flags, program)
    assert (found.outcome, found.needs_fork, found.words) == ("refused", True, ())


def test_a_flag_by_another_name_is_carried_by_that() -> None:
    (found,) = became("--cuda-graph-max-bs 8", "sglang serve")
    assert (found.words, found.is_changed) == (("--cuda-graph-max-bs-decode", "8"), True)


def test_what_guides_still_have_is_no_fork_s() -> None:
    (found,) = became("--swap-space 4")
    assert (found.outcome, found.needs_fork) == ("refused", False)


def test_a_flag_that_needs_one_left_out_goes_with_it() -> None:
    found = became("--enable-auto-tool-choice --tool-call-parser motif --enable-prefix-caching")
    assert [each.outcome for each in found] == ["refused", "refused", "carried"]
    found = became("--speculative-algorithm EAGLE --speculative-draft-model-path /models/x", "sglang serve")
    assert [each.outcome for each in found] == ["refused", "refused"]


@pytest.mark.parametrize(
    "flags",
    [
        "--gpu-memory-utilization 0.05",
        "--gpu-memory-utilization 0.4",
        "--kv-cache-memory-bytes 6G",
        "--kv-cache-memory 20042098000",
    ],
)
def test_a_recipe_that_shares_its_host_keeps_its_share(flags: str) -> None:
    (found,) = became(flags)
    assert (found.word_kind, found.is_changed) == ("flag", True)
    assert found.words[1] == flags.split()[1]
    assert found.words[0].startswith(flags.split(maxsplit=1)[0])


@pytest.mark.parametrize("value", ["0.7", "0.9", "{share}"])
def test_a_share_that_the_plan_replaces_is_named(value: str) -> None:
    (found,) = became(f"--gpu-memory-utilization {value}")
    assert found.outcome == "decided"
    assert value in found.why


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("""--speculative-config '{"method":"dflash","model":"/workspace/draft"}'""", "/workspace/draft"),
        ("""-sc '{"model":"/workspace/draft"}'""", "/workspace/draft"),
        ("--speculative-config.model /workspace/draft", "/workspace/draft"),
        (
            """--kv-transfer-config '{"kv_connector_extra_config":{"FILE":"/workspace/u.yaml"}}'""",
            "/workspace/u.yaml",
        ),
        ("""--model-loader-extra-config '{"files":["./a.so"]}'""", "./a.so"),
        ("""--kv-transfer-config '{"kv_connector_module_path":"ucm.vllm"}'""", "ucm.vllm"),
    ],
)
def test_a_file_inside_json_is_left_out_by_its_name(flags: str, name: str) -> None:
    (found,) = became(flags)
    assert (found.outcome, found.needs_fork) == ("refused", False)
    assert name in found.why


def test_a_snapshot_inside_json_is_its_repository_at_its_commit() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    folder = f"/root/.cache/huggingface/hub/models--org--draft/snapshots/{commit}"
    (found,) = became(f"""--speculative-config '{{"method":"dflash","model":"{folder}"}}'""")
    assert found.words[1] == f'{{"method":"dflash","model":"org/draft","revision":"{commit}"}}'


@pytest.mark.parametrize("value", ["<HEAD_IP>", "<your model>", "[MODEL_NAME]"])
def test_a_blank_of_a_guide_is_for_the_reader(value: str) -> None:
    found = became(f"--tokenizer {value} --enable-prefix-caching")
    assert [each.outcome for each in found] == ["refused", "carried"]


def test_a_few_gib_of_a_spark_are_their_share() -> None:
    """A patch of vLLM, gpu-mem-util-gb, takes GiB."""
    (found,) = became("--gpu-memory-utilization-gb 12")
    assert (found.words, found.is_changed) == (("--gpu-memory-utilization", "0.10"), True)


@pytest.mark.parametrize(
    ("flags", "program"),
    [
        ("""--structured-outputs-config '{"reasoning_parser_plugin": "evil"}'""", "vllm serve a/b"),
        ("--structured-outputs-config.reasoning_parser_plugin evil", "vllm serve a/b"),
        (
            """--kv-transfer-config '{"kv_connector": "X", "kv_connector_module_path": "evil"}'""",
            "vllm serve a/b",
        ),
        ("""--kv-transfer-config '{"kv_connector": "NixlConnector"}'""", "vllm serve a/b"),
        ("""--kv-transfer-config '{"kv_port": 5557}'""", "vllm serve a/b"),
        ("""--ec-transfer-config '{"ec_connector_module_path": "evil"}'""", "vllm serve a/b"),
        ("""--kv-events-config '{"publisher": "zmq", "topic": "x"}'""", "vllm serve a/b"),
        ("--otlp-traces-endpoint evil:4317", "vllm serve a/b"),
        ("--tool-server evil:80", "vllm serve a/b"),
        ("--uds evil", "vllm serve a/b"),
        ("--hf-token abc", "vllm serve a/b"),
        ("--tokenizer other/repo", "vllm serve a/b"),
        ("--lora-modules x=other/repo", "vllm serve a/b"),
        ("--compilation-config.backend evil.backend", "vllm serve a/b"),
        ("""-cc '{"backend": "evil.backend"}'""", "vllm serve a/b"),
        ("""--compilation-config '{"inductor_passes": {"x": "evil.run"}}'""", "vllm serve a/b"),
        ("""--hf-overrides '{"auto_map": {"AutoConfig": "evil.C"}}'""", "vllm serve a/b"),
        ("""--speculative-config '{"model": "http://evil.example/x"}'""", "vllm serve a/b"),
        ("""--hf-overrides '{"audio_model_id": "evil/repo"}'""", "vllm serve a/b"),
        ("""--hf-overrides '{"text_config": {"audio_model_id": "gpt2"}}'""", "vllm serve a/b"),
        ("--hf-overrides.unread x", "vllm serve a/b"),
        ("""--mm-processor-kwargs '{"audio": "evil/repo"}'""", "vllm serve a/b"),
        ("""--mm-processor-kwargs '{"audio_model_id": "gpt2"}'""", "vllm serve a/b"),
        ("--revision refs/pr/3", "vllm serve a/b"),
        ("--revision refs%2Fpr%2F3", "vllm serve a/b"),
        ("""--speculative-config '{"model": "org/draft", "revision": "refs/pr/3"}'""", "vllm serve a/b"),
        ("--load-format pt", "vllm serve a/b"),
        ("--load-format npcache", "vllm serve a/b"),
        ("""--speculative-config '{"draft_load_config": {"load_format": "pt"}}'""", "vllm serve a/b"),
        ("""--compilation-config '{"inductor_compile_config": {"cpp.cxx": ["x"]}}'""", "vllm serve a/b"),
        ("--compilation-config.inductor_passes+ evil", "vllm serve a/b"),
        ("-cc.debug_dump_path x", "vllm serve a/b"),
        ("--enable-log-requests", "vllm serve a/b"),
        ("--log-requests", "sglang serve"),
        ("--revision refs/pr/3", "sglang serve"),
        ("--speculative-draft-model-revision refs/pr/3", "sglang serve"),
        ("--speculative-draft-load-format pt", "sglang serve"),
        ("""--json-model-override-args '{"audio_model_id": "evil/repo"}'""", "sglang serve"),
        ("--generation-config evil", "vllm serve a/b"),
        ("--allowed-origins '*'", "vllm serve a/b"),
        ("--enable-prompt-embeds", "vllm serve a/b"),
        ("--log-config-file x", "vllm serve a/b"),
        ("--grpc-port 9000", "vllm serve a/b"),
        ("--warmups evil", "sglang serve"),
        ("--forward-hooks '[{}]'", "sglang serve"),
        ("--custom-weight-loader evil.load", "sglang serve"),
        ("--hicache-storage-backend dynamic", "sglang serve"),
        ("--tokenizer-path other/repo", "sglang serve"),
        ("--speculative-token-map other/repo", "sglang serve"),
        ("--sidecar evil", "sglang serve"),
        ("--lora-paths other/repo", "sglang serve"),
    ],
)
def test_what_is_not_known_to_be_harmless_is_left_out_by_its_name(flags: str, program: str) -> None:
    (found,) = became(flags, program)
    assert (found.outcome, found.words) == ("refused", ())
    assert found.why


PUBLIC = Path(__file__).with_name("public_settings.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("command", [each for each in PUBLIC if " serve " in each and each[0] != "#"])
def test_what_public_recipes_set_is_carried(command: str) -> None:
    (found,) = list_flag_entries(parse_engine_command(command, "r.yaml"), CommandSource("a/b"))
    assert (found.outcome, found.word_kind) == ("carried", "flag"), found.why
