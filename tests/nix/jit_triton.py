"""What Triton's own compiler makes in a shell: run by an engine's Python inside `nix develop`.

Prints JSON.

jit_triton.py FOLDER CAPABILITY…      each a cubin: FOLDER/sm_110
"""

import json
import sys
from pathlib import Path

import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.errors import PTXASError


@triton.jit  # type: ignore[untyped-decorator] # Triton is not installed where types are checked
def product(x, y) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001 - Triton's language has no types
    cells = tl.arange(0, 16)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tile = tl.load(x + cells)
    tl.store(y + cells, tl.dot(tile, tile))


def made(folder: Path, capability: int) -> dict[str, str]:
    source = ASTSource(fn=product, signature={"x": "*bf16", "y": "*fp32"}, constexprs={})
    # get_ptxas in Triton's nvidia/compiler.py
    assembler = knobs.nvidia.ptxas_blackwell if capability >= 100 else knobs.nvidia.ptxas
    found = {"ptxas": assembler.path, "version": assembler.version}
    try:
        kernel = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    except PTXASError as problem:
        return found | {"failed": next(line for line in str(problem).splitlines() if "fatal" in line)}
    (folder / f"sm_{capability}").write_bytes(kernel.asm["cubin"])
    return found | {"target": kernel.asm["ptx"].partition(".target ")[2].split()[0]}


if __name__ == "__main__":
    print(json.dumps({number: made(Path(sys.argv[1]), int(number)) for number in sys.argv[2:]}))
