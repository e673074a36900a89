"""One request of a client: written for the era, within time limits, over all its rounds. `retries.py` repeats it."""

from __future__ import annotations

import asyncio
import logging
from asyncio import get_running_loop
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gemel.client.cache import Cache
from gemel.client.call_options import OnProgress
from gemel.client.callbacks import InboundMessages, running_callbacks
from gemel.client.connection import ClientConnection
from gemel.client.extensions import ClientExtensions
from gemel.client.methods import ClientContext
from gemel.client.retries import Retries, ready_session
from gemel.client.tools import ToolIndex
from gemel.client.url_elicitation import REQUIRED as URLS_REQUIRED
from gemel.client.url_elicitation import RequiredPages, UrlElicitationRequired, required_by
from gemel.errors import (
    CallError,
    CallTimeout,
    ConnectionLost,
    InvalidResponse,
    NotSent,
    Outcome,
    PeerError,
)
from gemel.protocol.decoding import SMALL, collector_paused
from gemel.protocol.deviations import Deviations
from gemel.protocol.http.mirror import HeaderTexts, request_headers
from gemel.protocol.limits import Limits
from gemel.protocol.meta import check_meta
from gemel.protocol.peer_log import warn_about_peer
from gemel.protocol.records import Pending
from gemel.protocol.revisions.adapt import known_in
from gemel.protocol.states import WAITING
from gemel.schema.base import Result
from gemel.schema.elicitation import ElicitUrlParams
from gemel.schema.input_required import InputRequiredResult
from gemel.schema.methods import CACHEABLE, METHODS
from gemel.schema.notifications import ProgressParams
from gemel.session import Session
from gemel.timeouts import PERSON_LIMITS, TimeLeft, asking_person, time_limit

logger = logging.getLogger("gemel")

#: How many progress notifications may wait for an async `on_progress`, and their bytes; of more, the oldest are dropped.
PROGRESS_WAITING = 1000
PROGRESS_BYTES = 1024 * 1024

_progress = msgspec.json.Decoder(ProgressParams)


class _Type(msgspec.Struct):
    resultType: str | UnsetType = UNSET


_type = msgspec.json.Decoder(_Type)
_decoders: dict[Any, Callable[[Raw], Any]] = {}
#: None for types that do not hold the type of the result.
_typed_decoders: dict[Any, Callable[[Raw], Result] | None] = {}
_input_required = msgspec.json.Decoder(InputRequiredResult)


class Requests:
    """Sends the requests of one client.

    Args:
        connection: What they are sent over.
        inbound: Serves requests of the server that are part of a result.
        extensions: What is known about methods and result types of extensions.
        tools: What is known about tools.
        cache: Keeps results.
        pages: Waits for pages that the server requires.
        limits: Time limits and attempts.
        refresh_tools: Lists the tools again.
    """

    def __init__(
        self,
        connection: ClientConnection,
        inbound: InboundMessages,
        extensions: ClientExtensions,
        tools: ToolIndex,
        cache: Cache,
        pages: RequiredPages,
        limits: Limits,
        refresh_tools: Callable[[], Awaitable[object]],
    ) -> None:
        self._connection = connection
        self._inbound = inbound
        self._extensions = extensions
        self._tools = tools
        self._cache = cache
        self._pages = pages
        self._limits = limits
        self._refresh_tools = refresh_tools

    async def send(self, request: ClientContext, *, open_pages: bool = True) -> Any:
        """Send a message, as the middleware passed it on. Returns the complete result, read into its type. Raises a CallError.

        Time in which callbacks run here does not count against the limits, nor against those of `person_extends`. With
        `open_pages` the user is asked to open pages that the server requires first; without, that is an error.
        """
        method = request.method
        connection = self._connection
        loop = get_running_loop()
        if loop is not connection.home.loop:
            connection.home.check()
        if request.meta is not None:
            check_meta(request.meta)
        if request.notification:
            return await self._notify(request)
        key = self._cache_key(request) if method in CACHEABLE else None
        if key is not None and request.cache == "use" and (kept := await self._cached(request, key)) is not None:
            return self._received(request, kept, None)
        if running_callbacks.get():
            self._inbound.callbacks.refuse_nested(method)
        params, total, rounds = request.params, request.total, 0
        time = TimeLeft(total, loop.time())
        while True:
            try:
                raw = await self._send_round(request, params, total, time)
            except CallTimeout as exc:
                if rounds == 0:
                    raise
                raise CallTimeout(f"{exc}, in round {rounds + 1} of input requests") from exc
            except CallError as exc:
                if open_pages and (required := self._required_pages(exc)) is not None:
                    return await self._after_pages(request, required, time.left)
                if rounds == 0 or exc.outcome is not Outcome.NOT_SENT:
                    raise
                raise ConnectionLost(f"{method} had begun, and its next round was not sent: {exc}") from exc
            era = connection.era
            value = _read_typed(raw, request.result)
            if value is None:
                kind = era.read_result_type(raw, method)
            else:  # a long text is read once
                kind = "complete" if value.result_type is UNSET else value.result_type
            if kind == "complete" or kind in request.accepts:
                break
            value = None
            row = METHODS.get(method) or self._extensions.sent.get(method)
            if not era.requires_input(kind) or row is None or not row.may_ask:
                raw = await self._resolved(request, raw, kind, time.left)
                break
            params = await self._next_round(request, raw, rounds, time)
            total = time.left
            rounds += 1
            if rounds > self._limits.rounds:
                raise InvalidResponse(f"{method}: the server still requires input after {self._limits.rounds} rounds")
        if key is not None:
            self._cache.put(key, raw, request.credentials)
        return self._received(request, raw, value)

    def _received(self, request: ClientContext, raw: Raw, value: Result | None) -> Any:
        """A complete result as its type, which it may have been read into already."""
        if request.method == "tools/list":
            self._tools.caller = request.caller
        if request.on_size is not None:
            request.on_size(memoryview(raw).nbytes)
        if value is not None:
            return value
        return read_result(raw, request.method, request.result, self._connection.deviations, request.params)

    async def _notify(self, notification: ClientContext) -> None:
        connection, method, params = self._connection, notification.method, notification.params
        session = await connection.ready_session()
        with connection.observe(method, params) as (_, trace):
            meta = {**trace, **(notification.meta or {})}
            await session.notify(method, connection.notification_params(params, meta))

    async def _cached(self, request: ClientContext, key: str) -> Raw | None:
        """A fresh result that this caller may see: one that is public, or was sent with the credentials of now."""
        entry = self._cache.get(key)
        if entry is None:
            return None
        if entry.scope != "public":
            try:
                async with time_limit(request.total):
                    if entry.credentials != await self._connection.credentials():
                        return None
            except TimeoutError:
                late = f"its credentials took longer than {request.total:g} seconds"
                raise NotSent(f"{request.method} was not sent: {late}") from None
        request.credentials = entry.credentials
        return Raw(entry.text)

    def _cache_key(self, request: ClientContext) -> str | None:
        """The key of a result that may be shared with other requests: headers and `_meta` may change who is asking."""
        if request.cache == "bypass" or request.headers is not None or request.meta is not None:
            return None
        discovery = self._connection.discovery
        if discovery is None or not self._connection.era.may_cache(request.params):
            return None
        try:
            return self._cache.key(request.method, request.params, discovery.revision)
        except (TypeError, ValueError):  # they can't be sent, which says why
            return None

    def _required_pages(self, error: CallError) -> UrlElicitationRequired | None:
        """The pages that the server requires first; only revisions with `elicitationId` have such an error."""
        if not isinstance(error, PeerError) or error.code != URLS_REQUIRED:
            return None
        discovery = self._connection.discovery
        if discovery is None or not known_in(ElicitUrlParams, "elicitation_id", discovery.revision):
            return None
        return required_by(error)

    async def _after_pages(
        self, request: ClientContext, required: UrlElicitationRequired, seconds: float | None
    ) -> Any:
        """The result after the user has opened the pages. Raises UrlElicitationRequired if that does not happen."""

        async def again() -> Any:
            nonlocal seconds
            time = TimeLeft(seconds)
            try:
                return await self.send(msgspec.structs.replace(request, total=seconds), open_pages=False)
            finally:
                seconds = time.left

        async def agreed(pages: Sequence[ElicitUrlParams]) -> bool:
            few = len(pages) <= self._limits.input_requests
            return few and await asking_person(self._inbound.callbacks.open_urls(pages, self._inbound.answer_input))

        return await self._pages.serve(required, agreed, again)

    async def _resolved(self, request: ClientContext, raw: Raw, kind: str, seconds: float | None) -> Raw:
        """A result of a type that an extension knows, made into what the caller requested."""
        resolved = await self._extensions.resolve(request, raw, kind, seconds)
        if resolved is not None:
            return resolved
        self._connection.era.check_unknown_result_type(kind, request.method)
        return raw

    async def _next_round(self, request: ClientContext, raw: Raw, rounds: int, time: TimeLeft) -> dict[str, Any]:
        """The params of the next round."""
        try:
            required = _input_required.decode(raw)
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise InvalidResponse(f"{request.method}: the input requests can't be read: {exc}") from exc
        inputs = required.input_requests or {}
        if len(inputs) > self._limits.input_requests:
            raise InvalidResponse(f"{request.method}: {len(inputs)} input requests in one round")
        params = dict(request.params)
        if inputs:
            with time.paused():
                answers = await asking_person(
                    self._inbound.callbacks.answer_inputs(required, self._inbound.answer_input)
                )
            params["inputResponses"] = answers
        elif required.request_state is UNSET:
            raise InvalidResponse(
                f"{request.method}: the server requires input, and names neither requests nor a state"
            )
        else:  # there is only a state: the server needs time
            await _pause(request, min(0.05 * 2**rounds, 1.0), time.left)
        if required.request_state is not UNSET:
            params["requestState"] = required.request_state
        return params

    async def _send_round(
        self, request: ClientContext, params: dict[str, Any], total: float | None, time: TimeLeft
    ) -> Raw:
        """One round: an attempt that may take `total` seconds, and more where `Retries` allows them, in the time that is left."""
        connection, method = self._connection, request.method
        retries: Retries | None = None
        while True:
            session = connection.session
            if session is None or session.connection.closed is not None:
                failed = None if retries is None else retries.error
                session = await ready_session(connection, method, failed, time.left)
            if request.on_session is not None:
                request.on_session(session)
            progress = None if request.on_progress is None else ProgressCalls(request.on_progress)
            if retries is not None:
                total = time.left
            pending: Pending | None = None
            try:
                headers = self._headers(session, request, params)
                pending = session.connection.register_request(method)
                if not connection.observed:
                    raw = await self._attempt(session, pending, request, params, headers, total, progress)
                else:
                    with connection.observe(method, params, pending.id) as (operation, trace):
                        raw = await self._attempt(session, pending, request, params, headers, total, progress, trace)
                        if operation is not None:
                            operation.finished(method, raw)
                if progress is not None:
                    await progress.finish(_shorter(request.idle, time.left))
                request.credentials = pending.credentials
                if pending.limit is not None and pending.limit.extended:
                    time.extend(pending.limit.extended)
                return raw
            except CallTimeout:
                connection.check_liveness(session)
                raise
            except CallError as exc:
                if pending is not None and pending.limit is not None:
                    time.extend(pending.limit.extended)
                if retries is None:
                    retries = Retries(connection, self._extensions, self._limits, self._refresh_tools, request, time)
                await retries.wait_after(exc, session)
            finally:
                if pending is not None and pending.state is WAITING:  # it failed before it was sent
                    session.connection.abandon_request(pending)
                if progress is not None:
                    progress.stop()

    def _attempt(
        self,
        session: Session,
        pending: Pending,
        request: ClientContext,
        params: dict[str, Any],
        headers: HeaderTexts,
        total: float | None,
        progress: ProgressCalls | None,
        trace: Mapping[str, str] | None = None,
    ) -> Awaitable[Raw]:
        """Send a request once. Its `_meta` is that of the client, with the trace and what the caller added."""
        meta = self._connection.meta
        if not meta or trace or request.meta or "_meta" in params:
            claim = msgspec.json.decode(meta or b"{}")
            given = {**claim, **(trace or {}), **(request.meta or {}), **(params.get("_meta") or {})}
            # The progress token is always sent, since progress renews the time limit.
            params, meta = {**params, "_meta": {"progressToken": pending.id, **given}}, b""
        on_progress = None if progress is None else progress.receive
        sent = session.send_request(
            pending, params, headers=headers, idle=request.idle, total=total, on_progress=on_progress, meta=meta
        )
        return asking_person(sent, session.is_serving) if PERSON_LIMITS.get() else sent

    def _headers(self, session: Session, request: ClientContext, params: dict[str, Any]) -> HeaderTexts:
        """The caller's headers, and those that mirror the request, which can't be replaced. None where HTTP is not used."""
        if not self._connection.mirrors:
            own = request.headers
            return () if own is None or session.channel.kind != "post" else _own_headers(own)
        method, discovery = request.method, self._connection.discovery
        assert discovery is not None
        row = METHODS.get(method) or self._extensions.sent.get(method)
        name = params.get(row.name_field) if row is not None and row.name_field is not None else None
        headers = request_headers(method, name, discovery.revision)
        if method == "tools/call" and name in self._tools.by_name:
            headers += tuple(self._tools.headers(name, _decoded(params.get("arguments")) or {}).items())
        return headers if request.headers is None else tuple(dict(_own_headers(request.headers) + headers).items())


class ProgressCalls:
    """Calls `on_progress` with the progress of one request, one after the other, sync or async."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        #: What waits, each with its bytes, and all bytes.
        self._waiting: deque[tuple[int, ProgressParams]] = deque()
        self._waiting_bytes = 0
        self._warnings = 0
        self._task: asyncio.Task[None] | None = None

    def receive(self, params: Raw) -> None:
        """Call it with params as JSON text, or later if it is still busy."""
        try:
            progress = _progress.decode(params)
        except msgspec.MsgspecError as exc:
            self._warnings = warn_about_peer(self._warnings, "notifications/progress is dropped: %s", exc)
            return
        if self._task is not None and not self._task.done():
            self._wait(len(params), progress)
        elif (running := self._call(progress)) is not None:
            self._task = asyncio.ensure_future(self._run(running))
            if isinstance(running, Coroutine):  # which Python warns of if the task is cancelled before it begins
                self._task.add_done_callback(lambda _: running.close())

    def _wait(self, size: int, progress: ProgressParams) -> None:
        self._waiting.append((size, progress))
        self._waiting_bytes += size
        while len(self._waiting) > PROGRESS_WAITING or (
            self._waiting_bytes > PROGRESS_BYTES and len(self._waiting) > 1
        ):
            self._next()

    def _next(self) -> ProgressParams:
        size, progress = self._waiting.popleft()
        self._waiting_bytes -= size
        return progress

    def _call(self, progress: ProgressParams) -> Awaitable[Any] | None:
        """What remains to be awaited, if it is async."""
        try:
            returned = self._on_progress(progress)
        except Exception:
            logger.exception("on_progress failed")
            return None
        return returned if isinstance(returned, Awaitable) else None

    async def _run(self, running: Awaitable[Any] | None) -> None:
        while running is not None:
            try:
                await running
            except Exception:
                logger.exception("on_progress failed")
            running = None
            while self._waiting and running is None:
                running = self._call(self._next())

    async def finish(self, within: float | None) -> None:
        """Wait for it for at most `within` seconds, so that nothing is reported after the result."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=within)

    def stop(self) -> None:
        """Call it no more."""
        if self._task is not None:
            self._task.cancel()


def _own_headers(headers: Mapping[str, str]) -> HeaderTexts:
    from gemel.transports.http.client.headers import call_headers

    return tuple(call_headers(headers))


def _decoded(value: object) -> Any:
    return msgspec.json.decode(value) if isinstance(value, Raw) else value


def _shorter(one: float | None, other: float | None) -> float | None:
    """The shorter of two times; None is none."""
    return one if other is None else other if one is None else min(one, other)


async def _pause(request: ClientContext, pause: float, seconds: float | None) -> None:
    """Wait before the next round. Raises CallTimeout when the seconds that are left are over."""
    await asyncio.sleep(pause if seconds is None else min(pause, seconds))
    if seconds is not None and pause >= seconds:
        late = f"{request.method} was not finished within {request.total:g} seconds"
        raise CallTimeout(f"{late}: the server needs more time")


def _read_typed(raw: Raw, kind: object) -> Result | None:
    """A result as its type; None for one that does not fit, and for types that do not hold the type of the result."""
    if kind not in _typed_decoders:
        _typed_decoders[kind] = _decoder(kind) if "result_type" in getattr(kind, "__struct_fields__", ()) else None
    decode = _typed_decoders[kind]
    if decode is None:
        return None
    try:
        if len(raw) < SMALL:
            return decode(raw)
        with collector_paused():
            return decode(raw)
    except (msgspec.MsgspecError, RecursionError):
        return None


def _decoder(kind: object) -> Callable[[Raw], Any]:
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind).decode
    return decoder


def read_result(
    raw: Raw, method: str, kind: object, deviations: Deviations | None = None, params: Mapping[str, Any] | None = None
) -> Any:
    """A complete result as its type, a dict by default.

    With `deviations`, items and blocks that are not valid are left out and noted there, and contents without a URI are
    those that the params ask for. Raises InvalidResponse.
    """
    decode = _decoder(dict[str, Any] if kind is None else kind)
    try:
        return decode(raw)
    except (msgspec.MsgspecError, RecursionError) as exc:
        invalid = InvalidResponse(f"{method}: the result can't be read: {exc}")
        if deviations is None:
            raise invalid from exc
    try:
        from gemel.client.salvage import salvage

        uri = (params or {}).get("uri", "")
        return salvage(raw, kind, decode, deviations, uri if isinstance(uri, str) else "")
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise invalid from exc
