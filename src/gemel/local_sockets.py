r"""Connections inside a machine: Unix sockets, and on Windows named pipes (`\\.\pipe\NAME`) in their place.

asyncio has pipes in its proactor event loop, the default on Windows. They have the default rights of a pipe: only the user
who made it, administrators and the system can write to it. They have no half-closed state, no peer's address, no TLS.
https://learn.microsoft.com/en-us/windows/win32/ipc/named-pipes
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from gemel.errors import StartError

if TYPE_CHECKING:
    import asyncio

ProtocolT = TypeVar("ProtocolT", bound="asyncio.BaseProtocol")

_PREFIX = "\\\\.\\pipe\\"
#: What to do where there are no Unix sockets.
NO_UNIX_SOCKETS = "This system has no Unix sockets; give the name of a pipe (\\\\.\\pipe\\NAME), or a port instead."


class Listening(Protocol):
    """What accepts connections until it is closed."""

    def close(self) -> None:
        """Accept no more connections. Open ones go on."""
        ...


def is_pipe(path: str) -> bool:
    r"""Whether a path is the name of a pipe of this machine: `\\.\pipe\NAME`, in any case, with either kind of slash."""
    return path.replace("/", "\\").lower().startswith(_PREFIX)


def remove_dead_socket(path: str) -> None:
    """Remove the Unix socket of a dead server.

    Args:
        path: Its path.

    Raises:
        StartError: A server listens there, or it is a file of another kind.
    """
    import socket

    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise StartError(f"Can't listen on {path}: it exists and is not a socket; choose another path.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except FileNotFoundError:
            return
        except OSError as exc:
            raise StartError(f"Can't listen on {path}: {exc.strerror or exc}") from exc
    raise StartError(f"Can't listen on {path}: it is in use by a running server; stop that one or choose another path.")


def is_pipe_transport(transport: asyncio.BaseTransport) -> bool:
    """Whether a connection is a named pipe."""
    return transport.get_extra_info("pipe") is not None


async def listen_on_pipe(make_protocol: Callable[[], asyncio.BaseProtocol], path: str) -> Listening:
    """Accept connections to a named pipe.

    Args:
        make_protocol: Makes the protocol of each connection.
        path: The name of the pipe.

    Raises:
        StartError: The pipe is in use, its name is not allowed, or the event loop has no pipes.
    """
    import asyncio  # not above: the parser of the command line needs `is_pipe` alone

    start: Any = getattr(asyncio.get_running_loop(), "start_serving_pipe", None)
    if start is None:
        raise StartError(f"Can't listen on {path}: {_why_none()}")
    try:
        # With FILE_FLAG_FIRST_PIPE_INSTANCE: a second server is refused, it would share the connections.
        (server,) = await start(make_protocol, path)
    except PermissionError as exc:
        text = "another server listens on it; stop that one or choose another name"
        raise StartError(f"Can't listen on {path}: {text}") from exc
    except OSError as exc:
        raise StartError(f"Can't listen on {path}: {exc.strerror or exc}") from exc
    listening: Listening = server
    return listening


async def connect_locally(make_protocol: Callable[[], ProtocolT], path: str, **tls: object) -> ProtocolT:
    """Connect to a Unix socket or a named pipe. asyncio waits for a pipe whose instances are all busy.

    Args:
        make_protocol: Makes the protocol of the connection.
        path: The path of the socket, or the name of the pipe.
        tls: Arguments of asyncio's `create_unix_connection` for TLS.

    Returns:
        The protocol, connected.

    Raises:
        OSError: Nobody listens there, this user may not connect, or the system has no such connections.
    """
    import asyncio
    import socket

    loop = asyncio.get_running_loop()
    connect: Any
    if is_pipe(path):
        connect = getattr(loop, "create_pipe_connection", None)
        if connect is None or tls:
            raise OSError("a named pipe carries no TLS" if tls else _why_none())
    elif hasattr(socket, "AF_UNIX"):
        connect = loop.create_unix_connection
    else:
        raise OSError(NO_UNIX_SOCKETS)
    _, protocol = await connect(make_protocol, path, **tls)
    connected: ProtocolT = protocol
    return connected


def _why_none() -> str:
    if os.name != "nt":
        return "named pipes exist on Windows only; here a path names a Unix socket"
    return "named pipes need asyncio's ProactorEventLoop, the default on Windows"
