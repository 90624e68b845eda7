"""Convert a whole recipe of sparkrun to a medley command."""

import difflib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from medley.command import Command
from medley.errors import Problem
from medley.host import hypothetical
from medley.host_schema import ENGINE_TABLES
from medley.schema import (
    DEFAULT_ENGINE,
    REPOSITORY,
    TITLES,
    EngineName,
    flag_refusal,
)
from medley.serving.community_recipe import Entry, engine_flag, option
from medley.serving.community_recipe.defaults import generated, without_flag, without_placeholder
from medley.serving.community_recipe.document import Value, document, tables
from medley.serving.community_recipe.engine_flags import Source, flag_entries, named_model
from medley.serving.community_recipe.other_formats import reading
from medley.serving.community_recipe.recipe_keys import (
    RULES,
    SIZES,
    host_entries,
    on_one_host,
    other_entries,
    version_entries,
)
from medley.serving.community_recipe.shell_command import (
    EngineCommand,
    engine_command,
    filled,
    needs_shell,
    used,
)
from medley.serving.community_recipe.variables import variables

_ENGINES: Mapping[str, EngineName] = {
    **dict.fromkeys(("", "vllm", "vllm-ray", "vllm-distributed", "eugr-vllm"), "vllm"),
    "sglang": "sglang",
}
_SHELL = RULES["pre_exec"][1]
_WRAPPED = "it starts the command in the recipe's way, and medley starts the engine itself"
_PORT = "8000"
_PLANNED = {"--context", "--kv-type", "--eplb"}
_RTX = re.compile(r"\bRTX\b|\brtx[-_ ]|\b[45]090\b", re.IGNORECASE)


@dataclass(frozen=True)
class Imported:
    model: str
    engine: EngineName
    entries: tuple[Entry, ...]
    image: str = ""
    kind: str = "spark"
    """The kind of host that it is for."""

    def words(self, part: str) -> tuple[str, ...]:
        return tuple(chain.from_iterable(each.becomes for each in self.entries if each.part == part))

    @property
    def left_out(self) -> tuple[Entry, ...]:
        return tuple(each for each in self.entries if each.outcome == "refused")

    @property
    def of_fork(self) -> tuple[Entry, ...]:
        """What the recipe's image has, and the engine's release has not."""
        return tuple(each for each in self.entries if each.fork)

    @property
    def command(self) -> Command:
        """The command that serves the model, with its variables."""
        flags = self.words("flag")
        engine = () if self.engine == DEFAULT_ENGINE else ("--engine", self.engine)
        argv = (
            "medley",
            "serve",
            self.model,
            *engine,
            *self.words("option"),
            *(("--", *flags) if flags else ()),
        )
        return Command(argv, dict(each.split("=", 1) for each in self.words("variable")))

    @property
    def plan(self) -> Command:
        """The command that checks whether it fits the hosts that it is for, DGX Sparks or RTX."""
        options = {each.becomes[0]: each.becomes for each in self.entries if each.part == "option"}
        kept = chain.from_iterable(words for name, words in options.items() if name in {*SIZES, *_PLANNED})
        count = math.prod(int(options[name][1]) for name in SIZES if name in options)
        engine = () if self.engine == DEFAULT_ENGINE else ("--engine", self.engine)
        most = min(count, hypothetical.MAX_HOSTS)
        argv = ("medley", "plan", self.model, *engine, *kept, "--hosts", f"{self.kind}:{most}")
        # Without it a context beyond config.json's is refused.
        longer = ENGINE_TABLES[self.engine].context_variable
        return Command(argv, {name: value for name, value in self.command.env.items() if name == longer})


def imported(raw: bytes, where: str) -> Imported:
    """Read a recipe, or a command line; raise a Problem where medley could not serve its model."""
    read = reading(document(raw, where), where)
    recipe = read.recipe
    pasted = set(recipe) == {"command"}
    command = _pasted(str(recipe["command"]), where) if pasted else None
    model = command.model if command and command.model else _model(recipe, where)
    defaults = tables(recipe, "defaults", where)
    command, entries = _command(recipe, Source(model, _image(recipe)), defaults, where)
    found = (
        *version_entries(recipe, where),
        *host_entries(recipe),
        *entries,
        *_revision(recipe, command),
        *_environment(recipe, command, defaults, where),
        *_container(recipe, command),
        *_unsaid(command, entries),
        *other_entries(recipe),
        *read.entries,
    )
    image = command.container.image if command.container else _image(recipe)
    kind = (
        "rtx"
        if _RTX.search(f"{recipe.get('name')} {recipe.get('metadata')} {recipe.get('container')}")
        else "spark"
    )
    return Imported(model, command.engine, tuple(on_one_host(tuple(_last(found)), kind)), image, kind)


def _pasted(text: str, where: str) -> EngineCommand:
    """Read a command line; raise a Problem where only its author knows the model."""
    found = engine_command(text, where)
    named = next((flag for flag in found.flags if flag.name in {"--model", "--model-path"}), None)
    model = found.model or (named.values[0] if named and named.values else None)
    if model and _is_repository(model):
        return replace(found, model=model)
    folder = re.search(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/", model or "")
    if folder:
        return replace(found, model=f"{folder[1]}/{folder[2]}")
    if found.container and model and (mounted := found.container.repository(model)):
        return replace(found, model=mounted)
    old, mounts = model or "MODEL", found.container.mounts if found.container else ()
    cause = f"it names {model}, which is on its author's host" if model else "it names none"
    if "gguf" in old.lower():
        cause = f"{model} is GGUF, and medley serves only safetensors"
    mounted = f"; it mounts {', '.join(mounts)}" if mounts and model and model.startswith("/") else ""
    raise Problem(
        f"{where} does not say which repository its model is",
        cause=f"{cause}{mounted}",
        fix=f"write ORG/NAME in place of {old}, then: medley models import {where}",
    )


def _is_repository(model: str) -> bool:
    """Whether it is a repository of the hub that may have safetensors: no folder, no GGUF, no $NAME."""
    is_gguf = model.lower().endswith("gguf")
    return re.fullmatch(REPOSITORY, model) is not None and model[0].isalnum() and not is_gguf


def _image(recipe: Mapping[str, object]) -> str:
    found = recipe.get("container")
    return found if isinstance(found, str) else ""


def _environment(
    recipe: Mapping[str, object], command: EngineCommand, defaults: Mapping[str, Value], where: str
) -> Iterator[Entry]:
    """Yield the variables of the table and those before the command."""
    flags = {flag.name for flag in command.flags}
    values = {f"config.{key}": value for key, value in defaults.items()}
    table = {
        name: filled(_text(value), values, where) for name, value in tables(recipe, "env", where).items()
    }
    yield from variables(table, command.engine, flags)
    yield from variables(command.assigned, command.engine, flags, "command ")


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _container(recipe: Mapping[str, object], command: EngineCommand) -> Iterator[Entry]:
    """Yield what becomes of the recipe's image, or of docker's part of a command."""
    why = "medley runs the engine of its own environment; to use the image: --image"
    if image := _image(recipe):
        yield Entry("container", "decided", f"{why} {shlex.quote(image)}")
    elif recipe.get("container"):
        yield Entry("container", "decided", f"{why} IMAGE")
    if run := command.container:
        image = "IMAGE" if needs_shell(run.image) else shlex.quote(run.image)
        yield Entry("command docker run", "decided", f"{why} {image}")
        for name in run.inherited:
            yield Entry(f"command -e {name}", "refused", "its value is the author's shell's: export your own")
        for file in run.files:
            yield Entry(
                "command --env-file", "refused", f"{file} is a file of the author: set its variables yourself"
            )


def _unsaid(command: EngineCommand, entries: Sequence[Entry]) -> Iterator[Entry]:
    """Yield what differs where the recipe is silent: the engine's own defaults are not medley's."""
    options = {each.becomes[0]: each for each in entries if each.part == "option"}
    named = {each.key for each in entries}
    run = command.container
    if run and run.ports:
        inside = options["--port"].becomes[1] if "--port" in options else _PORT
        outer = run.port_of_host(inside)
        if outer and ("--port" not in options or outer != inside):
            why = f"{outer} is the port that the host publishes"
            yield option("command -p", "--port", outer, why=why, changed=outer != inside)
    if "--host" not in options:
        why = "the engine would listen on every address, medley on 127.0.0.1; to open the API: --host 0.0.0.0"
        yield Entry("command without --host", "decided", why)
    if "--context" not in options and not named & {"command --max-model-len", "command --context-length"}:
        why = "the engine takes the model's whole context, medley 8192 and more if it fits: --context"
        yield Entry("command without --max-model-len", "decided", why)


def _last(entries: tuple[Entry, ...]) -> Iterator[Entry]:
    """Keep the last of repeated options, like the engines' parsers."""
    last = {each.becomes[0]: nth for nth, each in enumerate(entries) if each.part == "option"}
    for nth, each in enumerate(entries):
        if each.part == "option" and last[each.becomes[0]] != nth:
            yield Entry(each.key, "unused", f"{' '.join(each.becomes)} is repeated, and the last one counts")
        else:
            yield each


def _model(recipe: Mapping[str, object], where: str) -> str:
    model = recipe.get("model")
    if isinstance(model, str) and _is_repository(model):
        return model
    if model is None:
        near = difflib.get_close_matches("model", list(recipe), n=1)
        fix = f"rename '{near[0]}' to 'model'" if near else f"add 'model: ORG/NAME' to {where}"
        raise Problem(f"{where}: 'model' is missing", cause="every recipe names its model", fix=fix)
    gguf = " (GGUF)" if "gguf" in str(model).lower() else ""
    raise Problem(
        f"{where}: medley cannot serve the model {str(model)[:80]}{gguf}",
        cause="medley serves only safetensors of a repository ORG/NAME",
        fix=f"write the repository of its safetensors into {where}: model: ORG/NAME",
    )


def _command(
    recipe: Mapping[str, object], source: Source, defaults: Mapping[str, Value], where: str
) -> tuple[EngineCommand, tuple[Entry, ...]]:
    """Return the engine's command, and the outcomes of its flags, its variables and the defaults."""
    runtime = str(recipe.get("runtime") or "")
    if runtime not in _ENGINES:
        raise Problem(
            f"{where}: medley does not have the runtime {runtime!r}",
            cause=f"it has vLLM and SGLang, which sparkrun calls {', '.join(filter(None, _ENGINES))}",
            fix="choose a recipe of the same model for one of these",
        )
    text = str(recipe.get("command") or "").strip()
    model = source.model
    if not text:
        made = EngineCommand(
            _ENGINES[runtime], model, tuple(generated(_ENGINES[runtime], filled_in(defaults, recipe, where)))
        )
        return made, (*flag_entries(made, source), *without_flag(made.engine, defaults))
    names = {
        "model": model,
        "resolved_model_path": model,
        "model_revision": _plain(recipe.get("model_revision")),
    }
    found = engine_command(filled(text, {**names, **defaults}, where), where)
    if runtime and _ENGINES[runtime] != found.engine:
        raise Problem(
            f"{where}: 'runtime' and 'command' name different engines",
            cause=f"runtime is {runtime}, and the command starts {TITLES[found.engine]}",
            fix=f"fix 'runtime' in {where}",
        )
    served = found.model if set(recipe) != {"command"} else None
    again = "a second command of the engine: medley's launcher starts the other hosts"
    entries = (
        *([named_model("command", served, model)] if served not in {None, model} else ()),
        *flag_entries(found, source),
        *without_placeholder(found, defaults, used(text, defaults), source),
        *([Entry(f"command {found.wrapper[:60]}", "refused", _WRAPPED)] if found.wrapper else ()),
        *(Entry(f"command {each[:60]}", "decided", again) for each in found.again),
        *(Entry(f"command {each[:60]}", "refused", _SHELL) for each in found.beside),
    )
    return found, entries


def filled_in(defaults: Mapping[str, Value], recipe: Mapping[str, object], where: str) -> dict[str, Value]:
    """Fill in the placeholders in defaults: {model_revision}, and the other keys."""
    values = {
        **defaults,
        "model": _plain(recipe.get("model")),
        "model_revision": _plain(recipe.get("model_revision")),
    }
    return {
        key: filled(value, {name: each for name, each in values.items() if name != key}, where)
        if isinstance(value, str) and "{{" not in value
        else value
        for key, value in defaults.items()
    }


def _plain(value: object) -> str | None:
    return None if value is None else str(value)


def _revision(recipe: Mapping[str, object], command: EngineCommand) -> Iterator[Entry]:
    folder = re.search(r"/snapshots/([0-9a-f]{40})$", command.model or "")
    key, revision = "model_revision", recipe.get("model_revision")
    if not revision and folder:
        key, revision = "command", folder[1]
    if not revision or any(flag.name == "--revision" for flag in command.flags):
        return
    if why := flag_refusal(command.engine, "--revision", (str(revision),)):
        yield Entry(key, "refused", why)
    else:
        yield engine_flag(key, "--revision", str(revision), why="the engine downloads this commit")
