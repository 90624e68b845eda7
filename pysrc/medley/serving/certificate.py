"""Choose the certificate of a server: the user's own, or one of medley's own authority.

Caddy makes that authority and issues its certificates: `edge.py` configures it.
"""

import platform
import shlex
import ssl

from medley import user
from medley.engine.server_spec import Tls
from medley.errors import Problem, describe_error
from medley.network import tcp


def choose_tls(address: str, certificate: str | None, key: str | None, *, is_requested: bool) -> Tls | None:
    """Return the certificate to serve with, or None for plain HTTP.

    `certificate` and `key` are files as typed; both are read here, so that a wrong one is a Problem before a
    model is loaded. Without them the certificate names this host and its outward address.
    """
    if certificate is None and key is None:
        return Tls(names=_list_names(address)) if is_requested else None
    if certificate is None or key is None:
        raise Problem(
            "a certificate needs its key",
            cause=f"{'--tls-cert' if certificate is None else '--tls-key'} is missing",
            fix="medley serve MODEL --tls-cert FILE --tls-key FILE; or --tls, without files of your own",
        )
    files = user.expand_home(certificate).absolute(), user.expand_home(key).absolute()
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
    except (OSError, ssl.SSLError) as error:
        raise Problem(
            f"{certificate} and {key} are not a certificate and its key",
            cause=describe_error(error),
            fix=f"openssl x509 -noout -subject -in {shlex.quote(certificate)}; "
            f"openssl pkey -noout -check -in {shlex.quote(key)}",
        ) from error
    return Tls(*files)


def _list_names(address: str) -> tuple[str, ...]:
    """Return the names that clients may use; the first is the answer to clients that send none."""
    name = platform.node()
    outward = tcp.find_outward_address() if address in {"0.0.0.0", "::"} else address  # noqa: S104 - compared, not bound
    names = (name, f"{name}.local", "localhost", "127.0.0.1", outward)
    return tuple(dict.fromkeys(candidate for candidate in names if candidate))
