"""All failures that are known, program by program."""

from medley.explain import cuda, gloo, host_memory, memory, nccl

KNOWN = (*memory.KNOWN, *host_memory.KNOWN, *cuda.KNOWN, *nccl.KNOWN, *gloo.KNOWN)
