"""Read the lines before an error: the calls of its traceback, repeated warnings and the last phase."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

from medley.explain.cuda_errors import read_cuda_error
from medley.explain.draft_model import find_own_draft
from medley.explain.engine_advice import for_engine
from medley.explain.extensions import find_extension
from medley.explain.flag_names import explain_flags
from medley.explain.flags import read_flags
from medley.explain.gpu_share import read_share
from medley.explain.jetson_release import compare_releases
from medley.explain.lines import SGLANG, WARNING, LogLine, decoded, line
from medley.explain.memory_fit import explain_fit
from medley.explain.patterns import Component, Known, Phase, engine_flags
from medley.explain.phases import last_phase

LINES = 60
"""Lines before an error that belong to it."""
_LONGEST = 400
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+,? in (?P<function>[^\s,]+)')
_INSTALLED = re.compile(r".*(?:site|dist)-packages/(?P<file>.+)")
# The innermost folder, because an environment's own may have the same name.
_OWN = re.compile(r"(?:.*/)?(?P<file>(?:vllm|sglang|flashinfer|tensorrt_llm)/.+)")
_MODULE = re.compile(r"\b(?:module|from) '(?P<top>\w+)")
# A sentence of an error that tells its reader what to do.
_ADVICE = re.compile(
    r"(?:^|[.;:!,] )(?P<advice>(?:"
    r"(?:[Pp]lease|[Tt]ry|[Cc]onsider|[Yy]ou (?:can|should|may|need to|must)) \S+|"
    r"(?:Install|Upgrade|Downgrade|Update|Set|Use|Pass|Run|Add|Disable|Enable|Reduce|Increase|Decrease|Specify|"
    r"Remove|Rebuild|Reinstall|Make sure|Ensure) |"
    r"(?:[Oo]ne )?(?:[Pp]otential|[Pp]ossible) (?:fix|solution|workaround) is |"
    r"To (?:work ?around|fix|resolve|avoid|disable) (?:this|it)\b|"
    r"(?:install|upgrade|set|use|pass|disable|enable) (?:[`'\"]|--|[A-Z_]{4,}=?)"
    r")[^\n]{4,200}?)(?=[.!]?$|[.!] [A-Z]|; )"
)
# These report to PyTorch or debug it, and mend nothing.
_NO_ADVICE = re.compile(
    r"report a bug|stack ?trace|TORCH_USE_CUDA_DSA|CUDA_LAUNCH_BLOCKING|NCCL_DEBUG|root cause"
)
_MESSAGE_LINES = 10
# The next traceback, or a report of another process.
_OTHER = re.compile(r"Traceback|During handling|The above exception|\w*(?:Error|Exception): |Received sig")
# Calls that lead to every component.
_FORWARDS = re.compile(r"^(?:torch/(?:_ops|nn/|utils/|_compile)|contextlib|functools|vllm/tracing/)")
_PACKAGE = re.compile(
    r"(?:vllm|sglang|tensorrt_llm|flashinfer|sgl_kernel|lmcache|transformers|compressed_tensors)(?=/)"
)
# Errors of Python's own that correct code does not raise, whatever the model and the flags are.
_OF_CODE = re.compile(
    r"(?:Attribute|Type|Name|UnboundLocal|Import|Recursion|Key|Index)Error\b|AssertionError(?:: assert\b|$)"
)
_OF_USE = re.compile(r"cannot open shared object|undefined symbol|must be str, bytes or os.PathLike")
_SIZES = re.compile(r"(?:tensor a|size|length) \((\d+)\).{0,60}?(?:tensor b|size) \((\d+)\)")
_SHAPES = re.compile(r"torch\.Size\(\[(\d+(?:, \d+)*)\]\)")
_PAIR = 2
_REPEATS = 2
_MOST_TRIED = 6
_NAMED = re.compile(r"--[a-z][a-z0-9-]{2,50}|\b[a-z][a-z0-9]{1,20}(?:_[a-z0-9]{1,20}){1,6}\b")
"""Flags, and settings with an underscore, because a plain word is more often not a setting."""
_MOST_NAMED = 12
_MOST_WAYS = 3
_CHATTER = re.compile(
    r"warnings\.warn|resource_tracker|^\s|^Traceback|it/s|%\||deprecated|FutureWarning|\^\^|"
    r"^[\w.]*(?:Error|Exception)\b"
)
_MATTERS = re.compile(
    r"only support|not support|unsupported|requires?\b|incompatib|mismatch|too old|cannot|can't|unable|"
    r"fail|\berror encountered|\b0 active|not installed",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Context:
    """Where an error comes from, in words; each is None if the lines do not show it."""

    component: str | None = None
    """The part of the engine in which the traceback ends, such as FlashInfer's sampler."""
    last_call: str | None = None
    """The innermost call of the traceback in a package of the engine: file and function."""
    instead: str | None = None
    """Flags that choose another component."""
    above: str | None = None
    """A warning before the error, with its count."""
    step: str | None = None
    """The line of the last step of the start before the error."""
    step_fix: str | None = None
    """What to type if that step hangs or is killed."""
    advice: str | None = None
    """A sentence of the error that tells its reader what to do."""
    distribution: str | None = None
    """The installed distribution that has the module which the error names."""
    cuda_error: str | None = None
    """The error of CUDA that the line reports: number, name and meaning."""
    cuda_fix: str | None = None
    """What to do about that error."""
    nccl: str | None = None
    """The version of NCCL that the log shows."""
    switched: str | None = None
    """Flags of the log that concern that component."""
    tried: str | None = None
    """Other flags of the log that concern a component."""
    version_fault: str | None = None
    """What to do if the error is usually a defect of the engine's version."""
    engine_version: str | None = None
    """The engine and its version, such as vLLM 0.33.0."""
    enabled: str | None = None
    """Optimizations that the engine reports to have switched on by itself."""
    mentioned: str | None = None
    """Flags of the log that the error's own sentence names, and those that concern its component."""
    about: str | None = None
    """How to start without the features that the error's own sentence names."""
    driver: str | None = None
    """The version of the NVIDIA driver that the log shows."""
    halved: str | None = None
    """What it shows that one size of the error is twice the other."""
    utilization: str | None = None
    """The share of GPU memory that the engine may use, in words."""
    less_share: str | None = None
    """The flag of that share with a smaller value."""
    near_flag: str | None = None
    """What medley knows about a flag that the engine refused."""
    extension: str | None = None
    """The compiled extension whose function failed, such as _vllm_fa2_C (varlen_fwd)."""
    draft: str | None = None
    """That the draft model of speculative decoding is the model itself."""
    l4t: str | None = None
    """The releases of L4T of the host and of its container image, if their JetPacks differ."""
    l4t_image: str | None = None
    """The image to take for that host."""
    weights: str | None = None
    """The size of the weights, and of the GPU's memory."""
    exceeds: str | None = None
    """Why no share or context makes the weights fit."""
    filled: str | None = None
    """How much of the GPU the process alone has filled."""
    others: str | None = None
    """How much of it other processes hold."""
    smaller: str | None = None
    """What would fit, to type."""
    larger_share: str | None = None
    """The least share of the GPU that leaves room for a small KV cache."""


class Around(NamedTuple):
    """Lines before and after an error, as the log has them."""

    before: Sequence[bytes]
    after: Sequence[bytes] = ()


@dataclass(frozen=True)
class Facts:
    """What the whole log shows: `flags`: those that select a component, with what to type for each."""

    engine: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    nccl: str | None = None
    version: str | None = None
    enabled: tuple[str, ...] = ()
    arguments: str = ""
    """The text in which the engine printed its arguments."""
    driver: str | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    """Figures of memory and releases of L4T, by the groups of events.TURNS."""


def read_context(around: Around, said: LogLine, known: Known, log: Facts) -> Context:
    """Return the context of the line `said` from the lines around it, of the same rank."""
    before = around.before
    texts = [decoded(each[:_LONGEST]) for each in before[-LINES:]]
    near = [each for each in map(line, texts) if each.rank in (None, said.rank) or each.nccl]
    # The calls before another process's report are not those of the error.
    calls = [] if said.wrapped else list(_calls(near)) or _calls_below(around.after, said)
    places = [f"{file}, {function}" for file, function in reversed(calls)]
    # The text may name what did not fail, such as a missing kernel's library.
    worded = [each for each in known.components if each.worded or not calls]
    found = _components(places, known.components) or _components([said.text], worded)
    shown = "\n".join([*texts, said.text])
    instead = [each.alternative(shown, log.engine) for each in found]
    # The message may name a part whose code did not fail, such as "dcp_world_size".
    concerned = [*found, *(each for each in known.components if each.expression.search(said.text[:_LONGEST]))]
    switched = {log.flags[flag]: None for each in concerned for flag in each.flags if flag in log.flags}
    last_call = _last_call(calls)
    step = last_phase(texts, known.phases)
    step = None if step and step.phase.complete else step
    error = read_cuda_error(said.text, known.cuda_errors)
    return Context(
        ", inside ".join(each.name for each in found) or None,
        last_call,
        "; or: ".join(filter(None, instead)) or None,
        printed_warning(near),
        step.message if step else None,
        for_engine(step.phase.fix, log.engine).replace("\n", "; ") if step else None,
        _advice(said.text) or _advice_below(around.after, said),
        _distribution(said.text, calls),
        f"{error.meaning} ({error.name}, {error.code})" if error else None,
        for_engine(error.fix or "", log.engine) or None if error else None,
        log.nccl,
        " and ".join(switched) or None,
        _tried(log, switched),
        _version_fault(said.text, last_call),
        log.version,
        "; ".join(log.enabled) or None,
        " and ".join({**_mentioned(said.text, log), **switched}) or None,
        _about(said.text, known.components, log.engine),
        log.driver,
        _halved(said.text),
        *read_share(said.text, log.arguments, log.engine),
        explain_flags(said.text, log.engine, engine_flags()),
        find_extension(said.text, [each.text for each in near]),
        find_own_draft(log.arguments, log.engine),
        *compare_releases(log.facts),
        *explain_fit(said.text, log.facts, log.arguments),
    )


def read_places(around: Around, said: LogLine, phases: Sequence[Phase]) -> list[str]:
    """Return the calls of an error's traceback, as `FILE, FUNCTION`, or without one the last step."""
    texts = [decoded(each[:_LONGEST]) for each in around.before[-LINES:]]
    near = (each for each in map(line, texts) if each.rank in (None, said.rank))
    places = [f"{file}, {function}" for file, function in [*_calls(near), *_calls_below(around.after, said)]]
    step = None if places else last_phase(texts, phases)
    return [step.message] if step and not step.phase.complete else places


def _calls(lines: Iterable[LogLine]) -> Iterator[tuple[str, str]]:
    frames = (_FRAME.match(each.text) for each in lines)
    return ((found["file"].replace("\\", "/"), found["function"]) for found in frames if found)


def _calls_below(after: Sequence[bytes], said: LogLine) -> list[tuple[str, str]]:
    """Return the calls right below an error, because some reports quote it before its traceback."""
    lines = [line(decoded(each[:_LONGEST])) for each in after]
    below = [each for each in lines if each.rank in (None, said.rank) and each.text.strip()]
    if not (below and _FRAME.match(below[0].text)):
        return []
    return list(_calls(takewhile(lambda each: each.text[:1].isspace(), below)))


def _components(places: Iterable[str], components: Sequence[Component]) -> list[Component]:
    """Return the component of the first place that has one, and an outer one of a later place."""
    named = [(at, each) for at, place in enumerate(places) if (each := _component(place, components))]
    every = [each for at, each in named if at == 0 or not each.carries]
    found = [each for each in every if not each.weak] or every
    return [*found[:1], *[each for each in found[1:] if each.outer and each != found[0]][:1]]


def _component(place: str, components: Sequence[Component]) -> Component | None:
    return next((each for each in components if each.expression.search(place)), None)


def _last_call(calls: Sequence[tuple[str, str]]) -> str | None:
    for file, function in reversed(calls):
        package = _INSTALLED.match(file) or _OWN.match(file)
        if package and not _FORWARDS.match(package["file"]):
            return f"{package['file']}, {function}"
    return None


def _tried(log: Facts, switched: Collection[str]) -> str | None:
    """Return other flags of the log to leave out; SGLang prints the backends that it chose itself."""
    flags = [typed for flag, typed in log.flags.items() if log.engine != SGLANG or "-backend" not in flag]
    return ", ".join([each for each in flags if each not in switched][:_MOST_TRIED]) or None


def _mentioned(text: str, log: Facts) -> dict[str, None]:
    """Return what to type for the flags that the sentence names and the log sets."""
    words = (each.strip("-").replace("_", "-") for each in _NAMED.findall(text[:_LONGEST]))
    names = list(dict.fromkeys(f"--{each}" for each in words))[:_MOST_NAMED]
    return dict.fromkeys(read_flags(log.arguments, names).values())


def _about(text: str, components: Sequence[Component], engine: str | None) -> str | None:
    """Return how to start without the features that the sentence names."""
    named = [each for each in components if each.worded and each.expression.search(text[:_LONGEST])]
    ways = dict.fromkeys(filter(None, (each.alternative(text, engine) for each in named)))
    return "; or ".join(list(ways)[:_MOST_WAYS]) or None


def _version_fault(text: str, last_call: str | None) -> str | None:
    """Return what to do about an error of Python in a call of the engine's own package."""
    own = last_call and _PACKAGE.match(last_call)
    if not own or not _OF_CODE.match(text) or _OF_USE.search(text):
        return None
    return (
        f"such an error in the code of {own[0]} itself is mostly a defect of this version, for a combination "
        "of flags, or a package that does not match it: try a newer version, or the one before "
        "(medley env build, medley serve MODEL --image IMAGE)"
    )


def _halved(text: str) -> str | None:
    """Return what it shows if one size of an error of shapes is twice the other."""
    sizes = _SIZES.search(text)
    one, other = sorted(map(int, sizes.groups())) if sizes else _unlike_sizes(text)
    if one == 0 or other != 2 * one:
        return None
    return (
        f"{other} is twice {one}, as where one side has two 4-bit values in a byte and the other one value, "
        "or where two parts are fused: this tensor and the engine's layer are of different quantization"
    )


def _unlike_sizes(text: str) -> tuple[int, int]:
    """Return the only two sizes in which two shapes of a line differ, the smaller one first, else 0 and 1."""
    shapes = [[int(each) for each in found.split(",")] for found in _SHAPES.findall(text[:_LONGEST])]
    if len(shapes) != _PAIR or len(shapes[0]) != len(shapes[1]):
        return 0, 1
    unlike = [(min(pair), max(pair)) for pair in zip(*shapes, strict=True) if pair[0] != pair[1]]
    return unlike[0] if len(unlike) == 1 else (0, 1)


def _advice(text: str) -> str | None:
    sentences = (found["advice"].strip() for found in _ADVICE.finditer(text[:2000]))
    return next((each[:200] for each in sentences if not _NO_ADVICE.search(each)), None)


def _advice_below(after: Sequence[bytes], said: LogLine) -> str | None:
    """Return the advice in further lines of an exception's message, before another line with a level."""
    lines = (line(decoded(each[:_LONGEST])) for each in after[:_MESSAGE_LINES])
    own = takewhile(
        lambda each: each.level in (None, said.level) and not _OTHER.match(each.text),
        (each for each in lines if each.rank in (None, said.rank)),
    )
    return next((found for each in own if (found := _advice(each.text))), None)


def _distribution(text: str, calls: Sequence[tuple[str, str]]) -> str | None:
    """Return the folder of site-packages that has the module of an error, as its distribution is named."""
    module = _MODULE.search(text)
    for file, _ in reversed(calls if module else ()):
        folders = (_INSTALLED.match(file) or {"file": ""})["file"].split("/")
        if module and module["top"] in folders[:-1]:
            return folders[0].replace("_", "-")
    return None


def printed_warning(near: Sequence[LogLine]) -> str | None:
    """Return the warning that says most: one that repeats, else the last that names a defect."""
    said = [each.text.strip() for each in near if _is_warning(each)]
    counts = Counter(said)
    repeated = next((text for text in reversed(said) if counts[text] >= _REPEATS), None)
    best = repeated or next(iter(reversed(said)), None)
    if best is None:
        return None
    times = f" ({counts[best]} times)" if counts[best] > 1 else ""
    return f"{best[:200]}{times}"


def _is_warning(each: LogLine) -> bool:
    """Whether a line is a warning about a defect, or one that native code prints without a level."""
    if each.level not in (WARNING, None) or _CHATTER.search(each.text):
        return False
    return (each.nccl and each.level == WARNING) or bool(_MATTERS.search(each.text))
