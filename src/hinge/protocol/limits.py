"""Every limit of the kernel and the transports, with its default, in one place. All are settings."""

from __future__ import annotations

import msgspec

from hinge.errors import DefinitionError, shorten

MIB = 1024 * 1024
#: Nothing could ever run or pass with none of these.
_AT_LEAST_ONE = frozenset({"calls", "all_calls", "pending", "threads", "connections"})


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what a peer can make us hold or wait for. Sizes in bytes, times in seconds.

    Raises DefinitionError for what is no number, or less than 0.
    """

    #: One HTTP body; larger ones are refused with 413 while reading.
    body: int = 4 * MIB
    #: One line on stdio or a socket; a longer one is discarded and answered with -32700.
    line: int = 16 * MIB
    #: Messages in one batch (only one revision knows batches).
    batch: int = 100
    #: Inbound requests being served on one connection; the next one is refused.
    calls: int = 1024
    #: Inbound requests being served by the whole server, in this process; the next one is refused. Open
    #: `subscriptions/listen` streams have a limit of their own, `streams`.
    all_calls: int = 10_000
    #: A call waits this long for its turn, where a tool has a limit of how many run at once.
    turn: float = 30.0
    #: When something holds up the event loop for longer than this, the log names the tool; 0 for not watching.
    stall: float = 1.0
    #: Our own requests that wait for the peer on one connection.
    pending: int = 10_000
    #: Messages parked while `initialize` is being answered.
    backlog: int = 256
    #: Handshake sessions of one HTTP endpoint; the next one gets 503.
    sessions: int = 10_000
    #: A session without an open stream or running call ends after this long.
    session_idle: float = 1800.0
    #: Replay log of one session: events and bytes.
    replay_events: int = 1000
    replay_bytes: int = 4 * MIB
    #: Bytes waiting for one reader that doesn't read, and how long its sender waits before the stream is closed.
    stream_bytes: int = MIB
    stream_wait: float = 30.0
    #: A comment keeps a quiet SSE stream open.
    keep_alive: float = 15.0
    #: Running calls may finish for this long when the server stops.
    drain: float = 5.0
    #: Clean-up of one connection, and leaving a lifespan, may take this long; what is left is abandoned with a warning
    #:.
    teardown: float = 5.0
    #: A question to the user of a handshake client may stay open for this long; so long a client waits for pages that a
    #: handshake server wants opened first.
    question: float = 600.0
    #: A stateless client has this long to come back with its answers.
    state_ttl: float = 600.0
    #: Open `subscriptions/listen` streams of one server, and watched URIs of one client.
    streams: int = 10_000
    watched: int = 1000
    #: Sync functions running in worker threads at once.
    threads: int = 40
    #: Client: one decoded HTTP answer or SSE event.
    reply: int = 64 * MIB
    #: Client: requests that have an HTTP connection at once; the others wait their turn.
    connections: int = 256
    #: Client: opening a conversation.
    connect: float = 30.0
    #: Client: silence before a call is given up (renewed by progress), and the hard end of a call.
    call_idle: float = 60.0
    call_total: float = 600.0
    #: Client: after a call over a socket got no answer in time, the server has this long for a sign of life; a connection
    #: that stays silent is opened anew. 0 for not asking.
    silence: float = 30.0
    #: Client: over a pipe or socket, a server that was silent for this long is asked for such a sign; 0 for never.
    alive: float = 0.0
    #: Client: silence after the era probe before the handshake is tried on the same pipe.
    probe: float = 5.0
    #: Client: pages of one list.
    pages: int = 1000
    #: Client: attempts to open a lost connection again, and repeats of one request where repeating is safe.
    reconnects: int = 5
    retries: int = 2
    #: Client: about so long is the first wait between such attempts; each next one is twice as long.
    backoff: float = 0.1
    #: Client: rounds of questions within one call, and questions in one round.
    rounds: int = 16
    questions: int = 16
    #: Client: changes that wait to be read on one `listen`; repeats are merged.
    changes: int = 10_000
    #: Client: entries of the cache, and the longest that one is kept, whatever the server says.
    cache_entries: int = 1024
    cache_ttl: float = 24 * 3600.0

    def __post_init__(self) -> None:
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            given = getattr(self, name)
            if given is not default:
                _check(name, given, whole=type(default) is int)


def _check(name: str, given: object, *, whole: bool) -> None:
    least = 1 if name in _AT_LEAST_ONE else 0
    number = isinstance(given, int if whole else int | float) and not isinstance(given, bool)
    if not (number and given >= least):  # type: ignore[operator]  # nor is NaN
        kind = f"a whole number, {least} or more" if whole else "seconds, 0 or more"
        raise DefinitionError(f"Limits({name}={shorten(repr(given))}) is not possible: use {kind}")


DEFAULT_LIMITS = Limits()
