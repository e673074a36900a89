"""Record the messages of a client and a server in a file, and replay either side."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

from gemel.channel import Channel, Serve, Transport
from gemel.client.targets import TransportOptions, transport_for
from gemel.errors import DefinitionError, StartError
from gemel.protocol.eras.base import EraOption
from gemel.protocol.limits import DEFAULT_LIMITS, Limits
from gemel.server.server import Server
from gemel.session import Session
from gemel.testing.comparison import MessageDifference, SessionComparison, describe_request, format_differences
from gemel.testing.raw_client import LiveServer
from gemel.testing.recording_file import (
    MAX_BYTES,
    RecordedSession,
    RecordingWriter,
    Redact,
    complete_size,
    parse_session,
    read_recording,
)
from gemel.testing.replay import ReplayOptions, ReplayServer, ReplayTransport
from gemel.testing.wire_log import ObservedTransport, observed, patched_serve
from gemel.transports.http.client.options import AsgiOptions, HttpClientOptions
from gemel.transports.memory import connect
from gemel.transports.memory_options import MemoryOptions
from gemel.transports.stream.options import ChildOptions

if TYPE_CHECKING:
    from gemel.server.options import SocketOptions, StdioOptions
    from gemel.transports.http.server.app import HttpApp
    from gemel.transports.http.server.options import HttpAppOptions, HttpOptions

#: When the target is used and recorded: see Recording.
Record: TypeAlias = Literal["once", "missing", "always", "never"]
_MODES: tuple[Record, ...] = ("once", "missing", "always", "never")


class RecordedOptions(HttpClientOptions, AsgiOptions, ChildOptions, MemoryOptions, total=False):
    """The options of the transport to a target that is recorded. `patience` is that of the recording."""


class Recording(Transport):
    """A recording of a session in a file, which replaces the server or the client in tests.

    Use it as the target of a client: the first run records the messages of the real server; from then on the responses come
    from the file, without the server.

    Args:
        path: The file. It has one JSON object on each line.
        target: The real server: what `Client` takes. It is only needed to record.
        record: When the target is used. "once": if the file doesn't exist; "missing": for requests that are not in the file,
            which are added to it; "always": in each run, the file is written again; "never": not at all. The default is the
            environment variable GEMEL_RECORD, or "once".
        redact: Called with each message as a dict before it is written; it changes the message or returns another one. It is
            also applied to requests before they are compared. HTTP headers are never written.
        ignore: Paths to leave out when messages are compared, for example `params.arguments.now` or `result.*.text`.
        repeat: Whether a tool call that is sent more often than recorded gets the last recorded response; otherwise it fails.
        patience: How many seconds a request that was cancelled in the recording waits for its cancellation.
        max_bytes: The maximum size of the file.
        limits: The limits of the sessions.
        **options: Options of the transport of the target: `headers`, `env`, …

    Raises:
        DefinitionError: `record` or the environment variable has an unknown value.

    Example:
        >>> client = Client(Recording("weather.jsonl", "https://example.com/mcp"))
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: object = None,
        *,
        record: Record | None = None,
        redact: Redact | None = None,
        ignore: Sequence[str] = (),
        repeat: bool = False,
        patience: float = 5.0,
        max_bytes: int = MAX_BYTES,
        limits: Limits = DEFAULT_LIMITS,
        **options: Unpack[RecordedOptions],
    ) -> None:
        self.path = Path(path).absolute()
        self._target = target
        self._record = _mode(record)
        self._max_bytes = max_bytes
        self.limits = limits
        self._options = options
        name = self.path.name
        self._replay_options = ReplayOptions(
            name=name, ignore=tuple(ignore), repeat=repeat, redact=redact, patience=patience, limits=self.limits
        )
        self._transport: Transport | None = None
        self._writer: RecordingWriter | None = None
        self._server: ReplayServer | None = None
        self._live: LiveServer | None = None

    # ---------------------------------------------------------------- replaying the server

    async def open(self, serve: Serve, /) -> Channel:
        """Open a channel to the replayed or real server. `Client` calls this.

        Args:
            serve: Starts the session of the client.

        Returns:
            The channel.

        Raises:
            CallError: The real server can't be reached.
            StartError: The file can't be read or does not exist.
        """
        if self._records:
            return await self._recorded().open(serve)
        return await ReplayTransport(connect(self.serve, limits=self.limits), self._replayed()).open(serve)

    def serve(self, channel: Channel, /) -> Session:
        """Serve a channel: replay the recording, or forward everything to the target while it is recorded.

        Args:
            channel: The channel of a client.

        Returns:
            The session.

        Raises:
            StartError: The file can't be read or does not exist.
        """
        return self._replayed().serve(channel)

    @overload
    def run(self, transport: Literal["stdio"] = "stdio", **options: Unpack[StdioOptions]) -> None: ...

    @overload
    def run(self, transport: Literal["http"], **options: Unpack[HttpOptions]) -> None: ...

    @overload
    def run(self, transport: Literal["socket"], **options: Unpack[SocketOptions]) -> None: ...

    def run(self, transport: Literal["stdio", "http", "socket"] = "stdio", **options: object) -> None:
        """Serve until the end of input or a signal.

        Args:
            transport: "stdio", "http" or "socket".
            **options: Options of the transport, as for `Server.run`.

        Raises:
            StartError: The file can't be read or does not exist, or the transport can't be started.
        """
        from gemel.server.run import run

        self._replayed()
        run(self, transport, options)

    def http_app(self, path: str = "/mcp", /, **options: Unpack[HttpAppOptions]) -> HttpApp:
        """Return an ASGI app that replays the server.

        Args:
            path: The path of the endpoint.
            **options: Options of the endpoint, as for `Server.http_app`.

        Returns:
            The app.

        Raises:
            DefinitionError: An option is unknown or has an invalid value.
        """
        from gemel.transports.http.server.app import HttpApp

        return HttpApp(lambda: self.serve, path, limits=self.limits, on_stop=self._leave, **options)

    def check_workers(self, *, forked: bool = False) -> None:
        """Do nothing: a recording has no keys that several processes must share.

        Args:
            forked: Whether the processes are forked from this one.
        """

    def expect_offers(self) -> None:
        """Do nothing: a recording has what was recorded."""

    async def _leave(self) -> None:
        if self._live is not None:
            await self._live.close()

    def running(self) -> AbstractAsyncContextManager[None]:
        """Return a context manager to serve in. It runs the target while that is recorded."""
        return self._running()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        if self._records:
            async with self._recorded().running():
                yield
            return
        try:
            yield
        finally:
            await self._leave()

    @property
    def era(self) -> EraOption:
        """The era of the target's transport while it is recorded; a recording can be replayed in any."""
        return self._recorded().era if self._records else "auto"

    def older(self) -> Transport | None:
        """The older transport to the target while it is recorded."""
        return self._recorded().older() if self._records else None

    @property
    def _records(self) -> bool:
        """Whether all requests go to the target."""
        if self._writer is not None:
            return self._server is None
        if self._target is None or self._server is not None:
            return False
        return self._record == "always" or (self._record in ("once", "missing") and not self.path.exists())

    def _recorded(self) -> Transport:
        if self._transport is None:
            transport = transport_for(self._target, limits=self.limits, **self._options)
            self._writer = RecordingWriter(
                self.path, "client", redact=self._replay_options.redact, max_bytes=self._max_bytes
            )
            self._transport = ObservedTransport(transport, self._writer)
        return self._transport

    def _replayed(self) -> ReplayServer:
        if self._server is None:
            anew = self._records
            session = RecordedSession([]) if anew else self._read()
            if anew or (self._record == "missing" and self._target is not None):
                self._server = ReplayServer(session, self._replay_options, self._open_live(session, anew=anew))
            else:
                self._server = ReplayServer(session, self._replay_options)
        return self._server

    def _open_live(self, session: RecordedSession, *, anew: bool) -> LiveServer:
        after = 0 if anew else complete_size(self.path, self._max_bytes)
        tape = self._writer = RecordingWriter(
            self.path, "client", redact=self._replay_options.redact, max_bytes=self._max_bytes, after=after
        )
        target, options, limits = self._target, self._options, self.limits

        def open_transport() -> Transport:
            return ObservedTransport(transport_for(target, limits=limits, **options), tape)

        listed = [one.answer for one in session.calls if one.method == "tools/list" and one.answer is not None]
        self._live = LiveServer(open_transport, limits, lists=[entry.message.get("result") for entry in listed])
        return self._live

    def _read(self) -> RecordedSession:
        if not self.path.exists():
            advice = (
                "make it with gemel record, or pass a target" if self._target is None else "record='once' records it"
            )
            raise StartError(f"The recording {self.path} does not exist: {advice}")
        return parse_session(read_recording(self.path, self._max_bytes))

    # ---------------------------------------------------------------- checks

    @property
    def missed(self) -> list[str]:
        """Descriptions of requests that could not be answered from the recording."""
        return [] if self._server is None else list(self._server.missed)

    @property
    def unplayed(self) -> list[str]:
        """Descriptions of recorded requests that no client sent, with their lines.

        `initialize`, `server/discover` and `ping` don't count.
        """
        calls = [] if self._server is None else self._server.unplayed()
        return [f"{describe_request(one.method, one.params)} (line {one.entry.line})" for one in calls]

    def check(self, *, all_played: bool = False) -> None:
        """Require that all requests could be answered: for tests of applications that ignore failed calls.

        Args:
            all_played: Whether all recorded requests must have been sent as well.

        Raises:
            AssertionError: A request is `missed`, or `unplayed`.
        """
        problems = self.missed
        if all_played:
            problems += [f"Not sent: {words}" for words in self.unplayed]
        if problems:
            raise AssertionError("\n".join([f"The recording {self.path.name} was not followed:", *problems]))

    # ---------------------------------------------------------------- replaying the client

    async def compare(self, target: object, **options: Unpack[TransportOptions]) -> list[MessageDifference]:
        """Send the recorded requests to a server, and compare its responses with the recorded ones.

        Ids, tokens, cursors, request state, `_meta` and the paths in `ignore` are not compared.

        Args:
            target: The server: what `Client` takes.
            **options: Options of its transport.

        Returns:
            The differences, in the order of the recording.

        Raises:
            ConnectFailed: The server can't be reached.
            StartError: The file can't be read or does not exist.
        """
        transport = transport_for(target, limits=self.limits, **options)
        session = self._read()
        return await SessionComparison(session, transport, ignore=self._replay_options.ignore, limits=self.limits).run()

    async def verify(self, target: object, **options: Unpack[TransportOptions]) -> None:
        """Require that there are no differences: see `compare`.

        Args:
            target: The server: what `Client` takes.
            **options: Options of its transport.

        Raises:
            AssertionError: There are differences; the message shows them.
            ConnectFailed: The server can't be reached.
            StartError: The file can't be read or does not exist.
        """
        mismatches = await self.compare(target, **options)
        if mismatches:
            many = "1 difference" if len(mismatches) == 1 else f"{len(mismatches)} differences"
            raise AssertionError(f"{many} from {self.path.name}:\n{format_differences(mismatches)}")

    # ---------------------------------------------------------------- recording a server

    @contextmanager
    def attach(self, server: Server[Any]) -> Iterator[Server[Any]]:
        """Record all sessions of a server that begin within the block, of any client, to a new file.

        Args:
            server: The server.

        Returns:
            A context manager that gives the server.

        Raises:
            StartError: The file can't be written.

        Example:
            >>> with Recording("session.jsonl").attach(server):
            ...     server.run()
        """
        tape = RecordingWriter(self.path, "server", redact=self._replay_options.redact, max_bytes=self._max_bytes)
        with patched_serve(server, observed(server.serve, tape, "server")):
            yield server


def _mode(record: str | None) -> Record:
    value = record or os.environ.get("GEMEL_RECORD") or "once"
    for mode in _MODES:
        if value == mode:
            return mode
    raise DefinitionError(f"record={value!r} is not valid: use {', '.join(map(repr, _MODES))}")
