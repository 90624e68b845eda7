"""vLLM's CPU platform, with what Ray needs added: a name for its slots, and who shares memory with whom.

vLLM calls `register` while it looks for its platform, when nothing of vLLM's own may be imported yet.
"""


def register() -> str:
    """The class that vLLM is to take for its platform."""
    return f"{__name__}.platform.CpuUnderRay"
