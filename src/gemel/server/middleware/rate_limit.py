"""Rate limit per caller, as middleware: a token bucket for each caller, in this process or in a backend."""

from __future__ import annotations

import asyncio
import math
import struct
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from hashlib import sha256
from typing import Any, Final

from gemel.backends.base import Backend
from gemel.backends.keys import make_key
from gemel.backends.patience import Outage
from gemel.backends.server_backend import ServerBackend
from gemel.errors import BackendError, Overloaded
from gemel.loops import PerLoop
from gemel.options import METHOD_NAMES, Check, check_values, function, is_number, or_none, whole
from gemel.schema.methods import METHODS
from gemel.server.context import Context, served_call
from gemel.server.dispatch import CallNext

#: The tokens that were left, and when.
_BUCKET = struct.Struct("!dd")
#: Attempts to change a bucket that other processes change at the same time.
_ATTEMPTS = 20
#: Seconds in which a backend that failed is not asked again.
_PAUSE = 1.0

_OPTIONS = {
    "rate": Check(lambda value: is_number(value) and 0 < value < math.inf, "use requests per second, more than 0"),
    "burst": or_none(Check(lambda value: is_number(value, 1) and value < math.inf, "use a number, 1 or more")),
    "methods": or_none(METHOD_NAMES),
    "by": or_none(function("`def by(ctx)`, which names the caller", 1, plain=True)),
    "callers": whole(1),
    "backend": or_none(Check(lambda value: callable(getattr(value, "touch", None)), "write backend=server.backend")),
}


class RateLimit:
    """Middleware that limits the requests per second of each caller: `server.add_middleware(RateLimit(5))`.

    Further requests fail with Overloaded, which carries a retry delay. Calls that a handler makes to its own server don't
    count; in the stateless era each round of a call that asks the user does.

    Args:
        rate: Requests per second, more than 0.
        burst: Requests at once, 1 or more. Default: `rate`, at least 1.
        methods: The methods that count. Default: those that run functions of yours, which are tool calls, reading resources,
            getting prompts, completion and custom methods.
        by: `by(ctx)` returns what identifies the caller; None doesn't count the request. Default: the authenticated
            principal with its client, else the address of an HTTP request (of IPv6 the network of 64 bits), else the
            connection. Behind a proxy that is not trusted all requests have one address: authenticate, or give `by`.
        callers: How many callers are remembered, in this process; the one seen least recently is forgotten first.
        backend: Where the processes of a server count together. A request that counts then costs one or two operations of the
            backend, one that is refused none. Callers are told apart by the `repr` of what `by` returns. While the backend is
            away, each process limits on its own. Default: the backend of the server if other processes share it, else this
            process. `MemoryBackend()` has each process count alone.

    Raises:
        DefinitionError: A value out of range.
    """

    #: Results pass as they are.
    leaves_results: Final = True

    def __init__(
        self,
        rate: float,
        *,
        burst: float | None = None,
        methods: Collection[str] | None = None,
        by: Callable[[Context[Any]], Hashable] | None = None,
        callers: int = 10_000,
        backend: Backend | None = None,
    ) -> None:
        check_values(locals(), _OPTIONS)
        burst = max(1.0, rate) if burst is None else burst
        self.rate = rate
        self.burst = burst
        self._methods = None if methods is None else frozenset(methods)
        self._by = by or caller_of
        self._callers = callers
        self._clock = time.monotonic if backend is None else time.time
        #: The tokens that were left and when, by caller; the caller seen last is at the end.
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()
        self._shared = None if backend is None else _SharedBuckets(backend, self)

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Count under the name of the server, which calls this. The first server counts.

        Args:
            backend: That of the server.
        """
        if self._shared is not None:
            self._shared.use_backend(backend)
        elif backend.shared:
            self._shared = _SharedBuckets(backend, self)
            self._clock = time.time

    @property
    def not_shared(self) -> str:
        """What other processes don't know, without a backend."""
        return "the requests that RateLimit counts" if self._shared is None else ""

    async def __call__(self, ctx: Context[Any], call_next: CallNext) -> Any:
        """Count the request and serve it.

        Args:
            ctx: The context of the request.
            call_next: The rest of the chain.

        Returns:
            The result of the request.

        Raises:
            Overloaded: The caller exceeds the limit.
        """
        if self._counts(ctx):
            caller = self._by(ctx)
            if caller is not None:
                if self._shared is None or isinstance(caller, weakref.ref):  # a connection is that of one process
                    self._take(caller)
                else:
                    await self._shared.take(caller)
        return await call_next(ctx)

    def _counts(self, ctx: Context[Any]) -> bool:
        if ctx.request_id is None or ctx.depth or served_call(ctx).session.channel.kind == "background":
            return False
        if self._methods is not None:
            return ctx.method in self._methods
        row = METHODS.get(ctx.method)
        return row is None or row.may_ask or row.name == "completion/complete"

    def _take(self, caller: Hashable) -> None:
        allowed, bucket = self._drain(self._buckets.get(caller))
        self._remember(caller, bucket)
        if not allowed:
            raise self._refusal(bucket)

    def _drain(self, bucket: tuple[float, float] | None) -> tuple[bool, tuple[float, float]]:
        """Take a token out of a bucket, None for a full one. Returns whether there was one, and the bucket."""
        now = self._clock()
        tokens, before = bucket or (self.burst, now)
        now = max(now, before)  # the clocks of several machines differ
        tokens = min(self.burst, tokens + (now - before) * self.rate)
        return tokens >= 1, (tokens - 1 if tokens >= 1 else tokens, now)

    def _remember(self, caller: Hashable, bucket: tuple[float, float]) -> None:
        self._buckets.pop(caller, None)
        self._buckets[caller] = bucket
        if len(self._buckets) > self._callers:
            self._buckets.popitem(last=False)

    def _refusal(self, bucket: tuple[float, float]) -> Overloaded:
        wait = math.ceil((1 - bucket[0]) / self.rate * 1000)
        return Overloaded(f"Too many requests: the limit is {self.rate:g} per second", retry_after_ms=max(wait, 1))


class _SharedBuckets:
    """The buckets of all processes, in a backend. Those of the limit are what this process saw last."""

    def __init__(self, backend: Backend, limit: RateLimit) -> None:
        self._backend = backend
        self._limit = limit
        self._lasts = limit.burst / limit.rate + 60
        methods = None if limit._methods is None else sorted(limit._methods)
        self._name = repr((limit.rate, limit.burst, methods))
        #: One request of a caller at a time, in each event loop.
        self._locks: PerLoop[weakref.WeakValueDictionary[Hashable, asyncio.Lock]] = PerLoop(weakref.WeakValueDictionary)
        self._away_until = 0.0
        self._outage = Outage("Requests are limited by each process on its own", "Requests are limited together again")

    def use_backend(self, backend: ServerBackend) -> None:
        """Count under the name of a server."""
        if not isinstance(self._backend, ServerBackend):
            self._backend = backend.part_of(self._backend)

    async def take(self, caller: Hashable) -> None:
        """Take a token. Raises Overloaded."""
        if time.monotonic() < self._away_until:
            self._limit._take(caller)
            return
        lock = self._locks.here().setdefault(caller, asyncio.Lock())
        async with lock:
            try:
                await self._take(caller)
                self._outage.ended()
            except BackendError as exc:
                self._away_until = time.monotonic() + _PAUSE
                self._outage.failed(exc)
                self._limit._take(caller)

    async def _take(self, caller: Hashable) -> None:
        limit = self._limit
        key = make_key("rate-limit", sha256(make_key(self._name, repr(caller)).encode()).hexdigest())
        bucket = limit._buckets.get(caller)
        expected = None if bucket is None else _BUCKET.pack(*bucket)
        for _ in range(_ATTEMPTS):
            # Others only take tokens out: what is empty by what this process saw last is empty.
            allowed, drained = limit._drain(bucket)
            if not allowed:
                limit._remember(caller, drained)
                raise limit._refusal(drained)
            try:
                replaced = await self._backend.replace(key, expected, _BUCKET.pack(*drained), ttl=self._lasts)
            except Overloaded as exc:
                raise BackendError(str(exc)) from exc
            if replaced:
                limit._remember(caller, drained)
                return
            expected = await self._backend.get(key)
            try:
                tokens, at = (limit.burst, limit._clock()) if expected is None else _BUCKET.unpack(expected)
            except struct.error:
                raise BackendError("the count of requests is that of another version of Gemel") from None
            bucket = tokens, at
        raise Overloaded(f"Too many requests at once: the limit is {limit.rate:g} per second", retry_after_ms=100)


def caller_of(ctx: Context[Any]) -> Hashable:
    """The authenticated principal with its client, else the address or its IPv6 network, else the connection."""
    if ctx.principal is not None:
        return ("principal", served_call(ctx).call.origin.owner)
    if ctx.http_scope is not None:  # whose connections don't tell callers apart; on a Unix socket, nothing does
        return served_call(ctx).call.origin.holder
    return weakref.ref(served_call(ctx).session)
