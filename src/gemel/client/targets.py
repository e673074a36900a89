"""The transport to a target: a URL, a command line, a Server, or a transport."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from inspect import isroutine
from pathlib import Path
from typing import Any, Literal, TypeAlias, Unpack
from urllib.parse import urlsplit

from gemel.channel import Transport
from gemel.errors import DefinitionError, StartError, shorten
from gemel.http1.asgi import is_asgi_app
from gemel.local_sockets import is_pipe
from gemel.options import near_file, options_of
from gemel.protocol.limits import Limits
from gemel.transports.http.client.options import AsgiOptions, HttpClientOptions
from gemel.transports.memory_options import MemoryOptions
from gemel.transports.stream.command_line import split_command_line
from gemel.transports.stream.options import ProcessOptions

_HTTP = ("http://", "https://")
_SOCKETS = ("unix:", "tcp://")
#: A string that is meant as an address.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+://")
#: An address without its scheme, with host, port and path.
_BARE_ADDRESS = re.compile(r"([A-Za-z0-9.\-]+|\[[0-9A-Fa-f:.]+\]):\d+(/\S*)?")
_LOOPBACK = re.compile(r"localhost|127\.\d+\.\d+\.\d+|\[::1\]|0\.0\.0\.0")
_PYTHON_FILE = re.compile(r"(?P<path>\S+\.py)(?P<name>:\w+)?")


_Kind: TypeAlias = Literal["transport", "server", "app", "url", "socket", "process"]


class TransportOptions(HttpClientOptions, AsgiOptions, ProcessOptions, MemoryOptions, total=False):
    """The options of all transports of a client."""


def transport_for(target: Any, *, limits: Limits, **options: Unpack[TransportOptions]) -> Transport:
    """The transport to a target. Raises DefinitionError for options that the transport does not have.

    - `http://…` or `https://…`: Streamable HTTP (`headers`, `auth`, …)
    - `unix:/path`, `tcp://host:port`, on Windows the name of a pipe (`\\\\.\\pipe\\NAME`): one message per line
    - a Python file, or a command line (a string or a list of words): a child process (`env`, `cwd`)
    - an object with `serve` (a Server): in memory
    - an ASGI app, `app(scope, receive, send)`: Streamable HTTP without a socket (`url`, `headers`, `auth`)
    - an object with `open` (a Transport): itself
    """
    if isinstance(target, type):
        raise DefinitionError(
            f"A client can't connect to the class {target.__name__}: give an object that is made of it"
        )
    kind = _kind_of(target)
    given: Any = options
    if kind == "transport":
        transport: Transport = _plain(target, options)
        return transport
    if kind == "server":
        from gemel.transports.memory import Memory

        _check_options(type(target).__name__, MemoryOptions, options)
        server: Any = target
        running = getattr(server, "running", nullcontext)
        return Memory(
            server.serve,
            limits=limits,
            running=running,
            raise_exceptions=options.get("raise_exceptions", False),
            principal=options.get("principal"),
        )
    if kind == "app":
        from gemel.transports.http.client.asgi import AsgiTransport

        _check_options("an ASGI app", AsgiOptions, options)
        return AsgiTransport(target, limits=limits, **given)
    if isinstance(target, str):
        target = address_of(target)
    if kind == "url":
        from gemel.transports.http.client.transport import HttpTransport

        return _made(HttpTransport, HttpClientOptions, target, limits, options)
    if kind == "socket":
        return _socket(target, limits, options)
    from gemel.transports.stream.subprocess import Stdio

    return _made(Stdio, ProcessOptions, command_line(target), limits, options)


#: The options of the transport to each kind of target.
_OPTIONS: dict[_Kind, type | None] = {
    "transport": None,
    "server": MemoryOptions,
    "app": AsgiOptions,
    "url": HttpClientOptions,
    "socket": None,
    "process": ProcessOptions,
}


def _kind_of(target: object) -> _Kind:
    if hasattr(target, "open") and not isinstance(target, Path):
        return "transport"
    if hasattr(target, "serve") and (hasattr(target, "running") or not callable(target)):
        return "server"
    if is_asgi_app(target):
        return "app"
    if isinstance(target, str) and address_of(target).startswith(_HTTP):
        return "url"
    return "socket" if isinstance(target, str) and is_address(target) else "process"


def fitting_options(target: object, options: Mapping[str, Any]) -> dict[str, Any]:
    """Get those of the options of clients that fit a target.

    Args:
        target: The target.
        options: Options of clients; those of some transport are left out if the target has another one.

    Returns:
        The options.
    """
    declared = _OPTIONS[_kind_of(target)]
    taken = () if declared is None else options_of(declared)
    of_transports = options_of(TransportOptions)
    return {name: value for name, value in options.items() if name in taken or name not in of_transports}


def address_of(target: str) -> str:
    """A target as it is; `localhost:8000`, which can only be an address, as a URL.

    Args:
        target: The target.

    Returns:
        The target, or a URL, whose path is `/mcp` if there is none.
    """
    bare = _BARE_ADDRESS.fullmatch(target)
    if bare is None or _LOOPBACK.fullmatch(bare[1]) is None:
        return target
    return f"http://{target}{'' if bare[2] else '/mcp'}"


def is_address(target: str) -> bool:
    """Whether a string is the address of a server that runs; any other string is a command line."""
    return target.startswith((*_HTTP, *_SOCKETS)) or is_pipe(target)


def _made(kind: Callable[..., Transport], declared: type, target: Any, limits: Limits, options: Any) -> Transport:
    _check_options(repr(target), declared, options)
    return kind(target, limits=limits, **options)


def _check_options(target: str, declared: type, options: Any) -> None:
    """Raises DefinitionError for unknown options."""
    if unknown := options.keys() - options_of(declared).keys():
        raise DefinitionError(f"A client of {target} has no option {', '.join(sorted(unknown))}")


def _plain(target: Any, options: Any) -> Any:
    if options:
        raise DefinitionError(
            f"{type(target).__name__} takes no {', '.join(options)}: these options belong to a URL or command"
        )
    return target


def _socket(target: str, limits: Limits, options: object) -> Transport:
    from gemel.transports.stream.sockets import TcpSocket, UnixSocket

    _plain(target, options)
    if is_pipe(target):
        return UnixSocket(target, limits=limits)
    if target.startswith("unix:"):
        path = target.removeprefix("unix:")
        path = path if is_pipe(path) else path.removeprefix("//")
        if not path:
            raise DefinitionError(f"{target!r} is not a socket address: write unix:/path/of/server.sock")
        return UnixSocket(path, limits=limits)
    host, _, port = target.removeprefix("tcp://").rstrip("/").rpartition(":")
    if not (port.isascii() and port.isdecimal()) or not host:
        raise DefinitionError(f"{target!r} is not a socket address: write tcp://host:port")
    return TcpSocket(host.strip("[]"), int(port), limits=limits)


def words_of(target: object) -> str:
    """A target as text for people."""
    if isinstance(target, str | Path):
        return shorten(str(target))
    if isinstance(target, Sequence):
        return shorten(shlex.join(map(str, target)))
    return shorten(str(getattr(target, "url", None) or f"{type(target).__name__} in this process"))


def _interpreter() -> str:
    """The Python that runs a file: this one, or the one on the PATH if this is a frozen program."""
    if not getattr(sys, "frozen", False):
        return sys.executable
    interpreter = shutil.which("python3") or shutil.which("python")
    if interpreter is None:
        raise DefinitionError("There is no Python on the PATH to run the file: give a command line with its path")
    return interpreter


def check_script(path: Path) -> None:
    """Raise StartError if Python would import a file in the folder of this one in place of the package."""
    hiding = path.with_name("gemel.py")
    if hiding.is_file():
        raise StartError(f"{hiding} hides the package gemel, because Python imports it first: rename the file")


def command_line(target: object) -> list[str]:
    """The words of a command line; a Python file runs in this interpreter. Raises DefinitionError, StartError."""
    if isinstance(target, Path) or (isinstance(target, str) and target.endswith(".py") and Path(target).is_file()):
        check_script(Path(target))
        return [_interpreter(), str(target)]
    if isinstance(target, str):
        if _BARE_ADDRESS.fullmatch(target):
            raise DefinitionError(f"{target!r} is not a command: for a server over HTTP write https://{target}")
        if _ADDRESS.match(target):
            raise DefinitionError(
                f"{shorten(target)!r} is not an address that a client knows: write http://…, https://…, tcp://host:port, "
                "unix:/path, or a command line"
            )
        if file := _PYTHON_FILE.fullmatch(target):
            if not Path(file["path"]).is_file():
                raise DefinitionError(f"No such file: {file['path']}{near_file(file['path'])}")
            return [_interpreter(), *(["-P", "-m", "gemel", "run"] if file["name"] else []), target]
        try:
            words = split_command_line(target)
        except ValueError as exc:
            raise DefinitionError(f"The command line {target!r} can't be split into words: {exc}") from exc
    elif isinstance(target, Sequence) and all(isinstance(word, str) for word in target):
        words = list(target)
    else:
        raise DefinitionError(f"A client can't connect to {type(target).__name__}: {_advice(target)}")
    if not words:
        raise DefinitionError("The command line is empty: give the program that runs the server")
    return words


def _advice(target: object) -> str:
    """What to write in place of a target of another type."""
    if isinstance(target, Mapping):
        return "a configuration is read by ClientGroup.from_config(…)"
    if isroutine(target):
        return f"call it, Client({target.__name__}(…)), if it returns a Server"
    return "give a URL, a command line, a Server, an ASGI application or a Transport"


def network_attributes(transport: object) -> dict[str, str | int]:
    """The address of a transport, without path and query of a URL, which may contain secrets."""
    url, host = getattr(transport, "url", None), getattr(transport, "host", None)
    if isinstance(url, str):
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        version = getattr(transport, "http_version", None)
        protocol = {"network.protocol.name": "http"} | (
            {} if version is None else {"network.protocol.version": version}
        )
        return {"network.transport": "tcp", **protocol, **_address(parts.hostname, port)}
    if isinstance(host, str):
        return {"network.transport": "tcp", **_address(host, getattr(transport, "port", None))}
    if isinstance(path := getattr(transport, "path", None), str):
        return {"network.transport": "pipe" if is_pipe(path) else "unix", **_address(path, None)}
    return {"network.transport": "pipe"} if hasattr(transport, "command") else {}


def _address(host: str | None, port: int | None) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {}
    if host is not None:
        attributes["server.address"] = host
    if port is not None:
        attributes["server.port"] = port
    return attributes
