"""Rate limit per caller, as middleware: a token bucket for each caller."""

from __future__ import annotations

import math
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from typing import Any

from hinge.errors import Overloaded
from hinge.options import METHOD_NAMES, Check, check_values, function, is_number, or_none, whole
from hinge.schema.methods import METHODS
from hinge.server.context import Context
from hinge.server.middleware.chain import CallNext

_OPTIONS = {
    "rate": Check(lambda value: is_number(value) and 0 < value < math.inf, "use requests per second, more than 0"),
    "burst": or_none(Check(lambda value: is_number(value, 1) and value < math.inf, "use a number, 1 or more")),
    "methods": or_none(METHOD_NAMES),
    "by": or_none(function("`def by(ctx)`, which names the caller", 1, plain=True)),
    "callers": whole(1),
    "clock": function("a function that gives seconds", 0, plain=True),
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
            principal with its client, else the address of an HTTP request, else the connection. Behind a proxy all requests
            have one address: authenticate, or give `by`.
        callers: How many callers are remembered, in this process; the one seen least recently is forgotten first.
        clock: A function that returns seconds, for tests.

    Raises:
        DefinitionError: A value out of range.
    """

    def __init__(
        self,
        rate: float,
        *,
        burst: float | None = None,
        methods: Collection[str] | None = None,
        by: Callable[[Context[Any]], Hashable] | None = None,
        callers: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        check_values(locals(), _OPTIONS)
        burst = max(1.0, rate) if burst is None else burst
        self.rate = rate
        self.burst = burst
        self._methods = None if methods is None else frozenset(methods)
        self._by = by or caller_of
        self._callers = callers
        self._clock = clock
        #: The tokens that were left and when, by caller; the caller seen last is at the end.
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

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
                self._take(caller)
        return await call_next(ctx)

    def _counts(self, ctx: Context[Any]) -> bool:
        if ctx.request_id is None or ctx.depth or ctx._session.channel.kind == "background":
            return False
        if self._methods is not None:
            return ctx.method in self._methods
        row = METHODS.get(ctx.method)
        return row is None or row.may_ask or row.name == "completion/complete"

    def _take(self, caller: Hashable) -> None:
        now = self._clock()
        tokens, before = self._buckets.pop(caller, (self.burst, now))
        tokens = min(self.burst, tokens + (now - before) * self.rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._callers:
            self._buckets.popitem(last=False)
        if not allowed:
            wait = math.ceil((1 - tokens) / self.rate * 1000)
            raise Overloaded(f"Too many requests: the limit is {self.rate:g} per second", retry_after_ms=max(wait, 1))


def caller_of(ctx: Context[Any]) -> Hashable:
    """The authenticated principal with its client, else the address, else the connection."""
    origin = ctx._call.origin
    if origin.principal is not None:
        return ("principal", origin.owner)
    transport = origin.transport
    if isinstance(transport, dict):  # HTTP; a Unix socket has no addresses
        client = transport.get("client")
        return ("address", client[0] if client else None)
    return weakref.ref(ctx._session)
