"""Which failed requests are sent again, how often and when: only where nothing can run twice."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from gemel.client.connection import ClientConnection
from gemel.client.extensions import ClientExtensions
from gemel.client.methods import ClientContext
from gemel.client.negotiation import refuses_the_era, retry_delay
from gemel.errors import (
    CallError,
    ConnectionLost,
    HeaderMismatch,
    HttpStatus,
    NotSent,
    Outcome,
    PeerError,
    SessionEnded,
)
from gemel.protocol.limits import Limits
from gemel.schema.methods import METHODS
from gemel.session import Session
from gemel.timeouts import TimeLeft

logger = logging.getLogger("gemel")


class Retries:
    """The further attempts of one round of a request, made when the first one has failed.

    Args:
        connection: What the request is sent over.
        extensions: What is known about methods of extensions.
        limits: How many attempts there are, and the delay between them.
        refresh_tools: Lists the tools again.
        request: The request.
        time: What is left of its time.
    """

    def __init__(
        self,
        connection: ClientConnection,
        extensions: ClientExtensions,
        limits: Limits,
        refresh_tools: Callable[[], Awaitable[object]],
        request: ClientContext,
        time: TimeLeft,
    ) -> None:
        self._connection = connection
        self._limits = limits
        self._refresh_tools = refresh_tools
        self._method = method = request.method
        row = METHODS.get(method)
        safe = extensions.is_safe(method) if row is None else row.safe
        #: Whether it may be repeated when it is unknown whether it ran.
        self._is_safe = safe if request.safe is None else request.safe
        self._time = time
        #: The longest wait that a server may ask for.
        self._longest = limits.call_idle if request.idle is None else request.idle
        self._count = 0
        self._refreshed = False
        #: The error to report if there is no result: of the last attempt, or of an earlier one that may have run.
        self.error: CallError | None = None

    async def wait_after(self, error: CallError, session: Session) -> None:
        """Wait until the request may be sent again after an attempt over `session`; raise the error where it may not."""
        limit = asyncio.timeout(self._time.left)
        try:
            async with limit:
                await self._wait_after(error, session)
        except TimeoutError:
            if not limit.expired():
                raise
            raise self.error or error from None

    async def _wait_after(self, error: CallError, session: Session) -> None:
        match error:
            case SessionEnded():
                self._connection.retire(session, f"the server ended the session: {error}")
            case NotSent():
                pass
            case PeerError() | HttpStatus() if self._may_wait(error):
                pass
            case ConnectionLost() if self._is_safe:
                pass
            case PeerError() | HttpStatus() if self._is_safe and error.outcome is Outcome.UNKNOWN:
                pass  # a gateway lost the response
            case PeerError() | HttpStatus() if refuses_the_era(error) and await self._connection.is_outdated(session):
                pass
            case PeerError(code=HeaderMismatch.code) if self._mirrors_arguments() and not self._refreshed:
                self._refreshed = True
                await self._refresh_tools()
                return
            case _:
                raise error
        if self.error is None or self.error.outcome is not Outcome.UNKNOWN or error.outcome is Outcome.UNKNOWN:
            self.error = error
        self._count += 1
        if self._count > self._limits.retries:
            raise self.error
        logger.debug("%s is repeated: %s", self._method, self.error)
        backoff = self._limits.backoff * 2**self._count * random.uniform(0.5, 1.5)
        await asyncio.sleep(max(backoff, retry_delay(error) or 0.0))

    def _may_wait(self, error: PeerError | HttpStatus) -> bool:
        """Whether a busy server asks to come back, and the time of the request is not over by then.

        With 429 nothing ran; with other statuses it is known of safe requests only that they may be repeated.
        """
        delay = retry_delay(error)
        if delay is None or (isinstance(error, HttpStatus) and error.status != 429 and not self._is_safe):
            return False
        if delay > self._longest:
            return False
        left = self._time.left
        return left is None or delay < left

    def _mirrors_arguments(self) -> bool:
        """Whether headers repeat the arguments of the request."""
        return self._connection.mirrors and self._method == "tools/call"


async def ready_session(
    connection: ClientConnection, method: str, failed: CallError | None, seconds: float | None
) -> Session:
    """A session for the next attempt. If none can be opened in time, `failed` tells how far an earlier attempt got."""
    try:
        async with asyncio.timeout(seconds):
            return await connection.ready_session()
    except (CallError, TimeoutError) as exc:
        if failed is not None and failed.outcome is Outcome.UNKNOWN:
            raise failed from exc
        if isinstance(exc, CallError):
            raise
        raise NotSent(f"{method} was not sent: the server did not come back within {seconds:g} seconds") from exc
