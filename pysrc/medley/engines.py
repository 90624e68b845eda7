"""The engines there are, by the names that --engine takes."""

from collections.abc import Mapping

from medley.engine import Engine, sglang, vllm
from medley.tables import Engine as Name

ENGINES: Mapping[Name, Engine] = {"vllm": vllm, "sglang": sglang}
