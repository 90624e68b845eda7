"""Extract the flags and environment variables of a guide from its text.

Each fact is a setting with its place: the guide, its section, and the program that is given it. Sentences and
blocks of the guide are not kept.
"""

import ast
import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from tools.guides import shell
from tools.guides.programs import ALONE, ENGINES, ENTRYPOINTS, PASSED_OVER, PROGRAMS, program_of
from tools.guides.shell import Line

FACTS = Path(__file__).with_name("facts.csv")
_FENCE = re.compile(r"^\s*```\s*(\w*)\s*$")
_HEADING = re.compile(r"^#{1,6} +(.+?)\s*#*$")
_CONTENTS = re.compile(r"^\s*(?:-|\d+\.) \[(.+?)\]\(#", re.MULTILINE)
_CODE = re.compile(r"`([^`\n]+)`")
_NAME = r"(?:VLLM|NCCL|RAY|GLOO|UCX|TORCH|CUDA|SGLANG|TP|TRITON|PYTORCH|OMPI|HF|ENABLE)_\w*[A-Za-z]"
_MENTIONED = re.compile(rf"(?<![\w$])({_NAME})(?![\w(])")
_SET = re.compile(rf"^(?:export )?({_NAME})=(\S+)$")
_REMARK = re.compile(r'^\s*#.*"(--[^"]+)"', re.MULTILINE)
_FLAG = re.compile(r"(?<!\S)(--[a-z][\w-]+)(?:[ =]([^\s`]+))?")
_ENVIRON = re.compile(r"os\.environ\['(\w+)'\] = '([^']*)'")
_PYTHON_CALLS = ("LLM",)
_STRING = re.compile(r'[fr]?(?:"{3}(.*?)"{3}|"((?:\\.|[^"\\\n])*)"|\'((?:\\.|[^\'\\\n])*)\')', re.DOTALL)
_FIELD = re.compile(r"\{[^{}]*\}")
_NETPLAN_KEYS = re.compile(r"^\s+(dhcp4|dhcp6|link-local|mtu|optional): (.+)$")

_VARIABLES = {"-e", "--env", "-x"}
_KEYED = {"--ulimit": "=", "-v": ":", "--mca": None}


@dataclass(frozen=True)
class Fact:
    """A setting of a guide; `value` is empty where the guide gives none."""

    source: str
    section: str
    command: str
    """The program, and the model that it is given."""
    item: str
    value: str

    @property
    def program(self) -> str:
        return program_of(self.command)


def name_of(file: Path) -> str:
    """The name of a guide: that of its file, or of the folder where that is a README."""
    return file.parent.name if file.stem == "README" else file.stem


def facts_of(file: Path) -> list[Fact]:
    """Return every setting of a guide's file, once for each place and value."""
    text, source = file.read_text(encoding="utf-8"), name_of(file)
    if file.suffix == ".py":
        found: Iterable[Fact] = _of_program(text)
    elif file.suffix == ".yaml":
        found = _of_netplan(text)
    else:
        found = _of_page(text)
    return list(dict.fromkeys(replace(each, source=source) for each in found))


def read() -> list[Fact]:
    with FACTS.open(encoding="utf-8", newline="") as file:
        return [Fact(**row) for row in csv.DictReader(file)]


def write(found: Iterable[Fact]) -> None:
    """Write the facts of these guides in the place of those that the file has of them."""
    new = list(found)
    sources = {each.source for each in new}
    kept = [each for each in read() if each.source not in sources] if FACTS.exists() else []
    with FACTS.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(each.name for each in fields(Fact))
        table.writerows(astuple(each) for each in sorted((*kept, *new), key=lambda each: each.source))


def _of_page(text: str) -> Iterator[Fact]:
    parts, part, section = set(_CONTENTS.findall(text)), "", ""
    fence, block = None, list[str]()
    for line in text.splitlines():
        if (mark := _FENCE.match(line)) and fence is None:
            fence, block = mark[1] or "text", []
        elif mark:
            yield from _placed(_of_block(str(fence), "\n".join(block)), section)
            fence = None
        elif fence is not None:
            block.append(line)
        elif heading := _HEADING.match(line):
            part = heading[1] if heading[1] in parts else part
            section = heading[1] if heading[1] == part or not part else f"{part} / {heading[1]}"
        else:
            yield from _placed(_of_prose(line), section)


def _placed(found: Iterable[Fact], section: str) -> Iterator[Fact]:
    return (replace(each, section=section) for each in found)


def _of_block(kind: str, text: str) -> Iterator[Fact]:
    if kind == "python":
        yield from _of_calls(ast.parse(text))
    elif kind == "bash":
        for line in shell.lines(text):
            yield from _of_line(line)
        for remark in _REMARK.findall(text):
            yield from (_fact("text", flag, value) for flag, value in _FLAG.findall(remark))


def _of_prose(line: str) -> Iterator[Fact]:
    spans = _CODE.findall(line)
    for span in spans:
        if given := _SET.match(span):
            yield _fact("text", given[1], shell.plain(given[2]))
        for flag, value in _FLAG.findall(span) if span.startswith("--") else ():
            yield _flag("text", flag, value)
    told = {given[1] for span in spans if (given := _SET.match(span))}
    words = _CODE.sub(lambda span: "" if span[1].startswith("--") else span[1], line)
    yield from (_fact("text", name, "") for name in _MENTIONED.findall(words) if name not in told)


def _of_line(line: Line) -> Iterator[Fact]:
    words, name = line.words, line.words[0]
    if line.document:
        yield from (_fact("python", *each) for each in _ENVIRON.findall(line.document))
        if "ethernets:" in line.document:
            yield from _of_netplan(line.document)
            return
    if name == "export":
        yield from (_fact("export", *one) for word in words[1:] if (one := shell.assignment(word)))
    elif nested := _nested(words):
        yield from (fact for each in shell.lines(nested) for fact in _of_line(each))
    elif words[:2] == ("docker", "exec"):
        inner = next(
            (at for at, word in enumerate(words) if at > 2 and word in {"vllm", "/bin/bash", "ray"}), 0
        )
        yield from _of_line(Line(words[inner:])) if inner else ()
    elif words[:2] == ("docker", "run"):
        yield from _of_container(words[2:])
    elif words[:3] == ("ip", "addr", "add"):
        yield _fact("link", "address", f"{words[5]} {words[3]}")
    elif program := next((each for each in PROGRAMS if words[: len(each)] == each), None):
        yield from _of_command(PROGRAMS[program], words[len(program) :], line)
    else:
        _require_passed_over(name)


def _nested(words: tuple[str, ...]) -> str | None:
    if words[0] in {"bash", "/bin/bash"} and len(words) > 2 and words[1] in {"-c", "-lc"}:
        return shell.plain(words[2])
    return None


def _of_command(program: str, words: tuple[str, ...], line: Line) -> Iterator[Fact]:
    found = list(shell.options(words, ALONE.get(program, frozenset())))
    model = next((str(value) for flag, value in found if flag in {"--model", "--model-path"}), "")
    model = model or next((str(value) for flag, value in found if not flag), "")
    command = f"{program} {model}" if program in {*ENGINES.values(), "vllm bench"} else program
    yield from (_fact(command, *one) for one in line.assigned)
    for flag, value in found:
        if flag in _VARIABLES and (one := shell.assignment(value or "")):
            yield _fact(command, *one)
        elif flag:
            yield _flag(command, flag, value)
        elif program == "make" and (one := shell.assignment(value or "")):
            yield _fact(command, *one)
        elif program in ENGINES.values():
            yield _fact(command, "MODEL", str(value))


def _of_container(words: tuple[str, ...]) -> Iterator[Fact]:
    found = list(shell.options(words, ALONE["docker run"]))
    at = next(at for at, (flag, _) in enumerate(found) if not flag)
    image = str(found[at][1])
    for flag, value in found[:at]:
        one = shell.assignment(value or "") if flag in _VARIABLES else None
        yield _fact("docker run", *one) if one else _flag("docker run", flag, value)
    yield _fact("docker run", "IMAGE", image)
    rest = words[[shell.plain(word) for word in words].index(image) + 1 :]
    if image.startswith(ENTRYPOINTS) and rest:
        yield from _of_line(Line(("vllm", "serve", *rest)))
    elif rest and rest[0] not in {"bash", "nvidia-smi"}:
        yield from _of_line(Line(rest))


def _flag(command: str, flag: str, value: str | None) -> Fact:
    if flag in _KEYED and value:
        apart = _KEYED[flag]
        name, _, rest = value.partition(apart) if apart else (value, "", "")
        return _fact(command, f"{flag} {name}", rest)
    return _fact(command, flag, value or "")


def _of_calls(tree: ast.AST) -> Iterator[Fact]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in _PYTHON_CALLS:
            for each in call.keywords:
                yield _fact("python", str(each.arg), str(ast.literal_eval(each.value)))


def _of_netplan(text: str) -> Iterator[Fact]:
    table: Mapping[str, Any] = yaml.safe_load(text)
    for interface, wanted in table["network"]["ethernets"].items():
        for key, value in wanted.items():
            if key == "addresses":
                yield from (_fact("link", "address", f"{interface} {each}") for each in value)
            else:
                shown = ",".join(value) if isinstance(value, list) else str(value).lower()
                yield _fact("link", key, shown)


def _of_program(text: str) -> Iterator[Fact]:
    """Settings in the strings of a Python program that runs shell commands or writes netplan's file.

    Strings are read one by one, because a program may be of a newer Python than this one.
    """
    joined, end = "", 0
    for found in _STRING.finditer(text):
        if text[end : found.start()].strip():
            yield from _of_string(joined)
            joined = ""
        joined += _FIELD.sub("⟨value⟩", next(each for each in found.groups() if each is not None))
        end = found.end()
    yield from _of_string(joined)


def _of_string(text: str) -> Iterator[Fact]:
    if "mpirun " in text:
        text = text[text.index("mpirun ") :]
        text = text.replace("⟨value⟩-x", "-x")
        yield from (fact for line in shell.lines(text) for fact in _of_line(line))
    elif text.startswith("export "):
        yield from (fact for line in shell.lines(text) for fact in _of_line(line))
    elif text.startswith("-x "):
        yield from (fact for line in shell.lines(f"mpirun {text}") for fact in _of_line(line))
    elif key := _NETPLAN_KEYS.match(text):
        yield _fact("link", key[1], key[2])


def _fact(command: str, item: str, value: str) -> Fact:
    return Fact("", "", command, item, " ".join(value.split()))


def _require_passed_over(program: str) -> None:
    """Raise where a guide has a program that nobody has looked at, so that none is left out unseen."""
    name = Path(shell.plain(program)).name
    known = {each for names in PASSED_OVER for each in names.split()}
    if name not in known and not shell.is_filled_in(program):
        raise ValueError(f"{program}: put it into PROGRAMS if it sets something, else into PASSED_OVER")
