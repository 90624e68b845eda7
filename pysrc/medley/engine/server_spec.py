"""Define the server that an engine runs: its weights, and the name, address, key and TLS of its API."""

from pathlib import Path

from medley import storage
from medley.model import chat_format
from medley.model.chat_format import ChatFormat
from medley.network.ports import API_PORT, LOOPBACK_ADDRESS
from medley.network.socket_url import write_socket_url
from medley.schema import Model
from medley.values import Value


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
