"""Record a conversation, and play either side of it: the public face of recordings."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

from hinge.channel import Channel, Serve, Transport
from hinge.client.targets import transport_for
from hinge.errors import DefinitionError, StartError
from hinge.protocol.limits import DEFAULT_LIMITS, Limits
from hinge.server.server import Server
from hinge.session import Session
from hinge.testing.attaching import attached
from hinge.testing.comparing import Difference, subject, told
from hinge.testing.failing import FailingTransport
from hinge.testing.live import Live
from hinge.testing.playing import Play, Player
from hinge.testing.script import Script, understand
from hinge.testing.tap import TappedTransport, tapped
from hinge.testing.tape import MAX_BYTES, Redact, Tape, read, whole
from hinge.testing.verifying import Verifier
from hinge.transports.memory import connect

if TYPE_CHECKING:
    from hinge.server.options import SocketOptions
    from hinge.transports.http.server.app import HttpApp
    from hinge.transports.http.server.options import HttpAppOptions, HttpOptions

#: When a target is asked and what it says recorded: while there is no recording, for what the recording lacks, each time
#: anew, not at all.
Record: TypeAlias = Literal["once", "missing", "always", "never"]
_MODES: tuple[Record, ...] = ("once", "missing", "always", "never")


class Recording:
    """A conversation in a file: recorded from the real thing, then played in its place.

    It is a target for a client: `Client(Recording("weather.jsonl", "https://host/mcp"))` records what is said with the
    server at first, and from then on answers from the file, without the server. `record` says when the target is asked:

    - "once" (the default): while the file isn't there
    - "missing": for requests that the file lacks; what comes back is added to it
    - "always": each time; the file is written anew
    - "never": a file that isn't there is an error

    The environment variable HINGE_RECORD says it for all recordings that don't say it themselves. `options` go to the
    transport of the target (`headers`, `env`, …).

    `redact(message)` gets each message as a dict before it is written, and changes it or gives back another; what is asked
    later goes through it too before it is compared. Headers that let somebody in, cookies and session ids are never written.
    `ignore` are paths that don't count when messages are compared, like `params.arguments.now` or `result.*.text`. A tool
    that was called once can be called once; `repeat=True` answers further calls as the last time. `patience` is how many
    seconds a call that was called off when it was recorded waits for that. `max_bytes` bounds the file.

    Raises StartError for a file that can't be read or isn't there, DefinitionError for a mode that doesn't exist.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        target: Any = None,
        *,
        record: Record | None = None,
        redact: Redact | None = None,
        ignore: Sequence[str] = (),
        repeat: bool = False,
        patience: float = 5.0,
        **options: Any,
    ) -> None:
        self.path = Path(path)
        self._target = target
        self._record = _mode(record)
        self._max_bytes: int = options.pop("max_bytes", MAX_BYTES)
        #: Those of the conversations that it plays and records.
        self.limits: Limits = options.pop("limits", DEFAULT_LIMITS)
        self._options = options
        name = self.path.name
        self._play = Play(
            name=name, ignore=tuple(ignore), repeat=repeat, redact=redact, patience=patience, limits=self.limits
        )
        self._transport: Transport | None = None
        self._tape: Tape | None = None
        self._player: Player | None = None
        self._live: Live | None = None

    # ---------------------------------------------------------------- in place of the server

    async def open(self, serve: Serve, /) -> Channel:
        """A client's way to the server, or to what plays it."""
        if self._records:
            return await self._recorded().open(serve)
        return await FailingTransport(connect(self.serve, limits=self.limits), self._playing()).open(serve)

    def serve(self, channel: Channel, /) -> Session:
        """Play the server over a channel. While the target is to be recorded, it is asked for everything."""
        return self._playing().serve(channel)

    @overload
    def run(self, transport: Literal["stdio"] = "stdio") -> None: ...

    @overload
    def run(self, transport: Literal["http"], **options: Unpack[HttpOptions]) -> None: ...

    @overload
    def run(self, transport: Literal["socket"], **options: Unpack[SocketOptions]) -> None: ...

    def run(self, transport: Literal["stdio", "http", "socket"] = "stdio", **options: Any) -> None:
        """Play the server for clients elsewhere, until the end of input or a signal.

        Args:
            transport: as for `Server.run`.
            options: as for `Server.run`.

        Raises:
            StartError: for what keeps it from starting.
        """
        from hinge.server.run import run

        self._playing()
        run(self, transport, options)

    def http_app(self, path: str = "/mcp", /, **options: Unpack[HttpAppOptions]) -> HttpApp:
        """What plays the server as an ASGI app; options as those of `Server.http_app`."""
        from hinge.transports.http.server.app import HttpApp

        return HttpApp(self.serve, path, limits=self.limits, on_stop=self._leave, **options)

    def warn_of_own_keys(self) -> None:
        """There are none: every process would play the whole recording."""

    async def _leave(self) -> None:
        if self._live is not None:
            await self._live.close()

    def running(self) -> AbstractAsyncContextManager[None]:
        """What serving needs around it: the target's own life, where it is asked."""
        return self._running()

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[None]:
        if self._records and hasattr(self._target, "running"):
            async with self._target.running():
                yield
            return
        try:
            yield
        finally:
            await self._leave()

    def __getattr__(self, name: str) -> Any:
        """What the transport to the target can besides, while it is recorded: `era`, `older`."""
        if name in ("era", "older") and self._records:
            return getattr(self._recorded(), name)
        raise AttributeError(f"a recording has no {name!r}")

    @property
    def _records(self) -> bool:
        """Whether the target itself is asked, for everything."""
        if self._tape is not None:
            return self._player is None
        if self._target is None or self._player is not None:
            return False
        return self._record == "always" or (self._record in ("once", "missing") and not self.path.exists())

    def _recorded(self) -> Transport:
        if self._transport is None:
            way = transport_for(self._target, limits=self.limits, **self._options)
            self._tape = Tape(self.path, "client", redact=self._play.redact, max_bytes=self._max_bytes)
            self._transport = TappedTransport(way, self._tape)
        return self._transport

    def _playing(self) -> Player:
        if self._player is None:
            anew = self._records
            script = Script([]) if anew else self._script()
            if anew or (self._record == "missing" and self._target is not None):
                self._player = Player(script, self._play, self._elsewhere(script, anew=anew))
            else:
                self._player = Player(script, self._play)
        return self._player

    def _elsewhere(self, script: Script, *, anew: bool) -> Live:
        after = 0 if anew else whole(self.path, self._max_bytes)
        tape = self._tape = Tape(self.path, "client", redact=self._play.redact, max_bytes=self._max_bytes, after=after)
        target, options, limits = self._target, self._options, self.limits

        def way() -> Transport:
            return TappedTransport(transport_for(target, limits=limits, **options), tape)

        listed = [one.answer for one in script.exchanges if one.method == "tools/list" and one.answer is not None]
        self._live = Live(target, way, limits, lists=[entry.message.get("result") for entry in listed])
        return self._live

    def _script(self) -> Script:
        if not self.path.exists():
            advice = "give it a target to record" if self._target is None else "record='once' records it"
            raise StartError(f"There is no recording {self.path}: {advice}")
        return understand(read(self.path, self._max_bytes))

    # ---------------------------------------------------------------- what was left out

    @property
    def missed(self) -> list[str]:
        """What was asked and could not be answered from the recording, in words."""
        return [] if self._player is None else list(self._player.missed)

    @property
    def unplayed(self) -> list[str]:
        """What the recording holds and nobody asked for, in words, with the lines; greetings and pings don't count."""
        found = [] if self._player is None else self._player.unplayed()
        return [f"{subject(one.method, one.params)} (line {one.entry.line})" for one in found]

    def check(self, *, all_played: bool = False) -> None:
        """Raise AssertionError if something was missed, or with `all_played` if something of the recording wasn't asked.

        For tests of applications that go on when a call fails.
        """
        problems = self.missed
        if all_played:
            problems += [f"Nobody asked for {words}" for words in self.unplayed]
        if problems:
            raise AssertionError("\n".join([f"The recording {self.path.name} was not followed:", *problems]))

    # ---------------------------------------------------------------- in place of the client

    async def compare(self, target: Any, **options: Any) -> list[Difference]:
        """Send a server what the recorded client sent, and give back where its answers differ from the recorded ones.

        `target` is what a Client takes, `options` are those of its transport. Ids, tokens, cursors, sealed states and
        `_meta` don't count, nor does `ignore`. Raises ConnectFailed.
        """
        way = transport_for(target, limits=self.limits, **options)
        script = self._script()
        return await Verifier(script, target, way, ignore=self._play.ignore, limits=self.limits).run()

    async def verify(self, target: Any, **options: Any) -> None:
        """Raise AssertionError that tells every difference; see `compare`."""
        found = await self.compare(target, **options)
        if found:
            many = "1 difference" if len(found) == 1 else f"{len(found)} differences"
            raise AssertionError(f"{many} from {self.path.name}:\n{told(found)}")

    # ---------------------------------------------------------------- at a server

    @contextmanager
    def attach(self, server: Server[Any]) -> Iterator[Server[Any]]:
        """Record every conversation of a server, whoever its clients are: `with Recording(path).attach(server): server.run()`.

        Whatever begins to serve within the block is recorded, to a new file.
        """
        tape = Tape(self.path, "server", redact=self._play.redact, max_bytes=self._max_bytes)
        with attached(server, tapped(server.serve, tape, "server")):
            yield server


def _mode(record: str | None) -> Record:
    said = record or os.environ.get("HINGE_RECORD") or "once"
    for mode in _MODES:
        if said == mode:
            return mode
    raise DefinitionError(f"record={said!r} is not possible: use {', '.join(map(repr, _MODES))}")
