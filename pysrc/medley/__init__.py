"""Make one LLM server out of the NVIDIA hosts that people own."""

DISTRIBUTION = "medley-llm"
"""The name to install by; `medley` is another project's on PyPI."""


def own_version() -> str:
    """As it was installed, in a bare source tree `not installed`."""
    import importlib.metadata  # noqa: PLC0415 - an agent says no version

    try:
        return importlib.metadata.version(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
