"""How a client asks: writes the request for the era, waits within limits, answers questions on the way, and repeats what is
safe to repeat. Every repeat counts against a budget, so nothing goes on for ever."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec
from msgspec import UNSET, Raw, UnsetType

from hinge.client import telemetry
from hinge.client.cache import CacheMode
from hinge.client.callbacks import Answers
from hinge.client.connection import Link
from hinge.client.negotiation import refuses_the_era
from hinge.client.url_elicitation import REQUIRED as URLS_REQUIRED
from hinge.client.url_elicitation import RequiredPages, UrlElicitationRequired, required_by
from hinge.errors import (
    CallError,
    CallTimeout,
    ConnectionLost,
    HttpStatus,
    InvalidResponse,
    NotSent,
    Outcome,
    PeerError,
    SessionEnded,
    shorten,
)
from hinge.protocol.calls import Pending
from hinge.protocol.http import headers as http
from hinge.protocol.limits import Limits
from hinge.protocol.revisions.adapt import known_in
from hinge.schema.elicitation import ElicitUrlParams
from hinge.schema.input_required import InputRequest, InputRequiredResult
from hinge.schema.methods import METHODS
from hinge.schema.notifications import ProgressParams
from hinge.session import Session

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

logger = logging.getLogger("hinge")

HEADER_MISMATCH = -32020
#: Asking again changes nothing: safe to repeat when the outcome is unknown (T-14).
SAFE_METHODS = frozenset(
    {
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "resources/read",
        "completion/complete",
        "logging/setLevel",
    }
)

OnProgress = Callable[[ProgressParams], None]
Limit = float | None | UnsetType


class CallOptions(TypedDict, total=False):
    """What every request takes.

    `idle` and `total` are seconds without a word from the server, and at all; None for no limit. `on_progress` is called
    with the server's progress. `meta` goes into the `_meta` of the request, under keys of your own; `headers` go with it
    over HTTP, before those of the client.
    """

    idle: Limit
    total: Limit
    on_progress: OnProgress | None
    meta: Mapping[str, Any] | None
    headers: Mapping[str, str] | None


class RequestOptions(CallOptions, total=False):
    """What `client.request` takes on top: `safe` says that running it twice does no harm."""

    safe: bool | None
    cache: CacheMode
    mirror: tuple[str, Mapping[str, Any]] | None
    weigh: Callable[[int], None] | None


_progress = msgspec.json.Decoder(ProgressParams)


class _Type(msgspec.Struct):
    resultType: str | UnsetType = UNSET


_type = msgspec.json.Decoder(_Type)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {}
_input_required = msgspec.json.Decoder(InputRequiredResult)


class Ask(msgspec.Struct, kw_only=True):
    """One request as its caller wants it. Times in seconds, None for no limit; `safe` says that it may be repeated.

    `meta` and `headers` are the caller's; `weigh` is told how many bytes the result has. `mirrored` gives the headers that
    repeat arguments, computed for each attempt; `mismatch` is called once when the server found them wrong.
    """

    method: str
    params: dict[str, Any]
    idle: float | None
    total: float | None
    on_progress: OnProgress | None = None
    safe: bool = False
    result: Any = None
    cache: CacheMode = "use"
    meta: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None
    mirror: tuple[str, Mapping[str, Any]] | None = None
    weigh: Callable[[int], None] | None = None
    mirrored: Callable[[], dict[str, str]] | None = None
    mismatch: Callable[[], Any] | None = None


class Requests:
    """The asking side of one client."""

    def __init__(self, link: Link, answers: Answers, limits: Limits, pages: RequiredPages) -> None:
        self._link = link
        self._answers = answers
        self._limits = limits
        self._pages = pages

    async def ask(self, ask: Ask, *, pages: bool = True) -> Raw:
        """The complete result of a request, over all its rounds (MRTR-06…MRTR-10). Raises a CallError.

        The time in which questions are being answered here doesn't count against the limits. `pages` says whether pages
        that the server wants opened first are asked for; without, that is an error like any other.
        """
        self._answers.refuse_while_answering(ask.method)
        row = METHODS.get(ask.method) or self._link.extensions.sent.get(ask.method)
        params, left = ask.params, ask.total
        for rounds in range(self._limits.rounds + 1):
            start = time.monotonic()
            try:
                raw = await self._safely(ask, params, left)
            except CallTimeout as exc:
                if rounds == 0:
                    raise
                raise CallTimeout(f"{exc}, in round {rounds + 1} of questions") from exc
            except CallError as exc:
                if pages and (required := self._required_by(exc)) is not None:
                    return await self._after_pages(ask, required, _less(left, start))
                if rounds == 0 or exc.outcome is not Outcome.NOT_SENT:
                    raise
                raise ConnectionLost(f"{ask.method} had begun, and its next round was not sent: {exc}") from exc
            left = _less(left, start)
            # Before the stateless era a `resultType` is a member like any other, unless an extension knows it (BASE-20).
            stateless = self._link.found is None or self._link.found.era == "2026"
            kind = _result_type(raw, ask.method, strict=stateless)
            if kind == "complete":
                return raw
            if not stateless or kind != "input_required" or row is None or not row.may_ask:
                return await self._resolved(ask, raw, kind, left)
            params = await self._next_round(ask, raw, rounds)
        raise InvalidResponse(f"{ask.method}: still asking after {self._limits.rounds} rounds of questions")  # C-082

    def _required_by(self, error: CallError) -> UrlElicitationRequired | None:
        """The pages that must be opened first: only one revision has such an error (ERR-10)."""
        if not isinstance(error, PeerError) or error.code != URLS_REQUIRED:
            return None
        found = self._link.found
        return (
            required_by(error)
            if found is not None and known_in(ElicitUrlParams, "elicitation_id", found.revision)
            else None
        )

    async def _after_pages(self, ask: Ask, required: UrlElicitationRequired, left: float | None) -> Raw:
        """The result after the user has opened pages. Raises UrlElicitationRequired when they aren't opened (ELIC-14)."""

        async def again() -> Raw:
            nonlocal left
            start = time.monotonic()
            try:
                return await self.ask(msgspec.structs.replace(ask, total=left), pages=False)
            finally:
                left = _less(left, start)

        return await self._pages.serve(required, self._may_open, again)

    async def _may_open(self, pages: Sequence[ElicitUrlParams]) -> bool:
        """Whether the user agreed to open all of them; nobody did where nobody can be asked."""
        declared = self._answers.capabilities.elicitation
        if declared is None or declared.url is None or len(pages) > self._limits.questions:
            return False
        asked = {
            str(number): InputRequest(method="elicitation/create", params=page) for number, page in enumerate(pages)
        }
        answers = msgspec.to_builtins(await self._answers.all(asked))
        return all(answer.get("action") == "accept" for answer in answers.values())

    async def _resolved(self, ask: Ask, raw: Raw, kind: str, left: float | None) -> Raw:
        """A result of a type that an extension knows, made into what the caller asked for (A-121)."""
        found = await self._link.extensions.resolve(ask, raw, kind, left)
        if found is not None:
            return found
        if self._link.found is not None and self._link.found.era == "2025":
            return raw
        raise InvalidResponse(f"{ask.method}: the result is of type {shorten(kind)!r}, which is unknown here")

    async def _next_round(self, ask: Ask, raw: Raw, rounds: int) -> dict[str, Any]:
        try:
            required = _input_required.decode(raw)
        except (msgspec.MsgspecError, RecursionError) as exc:
            raise InvalidResponse(f"{ask.method}: the server's questions can't be read: {exc}") from exc
        requests = required.input_requests or {}
        if len(requests) > self._limits.questions:
            raise InvalidResponse(f"{ask.method}: {len(requests)} questions in one round")  # C-083
        params = dict(ask.params)
        if requests:
            params["inputResponses"] = await self._answers.all(requests)
        else:
            await asyncio.sleep(min(0.05 * 2**rounds, 1.0))  # only a state: don't hammer
        if required.request_state is not UNSET:
            params["requestState"] = required.request_state
        return params

    async def _safely(self, ask: Ask, params: dict[str, Any], left: float | None) -> Raw:
        """One round, repeated where that can't run anything twice."""
        tries, refreshed = 0, False
        error: CallError | None = None
        while True:
            session = self._link.current or await self._session(ask.method, error, left)
            try:
                return await self._once(session, ask, params, left)
            except CallTimeout:
                self._link.doubt(session)
                raise
            except SessionEnded as exc:  # LHTTP-25
                self._link.retire(session, f"the server ended the session: {exc}")
                error = _graver(error, exc)
            except NotSent as exc:
                error = _graver(error, exc)
            except ConnectionLost as exc:
                if not ask.safe:
                    raise
                error = exc
            except (PeerError, HttpStatus) as exc:
                lost_behind = exc.outcome is Outcome.UNKNOWN and ask.safe
                if lost_behind or (refuses_the_era(exc) and await self._link.is_outdated(session)):
                    error = exc
                elif getattr(exc, "code", None) != HEADER_MISMATCH or ask.mismatch is None or refreshed:
                    raise
                else:
                    refreshed = True
                    await ask.mismatch()  # HDR-23
                    continue
            tries += 1
            if tries > self._limits.retries:
                raise error
            logger.debug("%s is repeated: %s", ask.method, error)
            await asyncio.sleep(self._limits.backoff * 2**tries * random.uniform(0.5, 1.5))

    async def _session(self, method: str, before: CallError | None, left: float | None) -> Session:
        """A session for the next attempt; if there is none in time, the attempt before says how far the request got."""
        try:
            async with asyncio.timeout(left):
                return await self._link.session()
        except (CallError, TimeoutError) as exc:
            if before is not None and before.outcome is Outcome.UNKNOWN:
                raise before from exc
            if isinstance(exc, CallError):
                raise
            raise NotSent(f"{method} was not sent: the server did not come back within {left:g} seconds") from exc

    def _once(self, session: Session, ask: Ask, params: dict[str, Any], left: float | None) -> Awaitable[Raw]:
        tracer = telemetry.tracer()
        if tracer is not None:
            return self._traced(tracer, session, ask, params, left)
        pending, sent, headers = self._write(session, ask, params, ask.meta)
        return session.exchange(
            pending,
            sent,
            headers=headers,
            idle=ask.idle,
            total=left,
            on_progress=None if ask.on_progress is None else _reporter(ask.on_progress),
        )

    async def _traced(
        self, tracer: Tracer, session: Session, ask: Ask, params: dict[str, Any], left: float | None
    ) -> Raw:
        link = self._link
        revision = link.found.revision if link.found is not None else None
        with telemetry.span(tracer, ask.method, params, revision=revision, place=link.place) as (span, trace):
            pending, sent, headers = self._write(session, ask, params, {**trace, **(ask.meta or {})})
            span.set_attribute("jsonrpc.request.id", str(pending.id))
            report = None if ask.on_progress is None else _reporter(ask.on_progress)
            raw = await session.exchange(pending, sent, headers=headers, idle=ask.idle, total=left, on_progress=report)
            telemetry.ended(span, ask.method, raw)
            return raw

    def _write(
        self, session: Session, ask: Ask, params: dict[str, Any], meta: Mapping[str, Any] | None
    ) -> tuple[Pending, dict[str, Any], dict[str, str] | None]:
        """Enter one attempt: the debt, the params as they leave, and the headers."""
        found = self._link.found
        modern = found is not None and found.era == "2026"
        headers: dict[str, str] | None = None
        if session.channel.kind == "post" and (modern or ask.headers is not None):
            headers = self._headers(ask, params, found.revision if modern and found is not None else None)
        pending = session.ask(ask.method)
        given = params.get("_meta")
        if modern:
            written: Any = stateless_meta(self._link.meta, given, pending, meta)
        else:
            written = {"progressToken": pending.id, **(meta or {}), **(given or {})}
        return pending, {**params, "_meta": written}, headers

    def _headers(self, ask: Ask, params: dict[str, Any], revision: str | None) -> dict[str, str]:
        """The caller's headers, and in the stateless era those that mirror the request; they can't be replaced."""
        headers: dict[str, str] = {}
        if ask.headers is not None:
            from hinge.transports.http.client.endpoint import call_headers

            headers.update(call_headers(ask.headers))
        if revision is not None:
            headers.update(http.request_headers(ask.method, self._name(ask.method, params), revision))
            if ask.mirrored is not None:
                headers.update(ask.mirrored())
        return headers

    def _name(self, method: str, params: Mapping[str, Any]) -> str | None:
        row = METHODS.get(method) or self._link.extensions.sent.get(method)
        return params.get(row.name_field) if row is not None and row.name_field is not None else None


def _less(left: float | None, start: float) -> float | None:
    """What is left of a time since then."""
    return None if left is None else max(0.0, left - (time.monotonic() - start))


def _graver(before: CallError | None, now: CallError) -> CallError:
    """What to report after several attempts: if one of them may have run, that it may."""
    return before if before is not None and before.outcome is Outcome.UNKNOWN else now


def stateless_meta(
    meta: bytes, given: Mapping[str, Any] | None, pending: Pending, more: Mapping[str, Any] | None = None
) -> Any:
    """The prepared `_meta` with this request's progress token: progress renews the limit, so it is always wanted."""
    if given is None:
        token = b'{"progressToken":' + msgspec.json.encode(pending.id) + b","
        if more:
            token += msgspec.json.encode(more)[1:-1] + b","
        return Raw(token + meta[1:])
    return {"progressToken": pending.id, **msgspec.json.decode(meta), **(more or {}), **given}


def _result_type(raw: Raw, method: str, *, strict: bool) -> str:
    """No word means complete (BASE-16)."""
    try:
        said = _type.decode(raw).resultType
    except (msgspec.MsgspecError, RecursionError) as exc:
        if not strict:
            return "complete"
        raise InvalidResponse(f"{method}: the result can't be read: {exc}") from exc
    return "complete" if said is UNSET else said


def read_result(raw: Raw, method: str, kind: Any) -> Any:
    """A complete result as its type, a dict by default. Raises InvalidResponse."""
    kind = dict[str, Any] if kind is None else kind
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as exc:
        raise InvalidResponse(f"{method}: the result can't be read: {exc}") from exc


def _reporter(on_progress: OnProgress) -> Callable[[Raw], None]:
    def report(params: Raw) -> None:
        try:
            on_progress(_progress.decode(params))
        except msgspec.MsgspecError as exc:
            logger.warning("notifications/progress is dropped: %s", exc)
        except Exception:
            logger.exception("on_progress failed")

    return report
