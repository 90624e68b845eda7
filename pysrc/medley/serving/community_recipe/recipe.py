"""Convert a whole recipe of sparkrun to a medley command."""

import difflib
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from medley.command import Command
from medley.errors import Problem
from medley.host import hypothetical
from medley.planner.context import LONGER
from medley.schema import REPOSITORY, TITLES, EngineName
from medley.serving.community_recipe import Entry, Outcome, engine_flag, option, reasons
from medley.serving.community_recipe.defaults import generated, without_flag, without_placeholder
from medley.serving.community_recipe.document import Value, document, tables
from medley.serving.community_recipe.engine_flags import flag_entries, named_model
from medley.serving.community_recipe.shell_command import EngineCommand, engine_command, filled, used
from medley.serving.community_recipe.variables import variable

_ENGINES: Mapping[str, EngineName] = {
    **dict.fromkeys(("", "vllm", "vllm-ray", "vllm-distributed", "eugr-vllm"), "vllm"),
    "sglang": "sglang",
}
_RULES: Mapping[str, tuple[Outcome, str]] = {
    **{key: ("decided", why) for key, why in reasons("keys", "decided").items()},
    **{key: ("refused", why) for key, why in reasons("keys", "refused").items()},
}
_SHELL = _RULES["pre_exec"][1]
_READ = {
    *(
        "recipe_version",
        "sparkrun_version",
        "model",
        "model_revision",
        "runtime",
        "defaults",
        "env",
        "command",
    ),
    *("mode", "min_nodes", "max_nodes", "solo_only", "cluster_only"),
}
_SIZES = {"--tp", "--pp", "--dp"}
_PLANNED = {"--context", "--kv-type", "--eplb"}
_VERSIONS = ("1", "2")


@dataclass(frozen=True)
class Imported:
    model: str
    engine: EngineName
    entries: tuple[Entry, ...]

    def words(self, part: str) -> tuple[str, ...]:
        return tuple(chain.from_iterable(each.becomes for each in self.entries if each.part == part))

    @property
    def left_out(self) -> tuple[Entry, ...]:
        return tuple(each for each in self.entries if each.outcome == "refused")

    @property
    def command(self) -> Command:
        """The command that serves the model, with its variables."""
        flags = self.words("flag")
        engine = () if self.engine == "vllm" else ("--engine", self.engine)
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
        """The command that checks whether it fits DGX Sparks, the hosts of sparkrun's recipes."""
        options = {each.becomes[0]: each.becomes for each in self.entries if each.part == "option"}
        kept = chain.from_iterable(words for name, words in options.items() if name in {*_SIZES, *_PLANNED})
        count = math.prod(int(options[name][1]) for name in _SIZES if name in options)
        engine = () if self.engine == "vllm" else ("--engine", self.engine)
        most = min(count, hypothetical.MOST_HOSTS)
        argv = ("medley", "plan", self.model, *engine, *kept, "--hosts", f"spark:{most}")
        # Without it a context beyond config.json's is refused.
        longer = LONGER[self.engine]
        return Command(argv, {name: value for name, value in self.command.env.items() if name == longer})


def imported(raw: bytes, where: str) -> Imported:
    """Read a recipe; raise a Problem where medley could not serve its model."""
    recipe = document(raw, where)
    version = str(recipe.get("recipe_version", recipe.get("sparkrun_version", "2")))
    if version not in _VERSIONS:
        cause = f"it is {version}, and medley reads {' and '.join(_VERSIONS)}"
        raise Problem(
            f"{where}: 'recipe_version' is unknown", cause=cause, fix=f"fix {where}, or update medley"
        )
    model = _model(recipe, where)
    defaults = tables(recipe, "defaults", where)
    command, entries = _command(recipe, model, defaults, where)
    found = (
        *_hosts(recipe),
        *entries,
        *_revision(recipe, command),
        *(variable(name, str(value)) for name, value in tables(recipe, "env", where).items()),
        *_others(recipe),
    )
    return Imported(model, command.engine, tuple(_last(found)))


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
    if isinstance(model, str) and re.fullmatch(REPOSITORY, model) and not model.startswith("-"):
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
    recipe: Mapping[str, object], model: str, defaults: Mapping[str, Value], where: str
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
    if not text:
        made = EngineCommand(_ENGINES[runtime], model, tuple(generated(_ENGINES[runtime], defaults)), {}, ())
        return made, (*flag_entries(made, model), *without_flag(made.engine, defaults))
    found = engine_command(filled(text, {"model": model, **defaults}, where), where)
    if runtime and _ENGINES[runtime] != found.engine:
        raise Problem(
            f"{where}: 'runtime' and 'command' name different engines",
            cause=f"runtime is {runtime}, and the command starts {TITLES[found.engine]}",
            fix=f"fix 'runtime' in {where}",
        )
    entries = (
        *([named_model("command", found.model, model)] if found.model not in {None, model} else ()),
        *flag_entries(found, model),
        *without_placeholder(found, defaults, used(text, defaults)),
        *(variable(name, value, key=f"command {name}=") for name, value in found.assigned.items()),
        *(Entry(f"command {each[:60]}", "refused", _SHELL) for each in found.beside),
    )
    return found, entries


def _revision(recipe: Mapping[str, object], command: EngineCommand) -> Iterator[Entry]:
    folder = re.search(r"/snapshots/([0-9a-f]{40})$", command.model or "")
    key, revision = "model_revision", recipe.get("model_revision")
    if not revision and folder:
        key, revision = "command", folder[1]
    if revision:
        yield engine_flag(key, "--revision", str(revision), why="the engine downloads this commit")


def _hosts(recipe: Mapping[str, object]) -> Iterator[Entry]:
    least, most = _count(recipe, "min_nodes"), _count(recipe, "max_nodes")
    alone = next(
        (
            key
            for key, found in (
                ("solo_only", recipe.get("solo_only")),
                ("mode", recipe.get("mode") == "solo"),
                ("max_nodes", most == 1),
            )
            if found
        ),
        None,
    )
    given = [
        key for key in ("min_nodes", "max_nodes", "mode", "solo_only", "cluster_only") if recipe.get(key)
    ]
    exact = alone or ("max_nodes" if least and least == most else None)
    if exact:
        yield option(exact, "--hosts", "1" if alone else str(most), why="exactly this number of hosts")
    why = "the plan uses as many hosts as the model and its layout need"
    yield from (Entry(key, "decided", why) for key in given if key != exact)


def _count(recipe: Mapping[str, object], key: str) -> int | None:
    found = recipe.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def _others(recipe: Mapping[str, object]) -> Iterator[Entry]:
    """Yield the outcome of keys outside the command; empty ones are ignored."""
    for key, value in recipe.items():
        if key in _READ or not value:
            continue
        if key in _RULES:
            yield Entry(key, *_RULES[key])
            continue
        near = difflib.get_close_matches(key, [*_READ, *_RULES], n=1)
        hint = f"the nearest is '{near[0]}'" if near else "sparkrun does not know it either"
        yield Entry(key, "refused", f"it is not a key of recipes; {hint}")
