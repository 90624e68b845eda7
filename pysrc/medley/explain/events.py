"""Recognize turning points in logs, and describe errors that no known failure has."""

import re

from medley.explain.fact_signs import FACT_SIGNS
from medley.explain.lines import SGLANG, VLLM, LogLine
from medley.explain.patterns import Failure, Sign, sign
from medley.explain.tried_steps import TRIED_WORDS
from medley.values import Value

BEGINS, READY, STOPPED, RECOVERED, EXCEPTION = "begins", "ready", "stopped", "recovered", "exception"
CALL, NCCL, ARGUMENTS, VERSION, ENABLED = "call", "nccl", "arguments", "version", "enabled"
DRIVER, FACT, REMEDY, SKIPPED = "driver", "fact", "remedy", "skipped"
SETTING, TYPED, TRIED = "setting", "typed", "tried"
ENGINES = frozenset({VLLM, SGLANG})
FACT_KINDS = frozenset({SETTING, TYPED, TRIED, REMEDY, SKIPPED, FACT})
ERROR_KINDS = frozenset({EXCEPTION, CALL})
# Lines that print a configuration, a request or source code, and report nothing.
_ECHO = re.compile(
    r"non-default args:|Initializing an? (?:V[01] )?LLM engine|server_args=|^args: Namespace|^Namespace\(|"
    r"Received request|[\"']?(?:content|prompt|role|messages)[\"']?: ?[\"'\[]|prompt=|"
    r"^medley: (?!ready)|^\s*\+{1,3} |^\s*(?:\$|#) |override-neuron|compilation_config=|"
    # Printed in every successful start
    r"^Ignore import error|Will ignore error and continue|^Skipping import of cpp extensions"
)
# An environment may be named like an engine, so a file needs a folder of it.
_VLLM_FILE = (
    r"vllm[/\\](?:v1|engine|entrypoints|model_executor|executor|worker|distributed|platforms|lora|attention|"
    r"compilation|multimodal|transformers_utils|tool_parsers|_custom_ops)\b"
)
_SGLANG_FILE = r"sglang[/\\](?:srt|launch_server|cli|multimodal_gen)\b"
_VLLM_COMMAND = r"(?:^|[ /])vllm serve |vllm\.entrypoints\.openai\.api_server "
_SGLANG_COMMAND = r"\bsglang(?:\.launch_server| serve) "
_SOURCE = re.compile(r"^\s+(?:raise |return |assert |logger\.|f?[\"'])|^raise [\w.]+\(")

_VARIABLES = (
    "_DTYPE=",
    "UTIL=",
    "UTILIZATION=",
    "MEM_FRACTION",
    "MAX_LEN=",
    "LOAD_FORMAT=",
    "MODEL_LEN=",
    "_PARALLEL_SIZE=",
    "NCCL_",
    "VLLM_",
    "SGLANG_",
)
_TYPED_FLAGS = (
    *("--gpu-memory-util", "--mem-fraction", "--max-model-len", "--context-length", "--max-num-"),
    *("--tensor-parallel", "--tp ", "--tp-size", "--kv-cache-dtype", "--load-format", "--nnodes"),
    *("--attention-backend", "--moe-", "--linear-backend", "--quantization", "--speculative-"),
    *("--enforce-eager", "--disable-cuda-graph", "--disable-custom-all-reduce", "--no-enable-"),
)
_TYPED_KEYS = (
    *("gpu_memory_utilization", "mem_fraction_static", "max_model_len", "kv_cache_dtype", "load_format"),
    *("tensor_parallel_size", "attention_backend"),
)
_ADVICE = re.compile(
    r"(?i)error|exception|\b(?:try|consider|please|should|must|instead|supports?|requires?|recommended|use)\b"
)
# An error advises to set them, and they are not set.
_ADVISED = "".join(
    f"(?<![{word[0].upper()}{word[0]}]{word[1:]} )"
    for word in ("set", "setting", "try", "use", "var", "with")
)


class Transition(Value):
    kind: str
    signs: tuple[Sign, ...]
    resolves: tuple[str, ...] = ()
    """Prefixes of the names of failures that it ends."""
    any_level: bool = True


def is_echo(text: str) -> bool:
    """Whether a line prints a configuration, a request or source code."""
    return bool(_ECHO.search(text[:2000]))


def is_typed(line: LogLine) -> bool:
    """Whether a person or a recipe wrote a line, so that the flags in it are set, and not advised."""
    return line.level is None and line.rank is None and not _ADVICE.search(line.text[:400])


def is_source_code(text: str) -> bool:
    """Whether a line is source code in a traceback."""
    return bool(_SOURCE.match(text))


TRANSITIONS = (
    # First, because the next ones give advice for the engine.
    Transition(
        VLLM,
        (
            sign("non-default args:"),
            sign("vLLM API server version"),
            sign("Resolved architecture: "),
            sign("Model loading took"),
            sign("LLM engine (v", r"^Initializing a V1 LLM engine"),
            sign("EngineCore", r"^EngineCore (?:failed|encountered|hit)"),
            sign("vllm", r"^\s+File .*" + _VLLM_FILE),
            sign("vllm serve", _VLLM_COMMAND),
        ),
    ),
    Transition(
        SGLANG,
        (
            sign("server_args=", r"^server_args="),
            sign("Received sigquit from a child"),
            sign("Init torch distributed begin"),
            sign("Load weight begin"),
            sign("sglang", r"^\s+File .*" + _SGLANG_FILE),
            sign("sglang", _SGLANG_COMMAND),
        ),
    ),
    Transition(
        ARGUMENTS,
        (
            sign("non-default args:", r"^non-default args:"),
            sign("server_args=", r"^server_args="),
            sign("vllm serve", _VLLM_COMMAND),
            sign("openai.api_server", _VLLM_COMMAND),
            sign("sglang", _SGLANG_COMMAND),
        ),
    ),
    # Settings of scripts and containers: KEY=VALUE, and what NCCL takes from the environment
    Transition(
        SETTING,
        (
            *(sign(needle, _ADVISED + r"(?<![\w$`'])[A-Z][A-Z0-9_]{3,60}=[\w./:-]") for needle in _VARIABLES),
            sign("set by environment to", r"^[A-Z_]{4,60} set by environment to \S"),
        ),
    ),
    # Flags as a person types them: after docker run, in a list of compose, in a recipe, or for Python
    Transition(
        TYPED,
        (
            *(
                sign(needle, r"(?:^|[\s\"'\[,])--[a-z][\w.-]+(?:[= ][\w./{'\"]|[\"' ]|$)")
                for needle in _TYPED_FLAGS
            ),
            *(
                sign(key, r"^\s*(?:- )?[a-z_]+: \S|\b(?:LLM|Engine|AsyncEngineArgs|EngineArgs)\(")
                for key in _TYPED_KEYS
            ),
        ),
    ),
    # What the owner of the log reports to have tried
    Transition(TRIED, tuple(sign(word) for word in TRIED_WORDS)),
    Transition(BEGINS, (sign("medley keeps ", r"^medley keeps "),)),
    Transition(
        READY,
        (
            sign("Application startup complete", r"Application startup complete\.?$"),
            sign("fired up and ready to roll"),
            sign("medley: ready", r"^medley: ready"),
        ),
    ),
    Transition(
        RECOVERED,
        (sign("Ray runtime started"), sign("Connected to Ray cluster")),
        resolves=("ray-", "refused", "name-unknown", "host-unreachable"),
    ),
    Transition(
        RECOVERED,
        (
            sign("Init COMPLETE"),
            sign("peer ranks", r"is connected to [1-9]\d* peer ranks"),
            sign("is assigned as", r"^rank \d+ in world size \d+ is assigned as"),
            sign("Init torch distributed ends"),
        ),
        resolves=("nccl-connect", "nccl-link-local", "gloo-refused", "rendezvous-", "refused"),
    ),
    # It was ended by its user.
    Transition(
        RECOVERED,
        (sign("stopped; nothing of it runs any more"), sign("KeyboardInterrupt", r"^KeyboardInterrupt$")),
        resolves=("server-terminated",),
    ),
    # It is the head's own answer, so the head was reached.
    Transition(RECOVERED, (sign("GCS cannot find the node"),), resolves=("ray-unreachable",)),
    Transition(RECOVERED, (sign("ink up"), sign("Link is Up")), resolves=("link-fell",)),
    # A benchmark continues with another tokenizer
    Transition(
        RECOVERED, (sign("alling back to", r"^Falling back to .{1,60} tokenizer"),), resolves=("hub-",)
    ),
    Transition(
        STOPPED,
        (
            sign("Shutting down", r"^Shutting down$"),
            sign("KeyboardInterrupt", r"^KeyboardInterrupt"),
            sign("stopped; nothing of it runs any more"),
            sign("Received SIGTERM", r"^Received SIGTERM"),
            sign("SIGTERM received"),
            sign("Received SIGINT", r"^Received SIGINT"),
            sign("Gracefully stopping http server"),
            sign("[shutdown] API server: shutdown triggered"),
        ),
    ),
    Transition(
        EXCEPTION,
        (
            sign(
                "rror", r"^[\w.]*(?:Error|Failure)(?:\(\w+\))?(?::|$)|^(?:fatal )?error: |: error: |^Error: "
            ),
            sign("xception", r"^[\w.]*Exception(?:\(\w+\))?(?::|$)"),
            sign("rrors.", r"^\w[\w.]*\berrors\.[A-Z]\w+(?::|$)"),
            sign("xpired", r"^[\w.]+Expired: "),
            sign("what():", r"^\s*what\(\):"),
        ),
    ),
    Transition(CALL, (sign('File "', r'^\s*File "[^"]+", line \d+'),)),
    Transition(
        VERSION,
        (
            sign("API server version", r"vLLM API server version (\d[\w.+]*)"),
            # vLLM's banner
            sign("version", r"[█▀▄]\s+version (\d[\w.+]*)"),
        ),
    ),
    Transition(ENABLED, (sign("optimization", r"^(?:The )?(\w.{2,80}? optimization (?:is )?enabled)\b"),)),
    # nvidia-smi, vLLM's collect_env, and the kernel's module
    Transition(
        DRIVER,
        (
            sign("river Version", r"Driver Version: (\d{3}\.[\d.]+\d)"),
            sign("driver version", r"[Dd]river version *: (\d{3}\.[\d.]+\d)"),
            sign("NVRM version", r"Module.{0,20} (\d{3}\.[\d.]+\d)"),
        ),
    ),
    Transition(FACT, FACT_SIGNS),
    Transition(REMEDY, (sign("pip install"),)),
    Transition(
        SKIPPED,
        (
            sign(
                "Ignore import error", r"Ignore import error when loading (?P<module>[\w.]+): (?P<reason>.+)"
            ),
            sign(
                "ailed to import",
                r"[Ff]ailed to import (?:from )?(?P<module>[a-z_][\w.]*)(?: with|:| due to| because)+ "
                r"(?P<reason>.+)",
            ),
            sign(
                "kipping",
                r"[Ss]kipping (?:the )?import of (?P<module>[\w.]+)(?::| due to| because(?: of)?) "
                r"(?P<reason>.+)",
            ),
            sign(
                "rror when importing", r"[Ee]rror when importing (?P<module>[\w.]+)(?::| -)? (?P<reason>.+)"
            ),
            sign(
                "ould not import",
                r"[Cc]ould not import (?P<module>[a-z_][\w.]*)(?::| due to| because| \()+ ?(?P<reason>.+)",
            ),
        ),
    ),
    Transition(
        NCCL, (sign("NCCL version", r"NCCL version (\d[\w.]+)"), sign("nccl==", r"using nccl==(\d[\w.]+)"))
    ),
)


UNKNOWN = Failure(
    name="unknown-error",
    what="unknown failure: {kind}[, in {component}]",
    cause="its message: {message}[; raised because of: {origin}][; its traceback ends in {last_call}]"
    "[; the log shows {switched}, which concerns that code][; the log names the kernel {chosen_kernel}]"
    "[; {skipped}][; printed before it: {above}]"
    "[; this is {engine_version}][; the engine switched on by itself: {enabled}]",
    fix="[a warning before it says: {remedy}; ][its message says: {advice}; ]"
    "[try it without, or with another value of: {switched}; ][without that kernel: {kernel_fix}; ]"
    "[another component: {instead}; ][{version_fault}; ]"
    "[try it without these of the log, one at a time: {tried}; ]search for this message in "
    "the engine's issues; to ask there, attach the report that medley explain writes",
    signs=(sign("rror"),),
    confidence="low",
    reworded="message",
)
DEFECT = UNKNOWN.replace(
    what="an error in the engine's own code[, in {component}], probably a defect of this version for "
    "this model or these flags: {kind}",
    cause="its message: {message}[; raised because of: {origin}][; its traceback ends in {last_call}]"
    "[; {halved}]; that is code of the engine or of its packages, so host, driver and network are hardly the "
    "reason[; this is {engine_version}][; the log shows {switched}, which concerns that code]"
    "[; the last step before it: {step}][; printed before it: {above}]"
    "[; the engine switched on by itself: {enabled}]",
    fix="a newer version, or the one before: medley env build, or another image (medley serve MODEL "
    "--image IMAGE); packages of one set, because one that does not match gives such errors too; until "
    "then the other engine or another build of the model: medley plan MODEL\n"
    "[a warning before it says: {remedy}; ][its message says: {advice}; ]"
    "[without, or with another value of: {switched}; ]"
    "[another component: {instead}; ][without these of the log, one at a time: {tried}; ]"
    "search for this message in the engine's issues; to ask there, attach the report that medley explain "
    "writes",
)
"""An error of Python that correct code of the engine does not raise."""
REQUEST = UNKNOWN.replace(
    name="request-failed",
    what="a request failed[ ({status})], and the server goes on: {kind}[, in {component}]",
    reworded=None,
)
"""An exception that ended a request."""
