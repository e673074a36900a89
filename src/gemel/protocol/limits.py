"""Every limit of the kernel and the transports, in one place: `Limits` are settings with defaults, `FixedLimits` are constants."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gemel.errors import DefinitionError, shorten
from gemel.options import SettingsMeta, similar

MIB = 1024 * 1024
#: These must be at least 1.
_AT_LEAST_ONE = frozenset({"calls", "all_calls", "pending", "threads", "connections"})


class Limits(msgspec.Struct, frozen=True, kw_only=True, metaclass=SettingsMeta):
    """Limits of memory, concurrency and time that a peer can use. Sizes in bytes, times in seconds.

    Raises DefinitionError for an unknown name, and for a value that is not a number, or less than 0.
    """

    #: Size of an HTTP request body; larger ones are rejected with 413 while reading.
    body: int = 4 * MIB
    #: Bytes of the bodies of all HTTP requests in flight at one endpoint. One half is divided equally among the largest possible
    #: number of requests, so that small bodies are always read. When the other half is used up, further bytes get 503; one address
    #: takes at most as much of it as it leaves to others.
    bodies: int = 256 * MIB
    #: Length of a line on stdio or a socket; a longer one is discarded and answered with -32700.
    line: int = 16 * MIB
    #: Bytes of the incomplete lines of all connections of a socket server, and of messages that wait while `initialize` is being
    #: answered. Above the limit, connections that use more than an equal share are closed. Over HTTP+SSE such messages get 503.
    lines: int = 256 * MIB
    #: Messages in a batch (batches exist in revision 2025-03-26 only).
    batch: int = 100
    #: Values in the `params` of a message: numbers, strings, arrays, objects and names of members. A message with more is
    #: rejected before they are decoded, which would occupy the event loop for more than some 50 ms.
    values: int = 200_000
    #: Concurrent inbound requests of one connection; further ones are rejected.
    calls: int = 1024
    #: Concurrent inbound requests of the whole server in this process; further ones are rejected. Open
    #: `subscriptions/listen` streams are limited by `streams` instead.
    all_calls: int = 10_000
    #: Bytes of the params of all calls that one connection has in flight; further calls are rejected, except small ones. One call
    #: is always served. An abandoned call counts, as its body does, until its function has returned.
    call_bytes: int = 128 * MIB
    #: The same for the whole server in this process. Open subscriptions are limited by `subscription_bytes` instead.
    all_call_bytes: int = 256 * MIB
    #: Server: size of the params of `initialize`, which a connection keeps.
    handshake_bytes: int = 64 * 1024
    #: How long a call waits while as many calls of its tool run as its `concurrency` allows.
    concurrency_wait: float = 30.0
    #: If the event loop is blocked for longer than this, the log names the tool; 0 disables the check. A loop that is still
    #: blocked `drain` + `teardown` after a signal ends a process of `server.run()`.
    stall: float = 1.0
    #: Outbound requests of one connection that wait for a response.
    pending: int = 10_000
    #: Messages that wait while `initialize` is being answered; also at most `line` bytes.
    backlog: int = 256
    #: HTTP sessions of one endpoint; also its HTTP+SSE sessions, and connections of a socket server. Above the limit, the caller
    #: with most of them loses the one unused for longest; see "Shares".
    sessions: int = 10_000
    #: HTTP sessions stored by all processes with the same backend. Above the limit, the caller with most of them loses the oldest.
    stored_sessions: int = 100_000
    #: An HTTP session without an open stream or running call ends after this time.
    session_idle: float = 1800.0
    #: Keys of `ctx.session_state` that one session keeps, and the bytes of their names and values as JSON; at most 512 KiB in a
    #: shared backend.
    session_state_keys: int = 100
    session_state_bytes: int = 64 * 1024
    #: Events and bytes stored per HTTP session to resume streams.
    replay_events: int = 1000
    replay_bytes: int = 4 * MIB
    #: Bytes stored for all HTTP sessions of one endpoint. Above the limit, the oldest event of the caller with most is dropped.
    replay_total: int = 128 * MIB
    #: Unread bytes of one stream, and how long its sender waits before the stream is closed. An HTTP client that reads nothing
    #: for so long loses its connection.
    stream_bytes: int = MIB
    stream_wait: float = 30.0
    #: Interval of comments that keep an idle SSE stream open.
    keep_alive: float = 15.0
    #: How long running calls may take to finish when the server stops.
    drain: float = 5.0
    #: How long cleaning up a connection or exiting a lifespan may take; then it is abandoned with a warning.
    teardown: float = 5.0
    #: How long an elicitation of a handshake client may stay open, and how long a client waits for pages that a
    #: handshake server requires.
    input_wait: float = 600.0
    #: How long a stateless client has to repeat a call with its responses.
    state_ttl: float = 600.0
    #: Bytes of the result of a `ctx.step` that travel with a stateless client; the backend keeps larger results.
    step_bytes: int = 64 * 1024
    #: Open `subscriptions/listen` streams of one server, and subscribed URIs of one client. Above the first limit, the oldest
    #: stream of the caller with most of them ends.
    streams: int = 10_000
    watched: int = 1000
    #: Bytes of the requests of all open subscriptions of one server, with their headers and 2 KiB for each; shared like `streams`.
    #: The sessions of one caller take at most half of them.
    subscription_bytes: int = 128 * MIB
    #: Sync functions running concurrently in worker threads. Further calls wait in order, and leave at once if they are given up.
    threads: int = 40
    #: Proxy: sessions with the server behind it, of all callers and of one (a principal, or else an address). Further ones are
    #: rejected. If each session is a child process, `upstream_processes` is the limit for all.
    upstream_sessions: int = 1000
    upstream_processes: int = 100
    upstream_sessions_per_caller: int = 50
    #: Proxy: a session with the server behind it ends after this time without a running call or a subscription, for callers
    #: over HTTP. A connection keeps its session.
    upstream_idle: float = 1800.0
    #: Client: size of a decoded HTTP response or SSE event.
    reply: int = 64 * MIB
    #: Client: concurrent HTTP connections; further requests wait.
    connections: int = 256
    #: Client: time to connect.
    connect: float = 30.0
    #: Client: time without a message before a call fails, and the total time of a call. Progress resets the first; it is paused
    #: while the client gets credentials.
    call_idle: float = 60.0
    call_total: float = 600.0
    #: Client: after a call over a socket timed out, how long the server has to answer a ping before the connection is
    #: reopened; 0 disables the ping.
    silence: float = 30.0
    #: Client: over stdio or a socket, send a ping after this time without messages; 0 disables it.
    alive: float = 0.0
    #: Client: how long to wait for `server/discover` before the handshake is tried; twice as long over HTTP. Also how long a
    #: client that a `ClientPool` is about to hand out has to answer a ping.
    probe: float = 5.0
    #: Client: pages of one list.
    pages: int = 1000
    #: Client: attempts to reopen a lost connection, and retries of one request where that is safe.
    reconnects: int = 5
    retries: int = 2
    #: Client: delay before the first such attempt; it doubles with each further one.
    backoff: float = 0.1
    #: Client: rounds of one call, and requests for input in one round.
    rounds: int = 16
    input_requests: int = 16
    #: Client: unread changes of one subscription, and the bytes of their URIs; repeats are merged.
    changes: int = 10_000
    change_bytes: int = 4 * MIB
    #: Client: bytes of the cache, and the longest time to cache a result, regardless of cache hints.
    cache_bytes: int = 64 * MIB
    cache_ttl: float = 24 * 3600.0

    def __post_init__(self) -> None:
        for name, default in zip(self.__struct_fields__, self.__struct_defaults__, strict=True):
            given = getattr(self, name)
            if given is not default:
                _check(name, given, whole=type(default) is int)


class FixedLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of what Gemel itself does. Peers can't send more of it, so they need no setting."""

    #: Change notifications that a server keeps for all `subscriptions/listen` streams and sessions that have not read them yet,
    #: and the bytes of their URIs; repeats are merged. For a reader that falls behind further, everything that it subscribed to
    #: counts as changed.
    queued_changes: int = 5000
    queued_change_bytes: int = MIB
    #: How long an answer waits until the changes that its call announced have reached a shared backend.
    change_wait: float = 2.0
    #: Requests for input of one task that are open at once.
    task_inputs: int = 16
    #: Tasks in a page of `tasks/list`.
    task_page: int = 50
    #: Client: entries of the cache.
    cache_entries: int = 1024


def change_limits(limits: Limits, changes: Mapping[str, float]) -> Limits:
    """Return limits with other values.

    Args:
        limits: The limits.
        changes: Values by the names in `Limits`.

    Raises:
        DefinitionError: In one line, for an unknown name or a value that the limit doesn't take.
    """
    for name in changes:
        if name not in Limits.__struct_fields__:
            near = similar(name, Limits.__struct_fields__)
            hint = f"did you mean {near!r}?" if near else "see the fields of gemel.Limits"
            raise DefinitionError(f"There is no limit {shorten(name)!r}: {hint}")
    return msgspec.structs.replace(limits, **changes)


def over_limit(what: str, name: str, limit: int) -> str:
    """Say that something has more bytes than a limit allows, and what to do.

    Args:
        what: What is too long.
        name: The limit.
        limit: Its value.
    """
    return f"{what} has more than {limit} bytes, the limit `limits.{name}`: raise it with limits=Limits({name}=…), or ask for less"


def _check(name: str, given: object, *, whole: bool) -> None:
    least = 1 if name in _AT_LEAST_ONE else 0
    number = isinstance(given, int if whole else int | float) and not isinstance(given, bool)
    if not (number and given >= least):  # type: ignore[operator]  # nor is NaN
        kind = f"a whole number, {least} or more" if whole else "seconds, 0 or more"
        raise DefinitionError(f"Limits({name}={shorten(repr(given))}) is not possible: use {kind}")


DEFAULT_LIMITS = Limits()
FIXED_LIMITS = FixedLimits()
