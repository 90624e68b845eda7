# What the command line imports, in one list: the package needs it, and so do its tests.
python: [
  python.httpx
  python.huggingface-hub
  python.plumbum
  python.prometheus-client
  python.psutil
  python.pydantic
  python.pyyaml
  python.rich
]
