"""What `medley models import` makes of public recipes and of published commands, by source and kind.

    git clone https://github.com/spark-arena/recipe-registry FOLDER/spark-arena+recipe-registry    # and so on
    .venv/bin/python -m benchmarks.recipes FOLDER            # a clone a source, OWNER+NAME; prints the table
    .venv/bin/python -m benchmarks.recipes FOLDER --all      # and each file with what became of it
    .venv/bin/python -m benchmarks.recipes FOLDER --write    # writes benchmarks/results/recipes.txt

The table has counts only. Recipes are the YAML files with a model; commands are the fenced blocks of Markdown
and of vLLM's guides that start an engine. Another reader than
the import's own compares the import with the text:
- a flag or variable of the text, neither in the command nor named with a reason, is lost without a word;
- a flag of the command that the locked release's parser refuses is passed on wrongly;
- a text that names a repository and starts vLLM or SGLang, and is refused, is refused wrongly.
"""

import argparse
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from medley.engine.accepted_flags import is_flag, read_locked_flags
from medley.errors import Problem
from medley.schema import REPOSITORY
from medley.serving.community_recipe.recipe import ImportedRecipe, import_recipe

RESULT = Path(__file__).parent / "results" / "recipes.txt"
OUTCOMES = ("imported right", "changed with a word", "refused rightly", "refused wrongly", "without a word")
_FENCED = re.compile(r"^[ \t]*(```+|~~~+)[ \t]*(\w*)[^\n]*\n(.*?)^[ \t]*\1", re.MULTILINE | re.DOTALL)
_OTHER_LANGUAGES = {"yaml", "yml", "python", "py", "json", "toml", "dockerfile", "text"}
_ENGINE = re.compile(
    r"\bvllm serve\s+\S|\bsglang serve\s+\S|-m sglang\.launch_server\s|\brun\b[^\n]*\bvllm-openai\S*\s+\S"
)
_RUNTIMES = {"", "vllm", "vllm-ray", "vllm-distributed", "eugr-vllm", "sglang"}
_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w.-]*")


@dataclass(frozen=True)
class Case:
    source: str
    kind: str
    """recipe, vLLM recipe, other file or command."""
    name: str
    text: str


@dataclass(frozen=True)
class Result:
    case: Case
    outcome: str
    why: str


def cases(folder: Path) -> Iterator[Case]:
    for source in sorted(path for path in folder.iterdir() if path.is_dir()):
        seen: set[str] = set()
        for path in sorted(source.rglob("*")):
            if not path.is_file() or path.suffix not in {".yaml", ".yml", ".md"} or ".github" in path.parts:
                continue
            text = path.read_text(encoding="utf-8", errors="replace")
            for case in _of_file(source.name, str(path.relative_to(source)), path.suffix, text):
                if case.text not in seen:
                    seen.add(case.text)
                    yield case


def _of_file(source: str, name: str, suffix: str, text: str) -> Iterator[Case]:
    if suffix == ".md":
        yield from _commands(source, name, text)
        return
    try:
        table = yaml.safe_load(text)
    except yaml.YAMLError:
        return
    if not isinstance(table, dict) or not {"model", "services", "models"} & set(table):
        return
    model = table.get("model")
    of_vllm = isinstance(model, dict) and "model_id" in model
    kind = (
        "vLLM recipe"
        if of_vllm
        else "recipe"
        if {"command", "runtime", "defaults"} & set(table)
        else "other file"
    )
    yield Case(source, kind, name, text)
    if of_vllm and isinstance(table.get("guide"), str):
        yield from _commands(source, name, table["guide"])


def _commands(source: str, name: str, text: str) -> Iterator[Case]:
    for at, match in enumerate(_FENCED.finditer(text)):
        joined = re.sub(r"\\[ \t]*\n", " ", match[3])
        if match[2].lower() not in _OTHER_LANGUAGES and _ENGINE.search(joined):
            yield Case(source, "command", f"{name}#{at}", match[3])


def result(case: Case) -> Result:
    try:
        found = import_recipe(case.text.encode(), "FILE")
    except Problem as problem:
        wrong = _refused_wrongly(case)
        return Result(
            case, "refused wrongly" if wrong else "refused rightly", f"{problem.what}: {problem.cause}"
        )
    if lost := [*_unaccounted(case, found), *_refused_by_engine(found)]:
        return Result(case, "without a word", ", ".join(lost))
    changed = [each.key for each in found.entries if each.is_changed or each.outcome == "refused"]
    return Result(case, "changed with a word" if changed else "imported right", ", ".join(changed))


def _refused_wrongly(case: Case) -> bool:
    """Whether the text starts an engine of medley with a repository."""
    table = yaml.safe_load(case.text) if case.kind != "command" else {"command": case.text}
    if case.kind == "vLLM recipe":
        return not table.get("omni")
    model, command = str(table.get("model", "")), str(table.get("command") or "")
    if case.kind == "command":
        match = re.search(r"(?:serve|--model|--model-path)[ \t\\\n=]+[\"']?([^\s\"']+)", command)
        return match is not None and re.fullmatch(REPOSITORY, match[1]) is not None and _quoted(command)
    engine = _ENGINE.search(command) is not None or (not command and table.get("defaults") is not None)
    return (
        engine
        and re.fullmatch(REPOSITORY, model) is not None
        and str(table.get("runtime") or "") in _RUNTIMES
    )


def _quoted(command: str) -> bool:
    """Whether a shell can read it: its quotations are closed."""
    done = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True, check=False)
    return done.returncode == 0


def _unaccounted(case: Case, found: ImportedRecipe) -> Iterator[str]:
    """Yield flags and variables of the text that are neither in the command nor named."""
    named = " ".join((*(f"{each.key} {each.why}" for each in found.entries), str(found.command)))
    table = yaml.safe_load(case.text) if case.kind != "command" else {}
    for name in dict.fromkeys(_flags(case, table)):
        plain = re.escape(name).replace("_", "[-_]").replace(r"\-", "[-_]")
        if not re.search(rf"(?<![\w-]){plain}(?![\w-])", named) and not _as_option(name, found):
            yield name
    for name in table.get("env") or {}:
        if not re.search(rf"\b{re.escape(str(name))}\b", named):
            yield str(name)


def _flags(case: Case, table: Mapping[str, object]) -> Iterator[str]:
    if case.kind == "command":
        text = _first_command(case.text)
    elif case.kind == "vLLM recipe":
        text = " ".join(map(str, (table["model"].get("base_args") or ())))  # type: ignore[attr-defined] # of this kind
    else:
        text = str(table.get("command") or "")
    text = re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE)
    plain = re.sub(r"'[^']*'|\"[^\"]*\"", " ", text)
    yield from (match[0] for match in _FLAG.finditer(plain) if match[0] not in {"-m", "-c"})


def _first_command(text: str) -> str:
    """Return the words of the first command that starts an engine, without docker's options before it."""
    joined = re.sub(r"\\[ \t]*\n", " ", re.sub(r"^\s*#.*$", "", text, flags=re.MULTILINE))
    line = next((line for line in joined.split("\n") if _ENGINE.search(line)), "")
    match = _ENGINE.search(line)
    return re.split(r"\s(?:&&|;|\||#|&$|>)", line[match.end() - 1 :])[0] if match else ""


def _as_option(name: str, found: ImportedRecipe) -> bool:
    """Whether it has become an option: every carried entry has the flag of the text in its key."""
    return any(
        each.key.partition(" ")[2].replace("_", "-") == name.replace("_", "-") for each in found.entries
    )


def _refused_by_engine(found: ImportedRecipe) -> Iterator[str]:
    parser = read_locked_flags(found.engine)
    words = found.list_words("flag")
    yield from (
        f"passed on: {fault.argument}: {fault.cause}"
        for fault in (parser.list_faults(words) if parser else ())
    )
    if any(not is_flag(words[0]) for _ in words[:1]):
        yield f"passed on: {shlex.join(words[:2])}"


def lines(results: list[Result], commits: Mapping[str, str]) -> Iterator[str]:
    yield "What medley models import makes of public texts. 'Changed with a word': each difference is named."
    yield ""
    yield f"{'':50}{'':14}" + "".join(f"{each:>21}" for each in OUTCOMES)
    for kind in dict.fromkeys(each.case.kind for each in results):
        for source in dict.fromkeys(each.case.source for each in results if each.case.kind == kind):
            counted = Counter(
                each.outcome for each in results if (each.case.kind, each.case.source) == (kind, source)
            )
            title = f"{source.replace('+', '/')} {commits.get(source, '')}".strip()
            yield f"{title:50}{kind:14}" + "".join(f"{counted[each]:>21}" for each in OUTCOMES)
    yield ""
    for kind in dict.fromkeys(each.case.kind for each in results):
        counted = Counter(each.outcome for each in results if each.case.kind == kind)
        yield f"{'all':50}{kind:14}" + "".join(f"{counted[each]:>21}" for each in OUTCOMES)


def _commits(folder: Path) -> dict[str, str]:
    found = {}
    for path in folder.iterdir():
        command = ["git", "-C", str(path), "rev-parse", "--short=7", "HEAD"]
        done = subprocess.run(command, text=True, capture_output=True, check=False)
        if done.returncode == 0:
            found[path.name] = done.stdout.strip()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, help="a folder with a clone of each source, OWNER+NAME")
    parser.add_argument("--all", action="store_true", help="print each file with what became of it")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    options = parser.parse_args()
    results = [result(case) for case in cases(options.folder)]
    text = "\n".join(lines(results, _commits(options.folder))) + "\n"
    for each in results if options.all else ():
        print(f"{each.outcome}: {each.case.source} {each.case.name}: {each.why}")
    print(text, end="")
    if options.write:
        RESULT.write_text(text, encoding="utf-8")
    return 1 if any(each.outcome in OUTCOMES[3:] for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
