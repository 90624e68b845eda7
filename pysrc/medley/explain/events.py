"""Recognize turning points and uncaught exceptions in logs."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from medley.explain.context import Context
from medley.explain.lines import INFO, SGLANG, VLLM, WARNING, LogLine, decoded, line
from medley.explain.patterns import Failure, Sign, sign

BEGINS, READY, STOPPED, MENDED, WRONG = "begins", "ready", "stopped", "mended", "wrong"
CALL, NCCL, ARGUMENTS, VERSION, ENABLED = "call", "nccl", "arguments", "version", "enabled"
DRIVER, FACT = "driver", "fact"
ENGINES = frozenset({VLLM, SGLANG})
ERRORS = frozenset({WRONG, CALL})
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

_THOR_IMAGE = r"\bnvidia-ai-iot/[\w./-]*:\S*jetson-(?P<image_thor>thor)"
_JETSON_IMAGE = r"\b(?:dustynv|nvidia-ai-iot|l4t)[\w./-]*:(?:\w[\w.]*-)*r(?P<image_l4t>3\d(?:\.\d+)*)"


@dataclass(frozen=True)
class Turn:
    kind: str
    signs: tuple[Sign, ...]
    mends: tuple[str, ...] = ()
    """Prefixes of the names of failures that it ends."""
    any_level: bool = True


def echoed(text: str) -> bool:
    """Whether a line prints a configuration, a request or source code."""
    return bool(_ECHO.search(text[:2000]))


def source(text: str) -> bool:
    """Whether a line is source code in a traceback."""
    return bool(_SOURCE.match(text))


TURNS = (
    # First, because the next ones give advice for the engine.
    Turn(
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
    Turn(
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
    Turn(
        ARGUMENTS,
        (
            sign("non-default args:", r"^non-default args:"),
            sign("server_args=", r"^server_args="),
            sign("vllm serve", _VLLM_COMMAND),
            sign("sglang", _SGLANG_COMMAND),
        ),
    ),
    Turn(BEGINS, (sign("medley keeps ", r"^medley keeps "),)),
    Turn(
        READY,
        (
            sign("Application startup complete", r"Application startup complete\.?$"),
            sign("fired up and ready to roll"),
            sign("medley: ready", r"^medley: ready"),
        ),
    ),
    Turn(
        MENDED,
        (sign("Ray runtime started"), sign("Connected to Ray cluster")),
        mends=("ray-", "refused", "name-unknown", "host-unreachable"),
    ),
    Turn(
        MENDED,
        (
            sign("Init COMPLETE"),
            sign("peer ranks", r"is connected to [1-9]\d* peer ranks"),
            sign("is assigned as", r"^rank \d+ in world size \d+ is assigned as"),
            sign("Init torch distributed ends"),
        ),
        mends=("nccl-connect", "nccl-link-local", "gloo-refused", "rendezvous-", "refused"),
    ),
    # It is the head's own answer, so the head was reached.
    Turn(MENDED, (sign("GCS cannot find the node"),), mends=("ray-unreachable",)),
    Turn(MENDED, (sign("ink up"), sign("Link is Up")), mends=("link-fell",)),
    # A benchmark continues with another tokenizer
    Turn(MENDED, (sign("alling back to", r"^Falling back to .{1,60} tokenizer"),), mends=("hub-",)),
    Turn(
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
    Turn(
        WRONG,
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
    Turn(CALL, (sign('File "', r'^\s*File "[^"]+", line \d+'),)),
    Turn(
        VERSION,
        (
            sign("API server version", r"vLLM API server version (\d[\w.+]*)"),
            # vLLM's banner
            sign("version", r"[█▀▄]\s+version (\d[\w.+]*)"),
        ),
    ),
    Turn(ENABLED, (sign("optimization", r"^(?:The )?(\w.{2,80}? optimization (?:is )?enabled)\b"),)),
    # nvidia-smi, vLLM's collect_env, and the kernel's module
    Turn(
        DRIVER,
        (
            sign("river Version", r"Driver Version: (\d{3}\.[\d.]+\d)"),
            sign("driver version", r"[Dd]river version *: (\d{3}\.[\d.]+\d)"),
            sign("NVRM version", r"Module.{0,20} (\d{3}\.[\d.]+\d)"),
        ),
    ),
    # vLLM's and SGLang's figures of memory, in GiB
    Turn(
        FACT,
        (
            sign("Model loading took", r"Model loading took (?P<weights>[\d.]+) Gi?B"),
            sign("Checkpoint size", r"Checkpoint size: (?P<checkpoint>[\d.]+) GiB"),
            sign("Load weight end", r"Load weight end\b.* mem usage=(?P<weights>[\d.]+) GB"),
            sign("Load weight begin", r"Load weight begin\. avail mem=(?P<gpu>[\d.]+) GB"),
            sign("total capacity of", r"total capacity of (?P<gpu>[\d.]+) GiB"),
            sign("ree memory on device", r"Free memory on device.{0,20} \([\d.]+/(?P<gpu>[\d.]+) GiB\)"),
        ),
    ),
    # Releases of Jetson Linux: of the host, and in the tag of an image
    Turn(
        FACT,
        (
            sign("(release), REVISION", r"# R(?P<host_l4t>\d\d) \(release\), REVISION: (?P<revision>[\d.]+)"),
            sign("JETPACK_VERSION=", r"L4T_VERSION=(?P<host_l4t>[\d.]+) +JETPACK_VERSION="),
            sign("L4T BSP Version", r"L4T BSP Version: +L4T R(?P<host_l4t>[\d.]+)"),
            sign("-tegra", r"\b(?P<tegra_kernel>\d+\.\d+)\.\d+-(?:\w+-)?tegra\b"),
            sign("NVIDIA Thor", r"(?P<thor>NVIDIA Thor)\b"),
            sign("jetson-thor", _THOR_IMAGE),
            *(sign(each, _JETSON_IMAGE) for each in ("dustynv/", "nvidia-ai-iot/", "/l4t-")),
        ),
    ),
    Turn(NCCL, (sign("NCCL version", r"NCCL version (\d[\w.]+)"), sign("nccl==", r"using nccl==(\d[\w.]+)"))),
)


UNKNOWN = Failure(
    name="unknown-error",
    what="unknown failure: {kind}[, in {component}]",
    cause="its message: {message}[; raised because of: {origin}][; its traceback ends in {last_call}]"
    "[; the log shows {switched}, which concerns that code][; printed before it: {above}]"
    "[; this is {engine_version}][; the engine switched on by itself: {enabled}]",
    fix="[its message says: {advice}; ][try it without, or with another value of: {switched}; ]"
    "[another component: {instead}; ][{version_fault}; ]"
    "[try it without these of the log, one at a time: {tried}; ]search for this message in "
    "the engine's issues; to ask there, attach the report that medley explain writes",
    signs=(sign("rror"),),
    confidence="low",
    reworded="message",
)
DEFECT = UNKNOWN.model_copy(
    update={
        "what": "an error in the engine's own code[, in {component}], probably a defect of this version for "
        "this model or these flags: {kind}",
        "cause": "its message: {message}[; raised because of: {origin}][; its traceback ends in {last_call}]"
        "; that is code of the engine or of its packages, so host, driver and network are hardly the reason"
        "[; this is {engine_version}][; the log shows {switched}, which concerns that code]"
        "[; the last step before it: {step}][; printed before it: {above}]"
        "[; the engine switched on by itself: {enabled}]",
        "fix": "a newer version, or the one before: medley env build, or another image (medley serve MODEL "
        "--image IMAGE); packages of one set, because one that does not match gives such errors too; until "
        "then the other engine or another build of the model: medley plan MODEL\n"
        "[its message says: {advice}; ][without, or with another value of: {switched}; ]"
        "[another component: {instead}; ][without these of the log, one at a time: {tried}; ]"
        "search for this message in the engine's issues; to ask there, attach the report that medley explain "
        "writes",
    }
)
"""An error of Python that correct code of the engine does not raise."""
REQUEST = UNKNOWN.model_copy(
    update={
        "name": "request-failed",
        "what": "a request failed[ ({status})], and the server goes on: {kind}[, in {component}]",
        "reworded": None,
    }
)
"""An exception that ended a request."""
# vLLM 0.33.0, v1/executor/multiproc_executor.py: the text of a worker's exception, without its type.
_WRAPPED = re.compile(
    r"^(?P<kind>[\w.]+: )?Worker failed with error '(?P<own>.+?)'?"
    r"(?:, please check the stack trace above[^']*)?$"
)
# Tracebacks whose reason is elsewhere, and exceptions that end a program intentionally.
_FOLLOWS = re.compile(
    r"EngineDeadError|Engine core initialization failed|EngineGenerateError|Engine process failed|"
    r"Executor failed|WorkerProc initialization failed|Process \S+ (?:died|exited)|"
    r"ChildFailedError|ChildProcessError|BrokenProcessPool|BrokenPipeError|EOFError|ConnectionResetError|"
    r"CancelledError|KeyboardInterrupt|SystemExit|GeneratorExit|ContextTerminated|ProcessRaisedException|"
    r"Initialization failed\. Please see|RayTaskError|ActorDiedError|WorkerCrashedError|cannot schedule new "
    r"futures|Event loop is closed|see (?:the )?(?:stack ?trace|error messages?|root cause)s? above|"
    r"Root Cause|Client disconnected|500 Internal Server Error|ExceptionGroup: unhandled errors"
)
_DIRECT = "The above exception was the direct cause"
_LEADS = re.compile(rf"^(?:During handling of the above exception|{_DIRECT})")
_CALL = re.compile(r'^\s*File "[^"]+", line \d+')
_CODE = re.compile(r'^\s+(?:\S|$)|^Traceback |^File "')
_UNFINISHED = re.compile(r"(?::|\bfor \w+|\bof)\s*$")
_ENDS = re.compile(
    r"^(?:Traceback|During handling|The above|\s*For further information|Process |\[rank|[\w.]+Error: )|^\s*$"
)
_BACK = 4
# Lines around the engine's last error that are searched for its reason.
NEAR = 600


def unwrapped(said: LogLine) -> LogLine:
    """Return the line with a worker's error in the place of the sentence that reports it."""
    if (found := _WRAPPED.match(said.text)) is None:
        return said
    own = found["own"]
    text = own if re.match(r"[\w.]+(?:Error|Exception)\b", own) else f"{found['kind'] or ''}{own}"
    return replace(said, text=text, wrapped=True)


@dataclass(frozen=True)
class Slip:
    """An error of a log."""

    line: LogLine
    number: int
    said: str
    when: tuple[int, int, float] | None
    traced: bool
    """Whether it is the end of a traceback."""
    leads: bool
    """Whether it caused another exception."""
    direct: bool = False
    """Whether that exception was raised from it."""
    context: Context = field(default_factory=Context)
    origin: str | None = None
    """The first exception of the chain that it ends."""

    @property
    def follows(self) -> bool:
        return bool(_FOLLOWS.search(self.said))

    @property
    def kind(self) -> str:
        name, _, _ = self.said.partition(":")
        last = name.rpartition(".")[2]
        return last if re.fullmatch(r"\w*[A-Z]\w*(?:\(\w+\))?", last) else "an error"


BELOW = 16
"""Lines below a call in which its traceback ends, with those of other ranks."""
_CLASS = re.compile(r"^[A-Za-z_][\w.]*(?:\([\w.]+\))?(?::(?: |$)|$)")


@dataclass(frozen=True)
class Below:
    line: LogLine
    down: int
    """Number of lines below the call."""


def below_calls(call: LogLine, after: Sequence[bytes]) -> Below | None:
    """Return the error in which a traceback ends: the first line of its rank without indentation.

    The name of the exception's class does not matter. Return None where another call follows.
    """
    indented = call.text[:1].isspace()
    own = [
        (down, each)
        for down, each in enumerate((line(decoded(raw[:2000])) for raw in after), 1)
        if each.rank in (None, call.rank) and each.text.strip()
    ]
    # A report may have lost the indentation: then the first line is code, and so may be some more.
    for down, each in own[0 if indented else 1 : None if indented else _BACK]:
        if _CALL.match(each.text):
            return None
        if _CLASS.match(each.text):
            return Below(unwrapped(each), down)
        if indented and not each.text[0].isspace():
            return None
    return None


def slip(
    said: LogLine,
    number: int,
    when: tuple[int, int, float] | None,
    before: Iterable[bytes],
    after: Sequence[bytes],
) -> Slip | None:
    """Return the error of a line; None for information and warnings."""
    if said.level in (INFO, WARNING):
        return None
    near, then = (
        [each.text for each in (line(decoded(one[:2000])) for one in raw) if each.rank in (None, said.rank)]
        for raw in (before, after)
    )
    traced = any(_CODE.match(each) for each in near[-_BACK:])
    text = said.text.strip()
    if text.endswith("AssertionError"):
        code = next((each for each in (*reversed(near), *then) if re.match(r"\s+assert\b", each)), "")
        text = f"{text}: {code.strip()}" if code else text
    leads = next((each for each in then[:3] if _LEADS.match(each)), "")
    direct = leads.startswith(_DIRECT)
    return Slip(said, number, _whole(text, then), when, traced, bool(leads), direct=direct)


def _whole(text: str, then: Sequence[str]) -> str:
    if not _UNFINISHED.search(text):
        return text
    more: list[str] = []
    for each in then[:6]:
        if _ENDS.match(each) and (more or each.strip()):
            break
        more.append(each.strip())
    return " ".join([text, *(each for each in more if each)])[:600]


def reason(slips: Sequence[Slip], *, ready: bool, death: int | None, lines: int) -> Slip | None:
    """Return the error that ended the program: the end of the first chain of exceptions with a reason."""
    if ready or death is not None:
        if death is None:
            return None
        slips = [each for each in slips if abs(each.number - death) <= NEAR]
    else:
        slips = [each for each in slips if each.number > lines - 4000]
    own = [each for each in slips if not each.follows]
    own = [each for each in own if not each.line.wrapped] or own
    first = next((each for each in own if each.traced), next(iter(own), None))
    return first and _chain_end(first, own)


def _chain_end(first: Slip, own: Sequence[Slip]) -> Slip:
    last = first
    while last.leads:
        later = next((each for each in own if each.number > last.number and each.traced), None)
        if later is None or later.number - last.number > NEAR // 2:
            break
        first, last = (first if last.direct else later), later
    return last if last is first else replace(last, origin=first.said)
