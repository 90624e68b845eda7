"""Define the interface of an engine, and the flags and variables that both engines need.

vLLM sends every rank the environment of its parent where the rank's host has no value (RayExecutorV2 of vLLM
0.32.0). So a rank would get folders that its host lacks, another host's compiler, and secrets. vLLM leaves
out the names in a file, where medley lists all that ranks do not need. SGLang sends nothing:
payload/sglang_ray.py sends what is not in the file.
"""

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from medley import storage
from medley.command import AnnotatedCommand, Flag, Variable, keep_last_values, prefer_user_value
from medley.environment import payload
from medley.environment.container import CACHE_FOLDERS
from medley.environment.payload.api_answers import MEDIA_HOSTS, NO_REASONING
from medley.host_schema import HostTable
from medley.model import chat_format
from medley.model.chat_format import ChatFormat
from medley.network.fabric.variables import NOT_CARRIED_VARIABLES
from medley.network.ports import API_PORT, LOOPBACK_ADDRESS
from medley.network.socket_url import write_socket_url
from medley.planner.plan import Plan
from medley.schema import EngineName, Model
from medley.values import Value

_SERVER_SCRIPT = payload.FOLDER / "engine_server.py"
# Variables of vLLM, its libraries, torch and the hub.
_SHARED_VARIABLE_PREFIXES = (
    *("VLLM_", "SGLANG_", "HF_", "HUGGING_FACE_", "NCCL_", "UCX_", "LMCACHE_", "FLASHINFER_"),
    *("TORCHDYNAMO_", "TORCH_NCCL_", "PYTORCH_", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED"),
    *("DO_NOT_TRACK", "CUDA_DEVICE_ORDER", "MAX_JOBS"),
)
# Variables that differ from host to host: interfaces, addresses, devices, folders.
_HOST_ONLY_VARIABLES = {
    *NOT_CARRIED_VARIABLES,
    *("NCCL_TOPO_FILE", "NCCL_CONF_FILE", "VLLM_NCCL_SO_PATH", "VLLM_CONFIG_ROOT", *CACHE_FOLDERS),
    *("HF_HUB_CACHE", "HF_TOKEN_PATH"),
    *("VLLM_CPU_OMP_THREADS_BIND", "VLLM_PORT", "VLLM_RPC_BASE_PATH", "VLLM_API_KEY", "SGLANG_HOST_IP"),
}


class Tls(Value):
    """The user's certificate and key; without them medley's own authority issues one."""

    certificate: Path | None = None
    key: Path | None = None
    names: tuple[str, ...] = ("localhost", "127.0.0.1")
    """The names and addresses in a certificate of medley's own authority."""

    @property
    def authority(self) -> Path | None:
        """The certificate that clients must trust; None for the user's own certificate."""
        return None if self.certificate else find_tls_folder() / "pki" / "authorities" / "local" / "root.crt"


def find_tls_folder() -> Path:
    """Return the folder of medley's own authority, which outlives a restart of the host."""
    return storage.find_state_folder() / "tls"


class ServerSpec(Value):
    """The weights that a server has, and the name, address and key of its API."""

    target: str
    """The folder or repository of the weights."""
    name: str
    """The model's name in requests."""
    address: str = LOOPBACK_ADDRESS
    port: int = API_PORT
    key: Path | None = None
    """The file of the API key that the edge asks for, or the folder of medley's own keys."""
    origins: tuple[str, ...] = ()
    """Origins of web pages whose requests are answered."""
    tls: Tls | None = None
    chat: ChatFormat | None = None
    """The format of tool calls and reasoning; None: the format in the model's table."""
    socket_folder: Path | None = None
    """The folder of its sockets, mode 0700; None: the engine listens at the address, as `plan` prints it."""

    @property
    def socket(self) -> Path:
        """The engine's own socket, which needs no key because no other user can open it."""
        if self.socket_folder is None:
            raise AssertionError(self)
        return self.socket_folder / "engine.sock"

    @property
    def local_url(self) -> str:
        """The engine's URL for this user's programs on its host."""
        return write_socket_url(self.socket)

    def choose_chat_format(self, model: Model | None) -> ChatFormat:
        """Return `chat`, else the format in the model's table."""
        return chat_format.read_table_format(model) if self.chat is None else self.chat

    def __str__(self) -> str:
        return f"{self.name} on port {self.port}"


class Engine(Protocol):
    """The interface of the modules vllm and sglang."""

    TITLE: str
    PROGRAM: str
    PARSER_MODEL_FLAGS: tuple[str, ...]
    """The flags before the model's folder where only the engine's parser is run."""
    SCRIPT_OBSTACLES: Mapping[str, str]
    """The reason why a user's script cannot use the engine, by launcher."""
    SCRIPT_LAUNCHER: Flag | None
    """The flag of a script whose ranks torchrun starts; None if the engine starts its ranks itself."""
    SCRIPT_VARIABLES: tuple[Variable, ...]
    """The variables that a script needs besides those of a server."""

    def build_argv(self, program_folder: Path, serving: ServerSpec, plan: Plan, /) -> tuple[str, ...]:
        """Return the engine's command, before any flag."""

    def list_variables(self, serving: ServerSpec, plan: Plan, host: HostTable, /) -> Iterator[Variable]:
        """Yield the variables of settings without a flag, and of secrets, which a flag would show."""

    def list_flags(
        self, serving: ServerSpec, plan: Plan, host: HostTable, model: Model | None, /
    ) -> Iterator[Flag]:
        """Yield the engine's flags, each with its reason."""

    def list_ray_variables(self, address: str, network: Collection[Variable], /) -> Iterator[Variable]:
        """Yield the variables of an engine over Ray; `address`: the head's, `network`: the ranks' network."""

    def list_node_variables(self, address: str, /) -> Iterator[Variable]:
        """Yield the variables of a host's Ray, at this address, for the ranks that it will start."""

    def choose_parsers(self, chat: ChatFormat, /) -> tuple[str | None, str | None]:
        """Return the engine's names of the parsers of tool calls and reasoning; None for no parser."""

    def is_fatal(self, line: str, /) -> bool:
        """Return whether a line of output shows that the engine failed, though its process goes on."""

    def find_last_error(self, lines: Sequence[str], /) -> str | None:
        """Return the last error of the output that gives a reason; None without one."""


class FlagReason:
    """Reasons of flags and variables that both engines have."""

    SOCKET = "only this user can open it; Caddy answers at the address"
    REPLICAS = "engines in parallel, each with the whole model, behind one address"
    WITHOUT_RAY = "each host starts its own part, without Ray"
    LONGER = "the context is longer than config.json gives, as the maker or the user allows"
    SAME_ON_EACH = "the plan's number, the same on each rank"
    FP8_CACHE = "as requested: half the size of a 16-bit KV cache"
    DTYPE = "the plan's numbers: the same tokens as the model's reference"
    CONCURRENT = "concurrent streams in the plan's memory; --concurrency raises it"
    PER_BATCH = "tokens per pass in the plan's memory"
    EAGER = "compiling would cost more than it gains, or is not possible"


def build_flag(names: str, value: object, why: str) -> Flag:
    """Return a flag with all its names, which spaces separate; a value of None: a switch."""
    return Flag(tuple(names.split()), None if value is None else str(value), why)


def list_optional_flags(names: str, value: object, why: str) -> Iterator[Flag]:
    """Yield the flag, or nothing if its value is None."""
    if value is not None:
        yield build_flag(names, value, why)


def list_table_flags(engine: EngineName, plan: Plan, model: Model | None) -> Iterator[Flag]:
    """Yield the flags of the kinds of hosts, and of the model's table in models/."""
    model_flags = model.args.get(engine, ()) if model else ()
    for arguments, why in (*plan.arguments, (model_flags, "set in its table in models/")):
        remaining = list(arguments)
        while remaining:
            name = remaining.pop(0)
            has_value = bool(remaining) and not remaining[0].startswith("-")
            yield Flag((name,), remaining.pop(0) if has_value else None, why)


def list_table_variables(
    engine: EngineName, plan: Plan, model: Model | None, environ: Mapping[str, str]
) -> Iterator[Variable]:
    """Yield the variables of the kinds of hosts, and of the model's table; the user's own values win."""
    for name, value, why in plan.variables:
        yield prefer_user_value(Variable(name, value, why), environ)
    for name, value in (model.env.get(engine, {}) if model else {}).items():
        yield prefer_user_value(Variable(name, value, "set in its table in models/"), environ)


def drop_user_flags(flags: Iterable[Flag], user_flags: tuple[str, ...]) -> Iterator[Flag]:
    """Return medley's flags without those that the user gives in any spelling."""
    names = {argument.partition("=")[0] for argument in user_flags}
    return (flag for flag in flags if not names.intersection(flag.names))


def serve_on_socket(command: AnnotatedCommand, serving: ServerSpec, python: str) -> AnnotatedCommand:
    """Return the command with `payload/engine_server.py` before it, whose socket Caddy and medley use."""
    program, *arguments = (Path(command.words[0]).name, *command.words[1:])
    argv = command.words if program == "python" else (python, str(_SERVER_SCRIPT), program, *arguments)
    added_variables = [Variable("MEDLEY_SOCKET", str(serving.socket), FlagReason.SOCKET)]
    if hosts := os.environ.get(MEDIA_HOSTS):
        added_variables.append(Variable(MEDIA_HOSTS, hosts, "set by you: requests may name their media"))
    if serving.chat and serving.chat.has_no_reasoning_parser:
        why = "a request's thinking is left out: no parser reads it"
        added_variables.append(Variable(NO_REASONING, "1", why))
    return command.replace(words=argv, variables=keep_last_values((*command.variables, *added_variables)))


def build_stacks_variable() -> Variable:
    """Return the variable that makes each Python process of an engine print its stacks at a signal."""
    return Variable("PYTHONPATH", str(payload.FOLDER / "stacks"), "a stuck rank can print its stacks")


def find_last_error_line(
    lines: Iterable[str],
    prefix_pattern: re.Pattern[str],
    error_pattern: re.Pattern[str],
    generic_phrases: Iterable[str],
) -> str | None:
    """Return the last error without its prefix, if possible one without any of the generic phrases."""
    messages = (prefix_pattern.sub("", line).strip() for line in lines)
    errors = [line for line in messages if error_pattern.match(line)]
    reasons = [line for line in errors if not any(phrase in line for phrase in generic_phrases)]
    return next(reversed(reasons or errors), None)


def list_common_variables(
    plan: Plan, host: HostTable, environ: Mapping[str, str], *, is_local: bool
) -> Iterator[Variable]:
    """Yield the variables of any engine on this host; `is_local`: its model is a folder here."""
    if host.device == "cuda":
        if plan.compile_jobs is not None:
            # They limit the compilers that FlashInfer, SGLang and torch start while an engine starts.
            why = "concurrent compilers: each takes 3 to 8 GiB besides the weights"
            yield prefer_user_value(Variable("MAX_JOBS", str(plan.compile_jobs), why), environ)
            why = "each compiler compiles one file at a time"
            yield prefer_user_value(Variable("FLASHINFER_NVCC_THREADS", "1", why), environ)
        yield Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "CUDA numbers GPUs as nvidia-smi does")
        if plan.gpus:
            indexes = ",".join(map(str, plan.gpus))
            yield Variable("CUDA_VISIBLE_DEVICES", indexes, "the GPUs that the plan chose")
    if is_local:
        yield Variable("HF_HUB_OFFLINE", "1", "the model is a local folder; there is nothing to download")
    yield Variable("DO_NOT_TRACK", "1", "by default the engine and its libraries report usage")


def list_hidden_names(
    names: Iterable[str], shared_names: Iterable[str] = (), local_names: Iterable[str] = ()
) -> list[str]:
    """Return the names of a driver's environment to hide from ranks on other hosts.

    `shared_names`: names that ranks get in this launch, although their values differ from host to host as a
    rule. `local_names`: names that ranks do not get in this launch, although others like them are shared.
    """
    shared_set = set(shared_names)
    host_names = _HOST_ONLY_VARIABLES.difference(shared_set).union(local_names)
    return sorted(
        name
        for name in names
        if name in host_names or not (name in shared_set or name.startswith(_SHARED_VARIABLE_PREFIXES))
    )


def _find_hidden_names_file() -> Path:
    return storage.find_state_folder() / "vllm" / "ray_non_carry_over_env_vars.json"


def build_hidden_names_variable(engine: EngineName) -> Variable:
    """Return the variable by which the engine finds the file of hidden names."""
    file = _find_hidden_names_file()
    why = "hides this host's own values from the others: paths, interfaces, secrets"
    if engine == "sglang":
        return Variable("MEDLEY_NOT_CARRIED", str(file), f"it {why}")
    return Variable("VLLM_CONFIG_ROOT", str(file.parent), f"its {file.name} {why}")


def write_hidden_names(annotated_command: AnnotatedCommand) -> None:
    """Write the file with the names of this command's environment that stay on this host."""
    command = annotated_command.command
    names = (*command.build_environment(os.environ), *command.secrets, *command.inherits)
    shared_names = (variable.name for variable in annotated_command.variables if variable.everywhere)
    local_names = (variable.name for variable in annotated_command.variables if variable.local)
    storage.write_text(
        _find_hidden_names_file(), json.dumps(list_hidden_names(names, shared_names, local_names), indent=0)
    )
