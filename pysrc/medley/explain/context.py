"""Read the lines before an error: the calls of its traceback, repeated warnings and the last phase."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import takewhile

from medley.explain.advice import find_advice, find_advice_below
from medley.explain.code_faults import explain_halved_size, explain_version_fault
from medley.explain.computed_numbers import explain_number
from medley.explain.cuda_errors import read_cuda_error
from medley.explain.draft_model import find_own_draft
from medley.explain.engine_advice import keep_engine_parts
from medley.explain.extensions import find_extension
from medley.explain.flag_names import explain_flags
from medley.explain.flags import read_flags
from medley.explain.gpu_share import read_share
from medley.explain.gpu_target import compare_target
from medley.explain.hosts import read_hosts
from medley.explain.jetson_release import compare_releases
from medley.explain.kernel_choice import find_kernel
from medley.explain.lines import SGLANG, WARNING, LogLine, cut_at_blank, decode, decode_start, parse_line
from medley.explain.loaders import find_loader
from medley.explain.log_facts import LogFacts, NearbyLines
from medley.explain.memory_fit import explain_fit
from medley.explain.package_border import find_border
from medley.explain.patterns import Component, KnownFailures, Phase, read_engine_flags
from medley.explain.phases import find_last_phase
from medley.explain.remedies import find_remedy
from medley.explain.skipped_imports import find_skipped_part
from medley.explain.toolkit_packages import find_toolkit_package
from medley.values import Value

CONTEXT_LINES = 60
"""Lines before an error that belong to it."""
_MAX_LINE_CHARS = 400
_MAX_WARNING_CHARS = 200
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+,? in (?P<function>[^\s,]+)')
_PACKAGE_FILE = re.compile(r".*(?:site|dist)-packages/(?P<file>.+)")
# The innermost folder, because an environment's own may have the same name.
_ENGINE_FILE = re.compile(r"(?:.*/)?(?P<file>(?:vllm|sglang|flashinfer|tensorrt_llm)/.+)")
_MODULE = re.compile(r"\b(?:module|from) '(?P<top>\w+)")
# Calls that lead to every component.
_FORWARDING_CALL = re.compile(r"^(?:torch/(?:_ops|nn/|utils/|_compile)|contextlib|functools|vllm/tracing/)")
_MIN_REPEATS = 2
_MAX_TRIED_FLAGS = 6
_FLAG_WORD = re.compile(r"--[a-z][a-z0-9-]{2,50}|\b[a-z][a-z0-9]{1,20}(?:_[a-z0-9]{1,20}){1,6}\b")
"""Flags, and settings with an underscore, because a plain word is more often not a setting."""
_MAX_MENTIONED_FLAGS = 12
_MAX_ALTERNATIVES = 3
_CHATTER = re.compile(
    r"warnings\.warn|resource_tracker|^\s|^Traceback|it/s|%\||deprecated|FutureWarning|\^\^|"
    r"^[\w.]*(?:Error|Exception)\b"
)
_DEFECT_WORDS = re.compile(
    r"only support|not support|unsupported|requires?\b|incompatib|mismatch|too old|cannot|can't|unable|"
    r"fail|\berror encountered|\b0 active|not installed",
    re.IGNORECASE,
)


class Context(Value):
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
    """A sentence for a draft model of speculative decoding that is the model itself."""
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
    perhaps_others: str | None = None
    """A clause for other programs that may hold memory, unless the error excludes it."""
    border: str | None = None
    """Two packages, where one calls the other with an argument that it does not know."""
    computed: str | None = None
    """Where a refused number comes from that no option sets."""
    budget_fix: str | None = None
    """Values that make that number positive."""
    remedy: str | None = None
    """An earlier warning about the package that failed, with its remedy."""
    ray_address: str | None = None
    """The address of Ray's cluster that the log shows."""
    skipped: str | None = None
    """An import that failed at the start, and that the error follows from."""
    skipped_fix: str | None = None
    """How to mend that import."""
    one_host: str | None = None
    """The number of ranks, if all are on one host."""
    several_hosts: str | None = None
    """The number of hosts, if there are several."""
    ring: str | None = None
    """Three hosts or more with two RDMA ports each, and the ports."""
    tuning: str | None = None
    """How to tune the kernels of that component for this GPU."""
    chosen_kernel: str | None = None
    """The kernel of that component that the log names."""
    kernel_fix: str | None = None
    """How to take a kernel of another family."""
    any_kernel: str | None = None
    """The flags of all kinds of kernels, where the calls name no component."""
    loader: str | None = None
    """The loader of weights, where it is not the engine's default."""
    gid_index: str | None = None
    """The value of NCCL_IB_GID_INDEX that the log shows."""
    toolkit_package: str | None = None
    """The package of the CUDA toolkit that has the header or library of the error."""
    own_target: str | None = None
    """The GPU of the log, if the architecture that a compiler refuses is its own."""
    other_target: str | None = None
    """The GPU of the log, if that architecture is another one's."""
    compiled_file: str | None = None
    """The source file whose build asks for that architecture."""


def read_context(around: NearbyLines, error: LogLine, known: KnownFailures, log: LogFacts) -> Context:
    """Return the context of the line `error` from the lines around it, of the same rank."""
    before = around.before
    texts = [decode_start(raw, _MAX_LINE_CHARS) for raw in before[-CONTEXT_LINES:]]
    nearby = [line for line in map(parse_line, texts) if line.rank in (None, error.rank) or line.nccl]
    # The calls before another process's report are not those of the error.
    calls: list[tuple[str, str]] = []
    if not error.is_worker_report:
        calls = list(_read_calls(nearby)) or _read_calls_below(around.after, error)
    places = [f"{file}, {function}" for file, function in reversed(calls)]
    # The text may name what did not fail, such as a missing kernel's library.
    worded = [component for component in known.components if component.worded or not calls]
    reported = (
        _find_components(places, known.components)
        or _find_components(_read_innermost_code(nearby, calls), known.components)
        or _find_components([error.text], worded)
    )
    text_before = "\n".join([*texts, error.text])
    alternatives = [component.alternative(text_before, log.engine) for component in reported]
    # The message may name a part whose code did not fail, such as "dcp_world_size".
    concerned = [
        *reported,
        *(
            component
            for component in known.components
            if component.expression.search(error.text[:_MAX_LINE_CHARS])
        ),
    ]
    chosen_flags = {
        log.flags[flag]: None for component in concerned for flag in component.flags if flag in log.flags
    }
    last_call = _find_last_call(calls)
    hosts = read_hosts(log.figures, log.arguments)
    step = find_last_phase(texts, known.phases, groups=hosts._asdict())
    step = None if step and step.phase.complete else step
    cuda_error = read_cuda_error(error.text, known.cuda_errors)
    utilization, less_share = read_share(error.text, log.arguments, log.engine)
    return Context(
        component=", inside ".join(component.name for component in reported) or None,
        last_call=last_call,
        instead="; or: ".join(filter(None, alternatives)) or None,
        above=find_warning(nearby),
        step=step.message if step else None,
        step_fix=keep_engine_parts(step.phase.fix, log.engine).replace("\n", "; ") if step else None,
        advice=find_advice(error.text) or find_advice_below(around.after, error),
        distribution=_find_distribution(error.text, calls),
        cuda_error=f"{cuda_error.meaning} ({cuda_error.name}, {cuda_error.code})" if cuda_error else None,
        cuda_fix=keep_engine_parts(cuda_error.fix or "", log.engine) or None if cuda_error else None,
        nccl=log.nccl,
        switched=" and ".join(chosen_flags) or None,
        tried=_list_other_flags(log, chosen_flags),
        version_fault=explain_version_fault(error.text, last_call),
        engine_version=log.version,
        enabled="; ".join(log.enabled) or None,
        mentioned=" and ".join({**_read_mentioned_flags(error.text, log), **chosen_flags}) or None,
        about=_list_alternatives(error.text, known.components, log.engine),
        driver=log.driver,
        halved=explain_halved_size(error.text),
        utilization=utilization,
        less_share=less_share,
        near_flag=explain_flags(error.text, log.engine, read_engine_flags()),
        extension=find_extension(error.text, [line.text for line in nearby]),
        draft=find_own_draft(log.arguments, log.engine),
        **compare_releases(log.figures)._asdict(),
        **explain_fit(error.text, log.figures, log.arguments)._asdict(),
        remedy=find_remedy(error.text, [last_call] if last_call else [], log.remedies),
        ray_address=_find_ray_address(around.after, error, log),
        **find_skipped_part(error.text, log.skipped)._asdict(),
        **hosts._asdict(),
        tuning=keep_engine_parts(reported[0].tuning or "", log.engine) or None if reported else None,
        **find_kernel(log.figures, reported[0].name if reported else None, log.engine, error.text)._asdict(),
        border=find_border(error.text, calls, log.arguments, texts),
        **explain_number(error.text, log.arguments, log.figures)._asdict(),
        loader=find_loader(log.figures, log.arguments),
        gid_index=log.figures.get("gid_index"),
        toolkit_package=find_toolkit_package(error.text),
        **compare_target(error.text, log.figures, before)._asdict(),
    )


def read_places(around: NearbyLines, error: LogLine, phases: Sequence[Phase]) -> list[str]:
    """Return the calls of an error's traceback, as `FILE, FUNCTION`, or without one the last step."""
    texts = [decode(raw[:_MAX_LINE_CHARS]) for raw in around.before[-CONTEXT_LINES:]]
    nearby = (line for line in map(parse_line, texts) if line.rank in (None, error.rank))
    places = [
        f"{file}, {function}"
        for file, function in [*_read_calls(nearby), *_read_calls_below(around.after, error)]
    ]
    step = None if places else find_last_phase(texts, phases)
    return [step.message] if step and not step.phase.complete else places


def _find_ray_address(after: Sequence[bytes], error: LogLine, log: LogFacts) -> str | None:
    """Return the address of Ray's cluster, unless the request of the error names the same one."""
    address = log.figures.get("ray_address")
    request = "\n".join([error.text, *map(decode, after[:1])])
    return None if f"node:{address}'" in request else address


def _read_calls(lines: Iterable[LogLine]) -> Iterator[tuple[str, str]]:
    frames = (_FRAME.match(line.text) for line in lines)
    return ((frame["file"].replace("\\", "/"), frame["function"]) for frame in frames if frame)


def _read_innermost_code(lines: Sequence[LogLine], calls: Sequence[tuple[str, str]]) -> list[str]:
    """Return the line of source code below the last call."""
    last = max((at for at, line in enumerate(lines) if _FRAME.match(line.text)), default=len(lines))
    return [line.text.strip() for line in lines[last + 1 : last + 2] if calls and line.text[:1].isspace()]


def _read_calls_below(after: Sequence[bytes], error: LogLine) -> list[tuple[str, str]]:
    """Return the calls right below an error, because some reports quote it before its traceback."""
    lines = [parse_line(decode(raw[:_MAX_LINE_CHARS])) for raw in after]
    below = [line for line in lines if line.rank in (None, error.rank) and line.text.strip()]
    if not (below and _FRAME.match(below[0].text)):
        return []
    return list(_read_calls(takewhile(lambda line: line.text[:1].isspace(), below)))


def _find_components(places: Iterable[str], components: Sequence[Component]) -> list[Component]:
    """Return the component of the first place that has one, and an outer one of a later place."""
    numbered = [
        (at, component)
        for at, place in enumerate(places)
        if (component := _find_component(place, components))
    ]
    eligible = [component for at, component in numbered if at == 0 or not component.carries]
    preferred = [component for component in eligible if not component.weak] or eligible
    return [
        *preferred[:1],
        *[component for component in preferred[1:] if component.outer and component != preferred[0]][:1],
    ]


def _find_component(place: str, components: Sequence[Component]) -> Component | None:
    return next((component for component in components if component.expression.search(place)), None)


def _find_last_call(calls: Sequence[tuple[str, str]]) -> str | None:
    for file, function in reversed(calls):
        package = _PACKAGE_FILE.match(file) or _ENGINE_FILE.match(file)
        if package and not _FORWARDING_CALL.match(package["file"]):
            return f"{package['file']}, {function}"
    return None


def _list_other_flags(log: LogFacts, excluded: Collection[str]) -> str | None:
    """Return other flags of the log to leave out; SGLang prints the backends that it chose itself."""
    flags = [
        flag_text for flag, flag_text in log.flags.items() if log.engine != SGLANG or "-backend" not in flag
    ]
    return (
        ", ".join([flag_text for flag_text in flags if flag_text not in excluded][:_MAX_TRIED_FLAGS]) or None
    )


def _read_mentioned_flags(text: str, log: LogFacts) -> dict[str, None]:
    """Return what to type for the flags that the sentence names and the log sets."""
    words = (word.strip("-").replace("_", "-") for word in _FLAG_WORD.findall(text[:_MAX_LINE_CHARS]))
    names = list(dict.fromkeys(f"--{word}" for word in words))[:_MAX_MENTIONED_FLAGS]
    return dict.fromkeys(read_flags(log.arguments, names).values())


def _list_alternatives(text: str, components: Sequence[Component], engine: str | None) -> str | None:
    """Return how to start without the features that the sentence names."""
    matching = [
        component
        for component in components
        if component.worded and component.expression.search(text[:_MAX_LINE_CHARS])
    ]
    alternatives = dict.fromkeys(
        filter(None, (component.alternative(text, engine) for component in matching))
    )
    return "; or ".join(list(alternatives)[:_MAX_ALTERNATIVES]) or None


def _find_distribution(text: str, calls: Sequence[tuple[str, str]]) -> str | None:
    """Return the folder of site-packages that has the module of an error, as its distribution is named."""
    module = _MODULE.search(text)
    for file, _ in reversed(calls if module else ()):
        folders = (_PACKAGE_FILE.match(file) or {"file": ""})["file"].split("/")
        if module and module["top"] in folders[:-1]:
            return folders[0].replace("_", "-")
    return None


def find_warning(lines: Sequence[LogLine]) -> str | None:
    """Return the warning that says most: one that repeats, else the last that names a defect."""
    warnings = [line.text.strip() for line in lines if _is_warning(line)]
    counts = Counter(warnings)
    repeated = next((text for text in reversed(warnings) if counts[text] >= _MIN_REPEATS), None)
    best = repeated or next(iter(reversed(warnings)), None)
    if best is None:
        return None
    times = f" ({counts[best]} times)" if counts[best] > 1 else ""
    return f"{cut_at_blank(best, _MAX_WARNING_CHARS)}{times}"


def _is_warning(line: LogLine) -> bool:
    """Whether a line is a warning about a defect, or one that native code prints without a level."""
    if line.level not in (WARNING, None) or _CHATTER.search(line.text):
        return False
    return (line.nccl and line.level == WARNING) or bool(_DEFECT_WORDS.search(line.text))
