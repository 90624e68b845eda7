"""All failures that are known, program by program."""

from medley.explain import (
    arguments,
    compiling,
    container,
    cuda,
    engine,
    gloo,
    host_memory,
    hub,
    memory,
    model,
    nccl,
    network,
    ray,
    system,
    wheels,
)

KNOWN = (
    *memory.KNOWN,
    *host_memory.KNOWN,
    *cuda.KNOWN,
    *compiling.KNOWN,
    *nccl.KNOWN,
    *gloo.KNOWN,
    *ray.KNOWN,
    *arguments.KNOWN,
    *model.KNOWN,
    *hub.KNOWN,
    *wheels.KNOWN,
    *container.KNOWN,
    *network.KNOWN,
    *system.KNOWN,
    *engine.KNOWN,
)
