"""The engines there are, and their benchmarks, by the names that --engine takes."""

from collections.abc import Mapping

from medley.engine import Engine, sglang, vllm
from medley.engine.client import Client
from medley.engine.client import sglang as sglang_client
from medley.engine.client import vllm as vllm_client
from medley.tables import Engine as Name

ENGINES: Mapping[Name, Engine] = {"vllm": vllm, "sglang": sglang}
CLIENTS: Mapping[Name, Client] = {"vllm": vllm_client, "sglang": sglang_client}
