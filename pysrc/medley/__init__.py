"""Make one LLM server out of the NVIDIA hosts that people own."""

DISTRIBUTION = "medley-llm"
"""The name to install by; `medley` is another project's on PyPI."""


def read_medley_version() -> str:
    """Return medley's version, or `not installed` in a source checkout."""
    import importlib.metadata  # noqa: PLC0415 - an agent says no version

    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
