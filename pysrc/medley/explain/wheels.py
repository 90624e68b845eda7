"""An environment whose parts do not fit each other, this host, or the package index."""

import re

from medley.explain.known import Known, shape

KNOWN = (
    Known(
        "symbol-missing",
        what="undefined symbol: a compiled package was built for another PyTorch or CUDA",
        cause="{file} wants a symbol that is not there ({symbol}): it was built for another PyTorch or CUDA",
        fix="build the environment from its lock: medley env build, and prove it: medley env check",
        shapes=(
            shape("undefined symbol", r"(?P<file>\S+?):? undefined symbol: (?P<symbol>\w{1,80})"),
            shape(
                "version `",
                r"(?P<file>\S+): version `(?P<symbol>(?:NCCL|libcud|libcublas|libnvJitLink)\S*)' not found",
            ),
        ),
    ),
    Known(
        "libc-old",
        what="this host's C library (glibc, libstdc++) is too old for the environment, or another was put "
        "before it",
        cause="{file} wants {version}",
        fix="unset LD_LIBRARY_PATH; then a newer system (Ubuntu 22.04 and 24.04 work), or an image: "
        "medley ray-head --image IMAGE",
        shapes=(
            shape(
                "' not found",
                r"(?P<file>\S+): version `(?P<version>(?:GLIBC|GLIBCXX|CXXABI)_[\w.]+)' not found",
            ),
        ),
    ),
    Known(
        "library-missing",
        what="a shared library is missing",
        cause="{file} is in no place that this program looks at",
        fix="medley env check names what an environment lacks, and medley env build makes it anew; of the "
        "system's own: sudo apt-file search {file}",
        shapes=(
            shape(
                "cannot open shared object file",
                r"(?:ImportError|OSError|error while loading shared "
                r"libraries|CRITICAL|RuntimeError)\b.*?(?P<file>lib[\w.+-]+\.so[.\d]*): cannot open "
                r"shared object file",
            ),
        ),
    ),
    Known(
        "module-missing",
        what="a Python package is missing in this environment",
        cause="there is no module {name}",
        fix="prove the environment: medley env check; make it anew: medley env build",
        shapes=(
            shape(
                "No module named",
                r"(?:ModuleNotFoundError|ImportError): No module named '?(?P<name>[\w.]+)'?",
            ),
            shape("No module named", r"^\S*python\S*: No module named (?P<name>[\w.]+)"),
            shape("to be installed", r"requires \"(?P<name>[\w-]+)\" to be installed"),
            shape("No package metadata was found for", r"No package metadata was found for (?P<name>\S+)"),
        ),
    ),
    Known(
        "import-name",
        what="version mismatch: two Python packages of the environment do not fit each other",
        cause="{package} has no {name}: it is of another version than the other expects",
        fix="build the environment from its lock: medley env build",
        shapes=(
            shape(
                "cannot import name",
                r"ImportError: cannot import name '(?P<name>\w+)' from (?:partially initialized module "
                r")?'(?P<package>[\w.]+)'",
            ),
            shape(
                "has no attribute",
                r"^AttributeError: (?:partially initialized )?module '(?P<package>[\w.]+)' has no attribute "
                r"'(?P<name>\w+)'",
            ),
            shape(
                "has no attribute",
                r"AttributeError: module '(?P<package>(?:torch|transformers|vllm|ray|triton|numpy|flashinf"
                r"er|sgl_kernel)[\w.]*)' has no attribute '(?P<name>\w+)'",
            ),
        ),
        unless=re.compile(r"_cuda_setDevice"),
    ),
    Known(
        "numpy-versions",
        what="a package was built for another NumPy",
        cause="{said}",
        fix="build the environment from its lock: medley env build; by hand: pip install 'numpy<2'",
        shapes=(
            shape(
                "compiled using NumPy 1.x",
                r"(?P<said>A module that was compiled using NumPy 1\.x cannot be run in\s*NumPy \S+)",
            ),
            shape("numpy.dtype size changed", r"(?P<said>numpy\.dtype size changed)"),
            shape("Numpy is not available", r"(?P<said>Numpy is not available)"),
        ),
    ),
    Known(
        "torchvision",
        what="torchvision does not fit this PyTorch",
        cause="its operators are not found: one is for CUDA and the other for the CPU, or of another version",
        fix="build the environment from its lock: medley env build",
        shapes=(shape("operator torchvision::nms does not exist"),),
    ),
    Known(
        "kernels-missing",
        what="the engine's own compiled kernels could not be loaded (vLLM's _C, sgl_kernel)",
        cause="{said}[: {why}]",
        fix="take the environment for this kind of host: medley env build; medley env check proves it",
        shapes=(
            shape(
                "Could not load any common_ops",
                r"(?s)(?P<said>Could not load any common_ops library)(?:.*?\n- (?P<why>\w+Error: [^\n]+))?",
            ),
            shape(
                "Tried to instantiate class",
                r"(?P<said>Tried to instantiate class '_\w+\.\w+', but it does not exist)",
            ),
            shape("ailed to import from vllm._", r"(?P<said>Failed to import from vllm\._\w+ with .+)"),
            shape("_OpNamespace", r"(?P<said>'_OpNamespace' '\w+' object has no attribute '\w+')"),
        ),
        more=24,
        over=("module-missing", "library-missing", "symbol-missing"),
    ),
    Known(
        "python-old",
        what="this Python is too old for a package of the environment (version mismatch)",
        cause="{said}: the package uses what a newer Python has",
        fix="make the environment anew with a Python that its packages name: medley env build",
        shapes=(
            shape(
                "is not subscriptable",
                r"^TypeError: (?P<said>(?:type )?'(?:type|array\.array|[\w.]*ABCMeta|[\w.]*Popen)'(?: objec"
                r"t)? is not "
                r"subscriptable)",
            ),
            shape(
                "unsupported operand type(s) for |",
                r"^TypeError: (?P<said>unsupported operand type\(s\) for \|: .+)",
            ),
            shape("from 'typing'", r"(?P<said>cannot import name '\w+' from 'typing')"),
            shape("No module named 'tomllib'", r"(?P<said>No module named 'tomllib')"),
        ),
        over=("import-name", "module-missing"),
    ),
)
