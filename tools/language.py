"""The words that a reader must not meet, each with what to write instead: `python -m tools.language [PATH…]`.

The search covers the prose of the documentation, without code, the texts of the program (help and messages:
string literals with a space), and the texts of TOML tables. The rules are in docs/contributing/style.md.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
_IZE = "quant|recogn|real|optim|initial|normal|serial|util|organ|summar|minim|maxim|synchron"
WORDS = {
    r"wires?": "link, network, interconnect",
    r"boxe?s?": "host, machine",
    r"keepers?": "supervisor",
    r"anew": "again",
    r"mend(s|ed|ing)?": "fix",
    r"beside": "next to, with, besides",
    r"at once": "concurrent, immediately",
    r"(?<!there )is no (?!longer|more\b)[a-z]+": "is not a …",
    r"for it (is|has)": "because it …",
    r"(cannot|can) be had": "is (not) available",
    r"in the place of": "instead of",
    r"halves|half of (a|the) cage|twins?": "port with two PCIe functions",
    r"out of (an image|images|logs|wheels|a container)": "in a container, from …",
    r"tells? (nothing|you|it|them)": "reports, prints",
    r"told": "receives, is passed",
    r"said": "reported, printed",
    r"whoever": "anyone who",
    r"nobody": "unknown, unset, not documented",
    r"alike": "identical, the same",
    r"brought": "copied",
    r"looked at": "checked",
    r"hangs? on": "depends on, conditions",
    r"babbles?": "answers in gibberish",
    r"what (stands|lies|keeps|comes) ": "name the thing",
    r"where (it|they|one) (lies?|would lie)": "layout",
    r"so many": "N",
    r"in vain": "gave up",
    r"racks?": "simulated cluster",
    r"judgements?": "judgment",
    r"licen[c]e[ds]?": "license",
    r"\w*colour\w*": "color",
    r"(cata)logues?": "catalog",
    r"neighbours?": "neighbor",
    r"behaviours?": "behavior",
    r"(un)?favour\w*|honour\w*": "American spelling",
    rf"\w*({_IZE})is(e|es|ed|ing|ation)": "-ize",
}
"""A regular expression of each, as whole words in any case, and what to write."""
_FORBIDDEN = {
    re.compile(rf"\b(?:{word})\b" if word[-1] != " " else rf"\b{word}", re.IGNORECASE): use
    for word, use in WORDS.items()
}
_READ = {"what", "cause", "fix", "note", "title", "why", "description"}
_FILLED = re.compile(r"\{\w+\}")
"""What the text of a failure takes from the log."""
_CODE = re.compile(r"^(```|~~~).*?^\1|^ {4,}.*?$|`[^`\n]*`|\]\([^)]*\)|<[^>\n]*>", re.MULTILINE | re.DOTALL)


READ = ("README.md", "docs", "pysrc", "failures", "hosts", "models")
"""Where a person reads the project's words."""


def prose(page: str) -> str:
    """A page's sentences: without blocks of code, code in a line, and addresses."""
    return _CODE.sub(lambda found: "\n" * found[0].count("\n"), page)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """Every string of a module that a person may read, with its line; no docstring."""
    tree = ast.parse(source)
    documents = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    documents |= {id(each) for node in ast.walk(tree) if _is_prompts(node) for each in ast.walk(node)}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for node in constants:
        if isinstance(node.value, str) and " " in node.value.strip() and id(node) not in documents:
            yield node.lineno, node.value


def _is_prompts(node: ast.AST) -> bool:
    """Whether it is text for the demo model, made of the words that it knows."""
    return isinstance(node, ast.Assign) and any(ast.unparse(each) == "PROMPTS" for each in node.targets)


def values(table: object, key: str = "") -> Iterator[tuple[int, str]]:
    """The texts of a TOML table that a person reads; their lines are not known."""
    if isinstance(table, dict):
        for name, each in table.items():
            yield from values(each, name)
    elif isinstance(table, list):
        for each in table:
            yield from values(each, key)
    elif isinstance(table, str) and key in _READ:
        yield 1, _FILLED.sub("", table)


def found(text: str) -> Iterator[tuple[int, str, str]]:
    """The forbidden words of a text: its line, the word, what to write."""
    for word, use in _FORBIDDEN.items():
        for each in word.finditer(text):
            yield text.count("\n", 0, each.start()), each[0], use


def faults(path: Path) -> Iterator[str]:
    """The forbidden words of a page, a module or a table: one line of text each."""
    source = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            parts = texts(source)
        case ".toml":
            parts = values(tomllib.loads(source))
        case _:
            parts = iter([(1, prose(source))])
    for line, text in parts:
        yield from (f"{path.relative_to(ROOT)}:{line + at}: {word!r}: {use}" for at, word, use in found(text))


def paths(*names: str) -> Iterator[Path]:
    """The files of these folders that the rules are held for."""
    for name in names:
        path = ROOT / name
        yield from (
            sorted(each for kind in ("*.md", "*.py", "*.toml") for each in path.rglob(kind))
            if path.is_dir()
            else [path]
        )


if __name__ == "__main__":
    sys.stdout.write("".join(f"{each}\n" for path in paths(*(sys.argv[1:] or READ)) for each in faults(path)))
