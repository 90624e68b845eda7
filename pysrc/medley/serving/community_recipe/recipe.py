"""Convert a whole recipe of sparkrun to a medley command."""

import difflib
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from medley.command import Command, quote_word
from medley.errors import Problem
from medley.host import hypothetical
from medley.host_schema import ENGINE_TABLES
from medley.schema import (
    DEFAULT_ENGINE,
    TITLES,
    EngineName,
    find_flag_refusal,
)
from medley.serving.community_recipe.defaults import (
    list_generated_flags,
    list_unknown_defaults,
    list_unplaced_defaults,
)
from medley.serving.community_recipe.document import ScalarValue, read_document, read_table
from medley.serving.community_recipe.engine_flags import CommandSource, build_model_entry, list_flag_entries
from medley.serving.community_recipe.entries import (
    RecipeEntry,
    build_flag_entry,
    build_option_entry,
    is_repository,
)
from medley.serving.community_recipe.other_formats import convert_recipe
from medley.serving.community_recipe.recipe_keys import (
    KEY_RULES,
    RANK_COUNT_OPTIONS,
    list_host_entries,
    list_other_entries,
    list_version_entries,
    reduce_to_one_host,
)
from medley.serving.community_recipe.shell_command import (
    EngineCommand,
    fill_placeholders,
    list_placeholders,
    needs_shell,
    parse_engine_command,
)
from medley.serving.community_recipe.variables import list_variable_entries
from medley.values import Value

_ENGINE_OF_RUNTIME: Mapping[str, EngineName] = {
    **dict.fromkeys(("", "vllm", "vllm-ray", "vllm-distributed", "eugr-vllm"), "vllm"),
    "sglang": "sglang",
}
_SHELL_REASON = KEY_RULES["pre_exec"][1]
_WRAPPER_REASON = "it starts the command in the recipe's way, and medley starts the engine itself"
_DEFAULT_PORT = "8000"
_PLAN_OPTIONS = {"--context", "--kv-type", "--eplb"}
_RTX_TITLE_PATTERN = re.compile(r"\bRTX\b|\brtx[-_ ]|\b[45]090\b", re.IGNORECASE)


class ImportedRecipe(Value):
    """A recipe as a medley command, with the outcome of each of its keys."""

    model: str
    engine: EngineName
    entries: tuple[RecipeEntry, ...]
    image: str = ""
    host_kind: str = "spark"
    """The kind of host that the recipe is for."""

    def list_words(self, word_kind: str) -> tuple[str, ...]:
        """Return the words of all entries of this kind: `option`, `flag` or `variable`."""
        return tuple(
            chain.from_iterable(entry.words for entry in self.entries if entry.word_kind == word_kind)
        )

    @property
    def refused_entries(self) -> tuple[RecipeEntry, ...]:
        return tuple(entry for entry in self.entries if entry.outcome == "refused")

    @property
    def fork_entries(self) -> tuple[RecipeEntry, ...]:
        """The entries that only the recipe's image has, and not the engine's release."""
        return tuple(entry for entry in self.entries if entry.needs_fork)

    @property
    def command(self) -> Command:
        """The command that serves the model, with its variables."""
        flags = self.list_words("flag")
        engine = () if self.engine == DEFAULT_ENGINE else ("--engine", self.engine)
        argv = (
            "medley",
            "serve",
            self.model,
            *engine,
            *self.list_words("option"),
            *(("--", *flags) if flags else ()),
        )
        return Command(argv, dict(word.split("=", 1) for word in self.list_words("variable")))

    @property
    def plan_command(self) -> Command:
        """The command that checks whether it fits the hosts that it is for, DGX Sparks or RTX."""
        options = {entry.words[0]: entry.words for entry in self.entries if entry.word_kind == "option"}
        plan_words = chain.from_iterable(
            words for name, words in options.items() if name in {*RANK_COUNT_OPTIONS, *_PLAN_OPTIONS}
        )
        count = math.prod(int(options[name][1]) for name in RANK_COUNT_OPTIONS if name in options)
        engine = () if self.engine == DEFAULT_ENGINE else ("--engine", self.engine)
        host_count = min(count, hypothetical.MAX_HOSTS)
        argv = (
            "medley",
            "plan",
            self.model,
            *engine,
            *plan_words,
            "--hosts",
            f"{self.host_kind}:{host_count}",
        )
        # Without this variable the engine refuses a context longer than config.json's.
        variable_name = ENGINE_TABLES[self.engine].context_variable
        return Command(
            argv, {name: value for name, value in self.command.env.items() if name == variable_name}
        )


def import_recipe(raw: bytes, source: str) -> ImportedRecipe:
    """Read a recipe, or a command line; raise a Problem if medley could not serve its model."""
    converted = convert_recipe(read_document(raw, source), source)
    recipe = converted.recipe
    is_pasted = set(recipe) == {"command"}
    command = _read_pasted_command(str(recipe["command"]), source) if is_pasted else None
    model = command.model if command and command.model else _read_model(recipe, source)
    defaults = read_table(recipe, "defaults", source)
    command, entries = _read_command(recipe, CommandSource(model, _get_image(recipe)), defaults, source)
    all_entries = (
        *list_version_entries(recipe, source),
        *list_host_entries(recipe),
        *entries,
        *_list_revision_entries(recipe, command),
        *_list_variable_entries(recipe, command, defaults, source),
        *_list_container_entries(recipe, command),
        *_list_default_entries(command, entries),
        *list_other_entries(recipe),
        *converted.entries,
    )
    image = command.container.image if command.container else _get_image(recipe)
    kind = (
        "rtx"
        if _RTX_TITLE_PATTERN.search(
            f"{recipe.get('name')} {recipe.get('metadata')} {recipe.get('container')}"
        )
        else "spark"
    )
    return ImportedRecipe(
        model,
        command.engine,
        tuple(reduce_to_one_host(tuple(_keep_last_options(all_entries)), kind)),
        image,
        kind,
    )


def _read_pasted_command(text: str, source: str) -> EngineCommand:
    """Read a command line; raise a Problem if only its author knows the model."""
    pasted_command = parse_engine_command(text, source)
    model_flag = next(
        (flag for flag in pasted_command.flags if flag.name in {"--model", "--model-path"}), None
    )
    model = pasted_command.model or (model_flag.values[0] if model_flag and model_flag.values else None)
    if model and is_repository(model):
        return pasted_command.replace(model=model)
    folder = re.search(r"/models--([\w.-]+?)--([\w.-]+)/snapshots/", model or "")
    if folder:
        return pasted_command.replace(model=f"{folder[1]}/{folder[2]}")
    if pasted_command.container and model and (repository := pasted_command.container.find_repository(model)):
        return pasted_command.replace(model=repository)
    shown_model = model or "MODEL"
    mounts = pasted_command.container.mounts if pasted_command.container else ()
    cause = f"it names {model}, which is on its author's host" if model else "it names none"
    if "gguf" in shown_model.lower():
        cause = f"{model} is GGUF, and medley serves only safetensors"
    mounts_text = f"; it mounts {', '.join(mounts)}" if mounts and model and model.startswith("/") else ""
    raise Problem(
        f"{source} does not say which repository its model is",
        cause=f"{cause}{mounts_text}",
        fix=f"write ORG/NAME in place of {quote_word(shown_model)}, then: medley models import {source}",
    )


def _get_image(recipe: Mapping[str, object]) -> str:
    container = recipe.get("container")
    return container if isinstance(container, str) else ""


def _list_variable_entries(
    recipe: Mapping[str, object], command: EngineCommand, defaults: Mapping[str, ScalarValue], source: str
) -> Iterator[RecipeEntry]:
    """Yield the variables of the table and those before the command."""
    flags = {flag.name for flag in command.flags}
    values = {f"config.{key}": value for key, value in defaults.items()}
    table = {
        name: fill_placeholders(_format_value(value), values, source)
        for name, value in read_table(recipe, "env", source).items()
    }
    yield from list_variable_entries(table, command.engine, flags)
    yield from list_variable_entries(command.variables, command.engine, flags, "command ")


def _format_value(value: ScalarValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _list_container_entries(recipe: Mapping[str, object], command: EngineCommand) -> Iterator[RecipeEntry]:
    """Yield the outcome of the recipe's image, or of the `docker run` around its command."""
    why = "medley runs the engine of its own environment; to use the image: --image"
    if image := _get_image(recipe):
        yield RecipeEntry("container", "decided", f"{why} {shlex.quote(image)}")
    elif recipe.get("container"):
        yield RecipeEntry("container", "decided", f"{why} IMAGE")
    if container := command.container:
        image = "IMAGE" if needs_shell(container.image) else shlex.quote(container.image)
        yield RecipeEntry("command docker run", "decided", f"{why} {image}")
        for name in container.inherited:
            yield RecipeEntry(
                f"command -e {name}", "refused", "its value is the author's shell's: export your own"
            )
        for file in container.files:
            yield RecipeEntry(
                "command --env-file", "refused", f"{file} is a file of the author: set its variables yourself"
            )


def _list_default_entries(command: EngineCommand, entries: Sequence[RecipeEntry]) -> Iterator[RecipeEntry]:
    """Yield the defaults in which the engine and medley differ, where the recipe does not set a value."""
    options = {entry.words[0]: entry for entry in entries if entry.word_kind == "option"}
    keys = {entry.key for entry in entries}
    container = command.container
    if container and container.ports:
        inner_port = options["--port"].words[1] if "--port" in options else _DEFAULT_PORT
        host_port = container.find_host_port(inner_port)
        if host_port and ("--port" not in options or host_port != inner_port):
            why = f"{host_port} is the port that the host publishes"
            yield build_option_entry(
                "command -p", "--port", host_port, why=why, is_changed=host_port != inner_port
            )
    if "--host" not in options:
        why = "the engine would listen on every address, medley on 127.0.0.1; to open the API: --host 0.0.0.0"
        yield RecipeEntry("command without --host", "decided", why)
    if "--context" not in options and not keys & {"command --max-model-len", "command --context-length"}:
        why = "the engine takes the model's whole context, medley 8192 and more if it fits: --context"
        yield RecipeEntry("command without --max-model-len", "decided", why)


def _keep_last_options(entries: tuple[RecipeEntry, ...]) -> Iterator[RecipeEntry]:
    """Keep the last of repeated options, like the engines' parsers."""
    last_index = {entry.words[0]: index for index, entry in enumerate(entries) if entry.word_kind == "option"}
    for index, entry in enumerate(entries):
        if entry.word_kind == "option" and last_index[entry.words[0]] != index:
            yield RecipeEntry(
                entry.key, "unused", f"{' '.join(entry.words)} is repeated, and the last one counts"
            )
        else:
            yield entry


def _read_model(recipe: Mapping[str, object], source: str) -> str:
    model = recipe.get("model")
    if isinstance(model, str) and is_repository(model):
        return model
    if model is None:
        near_keys = difflib.get_close_matches("model", list(recipe), n=1)
        fix = f"add 'model: ORG/NAME' to {source}"
        if near_keys:
            fix = f"rename {quote_word(near_keys[0])} to model"
        raise Problem(f"{source}: 'model' is missing", cause="every recipe names its model", fix=fix)
    gguf = " (GGUF)" if "gguf" in str(model).lower() else ""
    raise Problem(
        f"{source}: medley cannot serve the model {str(model)[:80]}{gguf}",
        cause="medley serves only safetensors of a repository ORG/NAME",
        fix=f"write the repository of its safetensors into {source}: model: ORG/NAME",
    )


def _read_command(
    recipe: Mapping[str, object],
    source: CommandSource,
    defaults: Mapping[str, ScalarValue],
    recipe_source: str,
) -> tuple[EngineCommand, tuple[RecipeEntry, ...]]:
    """Return the engine's command, and the outcomes of its flags, its variables and the defaults."""
    runtime = str(recipe.get("runtime") or "")
    if runtime not in _ENGINE_OF_RUNTIME:
        raise Problem(
            f"{recipe_source}: medley does not have the runtime {runtime!r}",
            cause="it has vLLM and SGLang, which sparkrun calls "
            f"{', '.join(filter(None, _ENGINE_OF_RUNTIME))}",
            fix="choose a recipe of the same model for one of these",
        )
    text = str(recipe.get("command") or "").strip()
    model = source.model
    if not text:
        generated_command = EngineCommand(
            _ENGINE_OF_RUNTIME[runtime],
            model,
            tuple(
                list_generated_flags(
                    _ENGINE_OF_RUNTIME[runtime], fill_default_placeholders(defaults, recipe, recipe_source)
                )
            ),
        )
        return generated_command, (
            *list_flag_entries(generated_command, source),
            *list_unknown_defaults(generated_command.engine, defaults),
        )
    names = {
        "model": model,
        "resolved_model_path": model,
        "model_revision": _format_optional(recipe.get("model_revision")),
    }
    engine_command = parse_engine_command(
        fill_placeholders(text, {**names, **defaults}, recipe_source), recipe_source
    )
    if runtime and _ENGINE_OF_RUNTIME[runtime] != engine_command.engine:
        raise Problem(
            f"{recipe_source}: 'runtime' and 'command' name different engines",
            cause=f"runtime is {runtime}, and the command starts {TITLES[engine_command.engine]}",
            fix=f"fix 'runtime' in {recipe_source}",
        )
    command_model = engine_command.model if set(recipe) != {"command"} else None
    repeat_reason = "a second command of the engine: medley's launcher starts the other hosts"
    entries = (
        *([build_model_entry("command", command_model, model)] if command_model not in {None, model} else ()),
        *list_flag_entries(engine_command, source),
        *list_unplaced_defaults(engine_command, defaults, list_placeholders(text, defaults), source),
        *(
            [RecipeEntry(f"command {engine_command.wrapper[:60]}", "refused", _WRAPPER_REASON)]
            if engine_command.wrapper
            else ()
        ),
        *(
            RecipeEntry(f"command {command[:60]}", "decided", repeat_reason)
            for command in engine_command.repeated_starts
        ),
        *(
            RecipeEntry(f"command {command[:60]}", "refused", _SHELL_REASON)
            for command in engine_command.other_commands
        ),
    )
    return engine_command, entries


def fill_default_placeholders(
    defaults: Mapping[str, ScalarValue], recipe: Mapping[str, object], source: str
) -> dict[str, ScalarValue]:
    """Fill in the placeholders in defaults: {model_revision}, and the other keys."""
    values = {
        **defaults,
        "model": _format_optional(recipe.get("model")),
        "model_revision": _format_optional(recipe.get("model_revision")),
    }
    filled = dict(defaults)
    for key, value in defaults.items():
        if isinstance(value, str) and "{{" not in value:
            other_values = {name: other for name, other in values.items() if name != key}
            filled[key] = fill_placeholders(value, other_values, source)
    return filled


def _format_optional(value: object) -> str | None:
    return None if value is None else str(value)


def _list_revision_entries(recipe: Mapping[str, object], command: EngineCommand) -> Iterator[RecipeEntry]:
    folder = re.search(r"/snapshots/([0-9a-f]{40})$", command.model or "")
    key, revision = "model_revision", recipe.get("model_revision")
    if not revision and folder:
        key, revision = "command", folder[1]
    if not revision or any(flag.name == "--revision" for flag in command.flags):
        return
    if why := find_flag_refusal(command.engine, "--revision", (str(revision),)):
        yield RecipeEntry(key, "refused", why)
    else:
        yield build_flag_entry(key, "--revision", str(revision), why="the engine downloads this commit")
