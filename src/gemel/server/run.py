"""Running a server as a process of its own: the event loop, the lifespan, and the transport that was asked for."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from contextvars import ContextVar
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from gemel.channel import Channel, SessionLike
from gemel.errors import AuthorizationFailed, ConnectFailed, DefinitionError, StartError
from gemel.local_sockets import is_pipe
from gemel.options import is_whole, options_of, resolve
from gemel.protocol.limits import Limits
from gemel.server.composition.mount import Catalog
from gemel.server.options import SocketOptions, StdioOptions
from gemel.server.watchdog import describe_thread, end_blocked_process
from gemel.standard_streams import fill_standard_descriptors, own_streams, require_standard_streams
from gemel.transports.event_loop import run_in_own_loop

if TYPE_CHECKING:
    from gemel.transports.http.server.options import HttpAppOptions

logger = logging.getLogger("gemel")

_loading: ContextVar[bool] = ContextVar("gemel_loading", default=False)


class Runnable(Protocol):
    """What running needs of a server."""

    limits: Limits

    def serve(self, channel: Channel, /) -> SessionLike:
        """Starts a conversation."""
        ...

    def running(self) -> AbstractAsyncContextManager[None]:
        """Holds the lifespan open."""
        ...

    def http_app(self, path: str = ..., /, **options: Unpack[HttpAppOptions]) -> Any:
        """The server as an ASGI app."""
        ...

    def check_workers(self, *, forked: bool = False) -> None:
        """Check what several processes need. Raises StartError."""

    def expect_offers(self) -> None:
        """Log a warning if nothing is offered when serving starts."""


@contextmanager
def loading() -> Iterator[None]:
    """While a file is being imported for its server, a `server.run()` in it does nothing: the importer runs it."""
    token = _loading.set(True)
    try:
        yield
    finally:
        _loading.reset(token)


class ScriptEnds(StartError, SystemExit):
    """A StartError that nobody catches ends a script with its one line on stderr and exit code 1, without a traceback."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.code = f"gemel: {text}"


def run(server: Runnable, transport: str, options: Mapping[str, Any]) -> None:
    """Serve in a fresh event loop until the end of input or a signal. Raises StartError.

    On the main thread, with no event loop around, that is a SystemExit as well, so that a script ends with one line.
    """
    if _loading.get():
        return
    if module := _importing():
        print(f"gemel: {module} is being imported, so its run() does not serve", file=sys.stderr)
        return
    if _in_a_loop():
        raise StartError(
            "run() starts an event loop, and one is running here already: write `await server.run_async(…)` in its place"
        )
    fill_standard_descriptors()
    limits = server.limits
    try:
        with end_blocked_process(limits.drain + limits.teardown):
            _run(server, transport, options)
    except (StartError, DefinitionError, ConnectFailed, AuthorizationFailed) as exc:
        alone = threading.current_thread() is threading.main_thread()
        raise (ScriptEnds if alone else StartError)(str(exc)) from exc


def _run(server: Runnable, transport: str, options: Mapping[str, Any]) -> None:
    if transport == "http" and is_whole(options.get("workers"), 2):
        _run_workers(server, _checked(transport, options), sessions="sessions" in options)
    else:
        with suppress(KeyboardInterrupt):
            run_in_own_loop(_serving(server, transport, _checked(transport, options)))


async def run_async(server: Runnable, transport: str, options: Mapping[str, Any]) -> None:
    """The same in the event loop that runs already. Raises StartError."""
    if not _loading.get():
        await _serving(server, transport, _checked(transport, options))


def _importing() -> str | None:
    """The module whose import calls `run()`, if that is so: `from notes import server` must not serve."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and getattr(frame.f_globals.get("__spec__"), "_initializing", False):
            return str(frame.f_globals["__name__"])
        frame = frame.f_back
    return None


def imported_twice(server: object, mine: Catalog) -> str | None:
    """Say that the file of a server was imported under two names, so that there are two servers.

    Args:
        server: The server that is started.
        mine: What it offers.

    Returns:
        A sentence with what is registered on the other server only; None if there is nothing.
    """
    loaded: dict[str, object] = dict(sys.modules)  # whatever a library has put there
    modules = [(name, vars(module)) for name, module in loaded.items() if isinstance(module, ModuleType)]
    for name, module in modules:
        for variable in [key for key, value in list(module.items()) if value is server]:
            for other_name, other in modules:
                catalog = getattr(other.get(variable), "catalog", None)
                if not isinstance(catalog, Catalog) or catalog is mine or not _same_file(module, other):
                    continue
                kinds = Counter(kind for kind, _ in catalog.registered() - mine.registered())
                if kinds:
                    counts = ", ".join(f"{count} {kind}{'s' * (count > 1)}" for kind, count in sorted(kinds.items()))
                    verb = "was" if kinds.total() == 1 else "were"
                    return (
                        f"{os.path.basename(module['__file__'])} was imported twice, as {name} and {other_name}: {counts} "
                        f"{verb} registered on the other server. Make the server in a file of its own, which others import"
                    )
    return None


def _same_file(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    files = [os.path.realpath(file) for module in (one, other) if isinstance(file := module.get("__file__"), str)]
    return len(files) == 2 and files[0] == files[1]


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _checked(transport: str, options: Mapping[str, Any]) -> Any:
    """All options of a transport. Raises StartError for an unknown transport, option or value."""
    if transport not in ("stdio", "http", "socket"):
        raise StartError(f'There is no transport {transport!r}: use "stdio", "http" or "socket"')
    try:
        if transport == "http":
            from gemel.transports.http.server.options import FROM_SERVER, HttpOptions

            binding = "run binds to host=…; bind is for apps that somebody else serves"
            return resolve(HttpOptions, options, "HTTP", {**FROM_SERVER, "bind": binding})
        return resolve(SocketOptions if transport == "socket" else StdioOptions, options, f"run({transport!r})")
    except DefinitionError as exc:
        raise StartError(str(exc)) from None


async def _serving(server: Runnable, transport: str, options: Any) -> None:
    server.expect_offers()
    if transport == "stdio":
        from gemel.transports.stream.stdio import serve_stdio

        require_standard_streams()
        if sys.stdin is not None and sys.stdin.isatty() and sys.stderr is not None and sys.stderr.isatty():
            text = (
                "This server waits for an MCP client on standard input; Ctrl-C ends it. To try it: gemel list FILE.py"
            )
            print(f"gemel: {text}", file=sys.stderr, flush=True)
        with own_streams() as streams:
            async with server.running():
                await serve_stdio(server.serve, **options, limits=server.limits, streams=streams)
    elif transport == "socket":
        from gemel.transports.stream.sockets import serve_socket

        async with server.running():
            announce = options.pop("announce") or _announce
            await serve_socket(
                server.serve, **options, limits=server.limits, ready=lambda address: announce(_client_target(address))
            )
    else:
        from gemel.transports.http.server.run import serve_http

        if options["workers"] > 1:
            raise StartError("Several workers need run(): they are processes, each with an event loop of its own")
        await serve_http(_http_app(server, options), **_process_options(options))


def _run_workers(server: Runnable, options: Any, *, sessions: bool) -> None:
    """Serve in several processes, without HTTP sessions if those can't be shared and were not asked for."""
    from gemel.transports.http.server.workers.run import run_workers

    server.check_workers(forked=True)
    app = _http_app(server, options)
    if not sessions and not app.shares_sessions and options["sse_path"] is None:
        if app.holds_sessions:
            logger.warning(
                "Several workers without a backend have no HTTP sessions: clients of the handshake era can't be asked "
                'anything and hear of no changes. Server(backend="sqlite:///FILE"), in gemel proxy --backend '
                "sqlite:///FILE, shares sessions; sessions=False says that you need none"
            )
        app = _http_app(server, {**options, "sessions": False})
    several = {name: options[name] for name in ("workers", "worker_timeout")}
    run_workers(app, describe=describe_thread, **several, **_process_options(options))


def _http_app(server: Runnable, options: Any) -> Any:
    from gemel.transports.http.server.options import HttpEndpointOptions

    endpoint = {name: options[name] for name in options_of(HttpEndpointOptions)}
    return server.http_app(options["path"], bind=options["host"], **endpoint)


def _process_options(options: Any) -> dict[str, Any]:
    return {
        name: options[name]
        for name in ("host", "port", "uds", "tls", "announce", "engine", "access_log", "trusted_proxies")
    }


def _client_target(address: str | tuple[str, int]) -> str:
    """The address of a socket as a client takes it."""
    if isinstance(address, str):
        return address if is_pipe(address) else f"unix:{address}"
    host, port = address
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def _announce(target: str) -> None:
    print(f"Serving MCP at {target}", file=sys.stderr, flush=True)
