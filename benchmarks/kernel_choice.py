"""Which kernels the engines choose for every table's command on each kind of host: read, not run.

    .venv/bin/medley env build vllm-cuda                     # 10 GB; it needs no GPU
    .venv/bin/medley env build sglang-cuda                   # 10 GB
    .venv/bin/python -m benchmarks.kernel_choice --cache FILE --write

The commands are those of benchmarks.dry_runs. The engines configure themselves for them on a GPU that is only
declared, over a config.json of the table's numbers (model_configs.py). vLLM's layers of the first rank choose
(declared_vllm.py); SGLang's server arguments are resolved (declared_sglang.py). A libcuda.so.1 without a
driver lets the extensions load.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import dry_runs, model_configs
from benchmarks.dry_runs import Cell
from medley import config, process
from medley.command import UNSET_VARIABLES, Command
from medley.environment import cuda_folder, virtualenv
from medley.environment.virtualenv import Environment
from medley.schema import EngineName

RESULT = Path(__file__).parent / "results" / "kernel_choice.txt"
ENVIRONMENTS: Mapping[EngineName, str] = {"vllm": "vllm-cuda", "sglang": "sglang-cuda"}
_LIMIT_S = 3600
_DRIVER_VERSION = 13_000
_SHOWN_ERROR = 150
# Where code comes from by the choice's name, and the capabilities of the aarch64 wheel's machine code. It
# runs on later minors of its major; the driver compiles PTX 8.0 at its first use, which takes minutes.
# Without capabilities it is compiled for the GPU. docs/explanation/environments.md has the wheels' code.
_CODE: Mapping[EngineName, tuple[tuple[str, str, tuple[str, ...]], ...]] = {
    "vllm": (
        (r"trtllm", "wheel", ("10.0", "10.3")),
        (r"flashinfer", "compiled by FlashInfer", ()),
        (r"deepgemm", "compiled by DeepGEMM", ()),
        (r"triton|minimaxm3sparse|mamba|gdn|delta", "compiled by Triton", ()),
        (r"flashattention", "wheel, FA2", ("8.0",)),
        (r"marlin", "wheel, _moe_C", ("8.0", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0")),
        (r"cutlass", "wheel, _C", ("8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0")),
    ),
    "sglang": (
        (r"trtllm|cutedsl|deep_gemm", "wheel", ("9.0", "10.0", "10.3")),
        (r"flashinfer", "compiled by FlashInfer", ()),
        (r"marlin", "compiled by SGLang", ()),
        (r"triton", "compiled by Triton", ()),
        (r"dsa|dsv4", "by the model's own layers", ()),
        (r"cutlass", "wheel, sglang-kernel", ("9.0", "10.0", "11.0", "12.0")),
    ),
}


@dataclass(frozen=True)
class Row:
    cell: Cell
    answer: Mapping[str, Any]
    """What the program of the engine printed for the command."""

    @property
    def capability(self) -> str:
        host = config.load_hosts()[self.cell.kind]
        return host.capability or (host.toolkit.capability if host.toolkit else None) or ""

    @property
    def error(self) -> str | None:
        return self.answer.get("error") or self.answer.get("unconstructed")

    @property
    def kernels(self) -> Iterator[tuple[str, str]]:
        """Yield each kind of layer with a kernel."""
        for layer, names in self.answer.get("kernels", {}).items():
            yield from ((layer, name) for name in names)

    def origins(self) -> Iterator[tuple[str, str, str]]:
        """Yield each kind of layer, its kernel, and where the code of the kernel comes from."""
        for layer, name in self.kernels:
            yield layer, name, origin(name, self.capability, self.cell.engine)


def origin(choice: str, capability: str, engine: EngineName = "vllm") -> str:
    """Say where the code of this kernel for this GPU comes from; `NO CODE` if nowhere."""
    for pattern, where, machine_code in _CODE[engine]:
        if re.search(pattern, choice, re.IGNORECASE):
            if not machine_code or _runs(machine_code, capability):
                return where
            return f"{where}: PTX 8.0" if machine_code == ("8.0",) else "NO CODE"
    return "?"


def _runs(machine_code: tuple[str, ...], capability: str) -> bool:
    major, _, minor = capability.partition(".")
    versions = (each.split(".") for each in machine_code)
    return any(each[0] == major and int(each[1]) <= int(minor) for each in versions)


def rows(cells: Sequence[Cell], cache: Path, *, ask: bool) -> Iterator[Row]:
    """Yield a row for each command; answers are kept in the cache, so that a run that was cut off goes on."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for model in dict.fromkeys(each.model for each in cells):
            model_configs.write(model, folder)
        for engine, kind in dict.fromkeys((each.engine, each.kind) for each in cells):
            here = [each for each in cells if (each.engine, each.kind) == (engine, kind)]
            known = _kept(cache)
            if ask:
                _ask([each for each in here if _key(each) not in known], folder, cache)
                known = _kept(cache)
            yield from (Row(each, known.get(_key(each), {})) for each in here)


def _key(cell: Cell) -> str:
    return json.dumps(
        [cell.engine, cell.kind, cell.words, cell.variables, model_configs.config_json(cell.model)]
    )


def _kept(cache: Path) -> Mapping[str, Mapping[str, Any]]:
    kept = (json.loads(line) for line in cache.read_text(encoding="utf-8").splitlines())
    return {each["key"]: each["answer"] for each in kept}


def _ask(cells: Sequence[Cell], folder: Path, cache: Path) -> None:
    """Ask the engine of these commands, which are all for one engine and one kind of host."""
    if not cells:
        return
    engine = cells[0].engine
    environment = virtualenv.find_environment(ENVIRONMENTS[engine])
    if environment is None:
        sys.exit(f"{ENVIRONMENTS[engine]} is not built here: medley env build {ENVIRONMENTS[engine]}")
    file = folder / "cases.json"
    file.write_text(json.dumps([_case(each, folder) for each in cells]), encoding="utf-8")
    program = Path(__file__).with_name(f"declared_{engine}.py")
    argv = (str(environment.python), str(program), Row(cells[0], {}).capability, str(file))
    waiting, others = list(cells), list[str]()

    def keep(line: str) -> None:
        if not line.startswith('{"'):
            others.append(line)
            return
        with cache.open("a", encoding="utf-8") as kept:
            kept.write(json.dumps({"key": _key(waiting.pop(0)), "answer": json.loads(line)}) + "\n")

    command = Command(argv, variables(environment, folder), UNSET_VARIABLES)
    if process.run(command, limit_s=_LIMIT_S, on_line=keep).status or waiting:
        sys.exit("\n".join(others[-12:]))


def _case(cell: Cell, folder: Path) -> Mapping[str, Any]:
    words = list(cell.words)
    words[words.index("--model-path") + 1 if cell.engine == "sglang" else 0] = str(folder / cell.model)
    return {"words": words, "variables": dict(cell.variables), "construct": True}


def variables(environment: Environment, folder: Path) -> Mapping[str, str]:
    home = next(environment.path.glob(f"lib/python*/site-packages/{cuda_folder.FOLDER}"))
    if not (folder / "libcuda.so.1").exists():
        make_driver(home / "include" / "cuda.h", folder)
    return {
        "LD_LIBRARY_PATH": str(folder),
        "VLLM_CACHE_ROOT": str(folder / "cache"),
        cuda_folder.CUDA_HOME: str(home),
    }


def make_driver(header: Path, folder: Path) -> None:
    """Compile a libcuda.so.1 that has a version, which CUTLASS's Python checks, and an error for all else.

    Triton copies the text of an error before it raises it.
    """
    source = f"""
int cuDriverGetVersion(int *version) {{ *version = {_DRIVER_VERSION}; return 0; }}
int cuGetErrorString(int error, const char **text) {{ *text = "this GPU is only declared"; return 0; }}
"""
    names = set(re.findall(r"\bcu[A-Z]\w+\b", header.read_text(encoding="utf-8")))
    names -= {"cuDriverGetVersion", "cuGetErrorString"}
    source += "".join(f"int {name}(void) {{ return 100; }}\n" for name in sorted(names))
    library = folder / "libcuda.so.1"
    words = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-Wl,-soname,libcuda.so.1", "-o", str(library)]
    subprocess.run(words, input=source, text=True, check=True)


def lines(found: Sequence[Row]) -> Iterator[str]:
    yield "What each engine chooses for medley's command on a GPU that is only declared. Read, not run."
    yield "NO CODE: no wheel has the kernel for this GPU, and nothing compiles it."
    for engine in ENVIRONMENTS:
        for model in dict.fromkeys(each.cell.model for each in found):
            here = [each for each in found if (each.cell.engine, each.cell.model) == (engine, model)]
            yield from [f"\n{model}, {engine}"] if here else []
            yield from (line for row in here for line in _shown(row))
    yield ""
    counts = {engine: sum(row.cell.engine == engine for row in found) for engine in ENVIRONMENTS}
    failed = [row for row in found if row.error]
    missing = [row for row in found if any(where == "NO CODE" for _, _, where in row.origins())]
    asked = " and ".join(f"{count} commands of {engine}" for engine, count in counts.items())
    skipped = sum(not row.answer for row in found)
    yield f"{asked}: {len(failed)} not configured, {skipped} not asked yet,"
    yield f"{len(missing)} with a kernel without code."


def _shown(row: Row) -> Iterator[str]:
    head = f"  {row.cell.kind}:{row.cell.hosts}"
    if not row.answer:
        yield f"{head:14}not asked yet"
    if row.error:
        yield f"{head:14}ERROR {row.error[:_SHOWN_ERROR]}"
    for layer, kernel, where in row.origins():
        yield f"{head:14}{layer:12}{kernel:56}{where}"
        head = ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name}")
    parser.add_argument("--engine", choices=ENVIRONMENTS, help="only this engine's commands")
    parser.add_argument("--models", help="only these tables, with commas")
    parser.add_argument("--kinds", default=",".join(dry_runs.KINDS), help="only these kinds, with commas")
    parser.add_argument(
        "--cache", type=Path, required=True, help="file that keeps answers, to go on with later"
    )
    parser.add_argument("--kept", action="store_true", help="only the answers of the cache; ask no engine")
    asked = parser.parse_args()
    asked.cache.touch()
    engines = [asked.engine] if asked.engine else list(ENVIRONMENTS)
    wanted = asked.models.split(",") if asked.models else list(config.load_models())
    cells = [
        each
        for each in dry_runs.cells(engines, asked.kinds.split(","))
        if each.words and each.model in wanted
    ]
    text = "\n".join(lines(list(rows(cells, asked.cache, ask=not asked.kept)))) + "\n"
    print(text, end="")
    if asked.write:
        RESULT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
