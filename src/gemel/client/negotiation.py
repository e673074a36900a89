"""The negotiation of the era and revision with a server: a pure generator of steps, and the class that runs it.

An error that only stateless servers send means a stateless server; silence, unknown errors and odd answers mean a handshake
server; refusals of access, load and failures of the transport mean nothing. See
https://modelcontextprotocol.io/specification/draft/basic/versioning.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw

from gemel.channel import ProcessChannel
from gemel.errors import (
    AuthorizationFailed,
    CallError,
    CallTimeout,
    ConnectFailed,
    ConnectionLost,
    HttpStatus,
    InvalidResponse,
    NotFinished,
    NotSent,
    Overloaded,
    PeerError,
    shorten,
)
from gemel.jsonrpc import RequestId
from gemel.protocol.eras.base import Era, EraName, EraOption
from gemel.protocol.eras.detect import ERAS
from gemel.protocol.eras.handshake import HANDSHAKE
from gemel.protocol.eras.stateless import STATELESS
from gemel.protocol.http.mirror import request_headers
from gemel.protocol.revisions.adapt import shape
from gemel.schema.base import SERVER_INFO, Implementation
from gemel.schema.lifecycle import (
    ClientCapabilities,
    DiscoverResult,
    InitializeParams,
    InitializeResult,
    ServerCapabilities,
)
from gemel.schema.revisions import HANDSHAKE_REVISIONS, STATELESS_REVISIONS
from gemel.session import Session
from gemel.values.encoding import plain_value

if TYPE_CHECKING:
    from gemel.spans import ObservedMessage

logger = logging.getLogger("gemel")

UNSUPPORTED_VERSION = -32022
#: Errors that only a stateless server sends.
MODERN_ERRORS = frozenset({-32020, -32021, UNSUPPORTED_VERSION})
#: HTTP statuses of a server that does not know the request and says so without JSON-RPC.
LEGACY_STATUSES = frozenset({400, 404, 405, 406, 415, 422})
#: HTTP statuses that ask for a login, and those of a busy server or a gateway without one, which are repeated.
_OF_ACCESS = frozenset({401, 403, 407})
_OF_BUSY_SERVERS = frozenset({429, 502, 503, 504})
#: Errors of a server of any era that is busy or stops.
_OF_LOAD = frozenset({Overloaded.code, NotFinished.code})
#: What to do if a server of one era can't stand the first message of the other one.
NAME_THE_ERA = 'If one of them is too much for it, name its era (era="2025" or era="2026")'
_REFUSALS = frozenset({-32600, -32601, -32602, UNSUPPORTED_VERSION})


class Discovery(msgspec.Struct, frozen=True, kw_only=True):
    """What the negotiation with a server found out. Save it with `msgspec.json.encode` to connect later without a round trip.

    Attributes:
        era: "2025" (handshake) or "2026" (stateless).
        revision: The protocol revision.
        server_info: The name and version that the server gives itself.
        capabilities: The capabilities that it declares.
        instructions: How it wants to be used.
        certain: False for a handshake server that is known as such only by an odd answer to `server/discover`; then a saved
            discovery is not used.
    """

    era: EraName
    revision: str
    server_info: Implementation | None = None
    capabilities: ServerCapabilities = msgspec.field(default_factory=ServerCapabilities)
    instructions: str | None = None
    certain: bool = True


class Probe(msgspec.Struct, frozen=True):
    """The step: send `server/discover` in this revision. Over a byte stream it remains open after a time without an answer.

    With `only` there is no other step: wait longer for a slow server.
    """

    revision: str
    only: bool = False


class Initialize(msgspec.Struct, frozen=True):
    """The step: send `initialize` with this revision. The answer to an open probe may come first.

    `odd` is the answer to the probe if it was none that a server of any era gives.
    """

    revision: str
    odd: Exception | None = None


class StepAnswer(msgspec.Struct, frozen=True):
    """The answer to a step: a result or an error, neither if there was none in time. `to` names the request."""

    to: Literal["discover", "initialize"]
    result: Raw | None = None
    error: Exception | None = None


Steps = Generator[Probe | Initialize, StepAnswer, Discovery]


def combine_eras(first: EraOption, second: EraOption) -> EraOption | None:
    """The era that satisfies two requirements; None if they contradict each other."""
    if first == "auto":
        return second
    return first if second in ("auto", first) else None


def negotiate(era: EraOption) -> Steps:
    """Yield steps and take their answers; the return value is the Discovery. Raises ConnectFailed."""
    return _STRATEGIES[era]()


def _probe_first(*, fallback: bool) -> Steps:
    """`server/discover`, and `initialize` if the server does not know it and `fallback` allows that."""
    return (yield from _judge((yield Probe(STATELESS_REVISIONS[-1], only=not fallback)), fallback, may_repeat=True))


def _common(ours: Sequence[str], theirs: Collection[str]) -> list[str]:
    """The revisions that both sides support, oldest first."""
    return [revision for revision in ours if revision in theirs]


def _judge(answer: StepAnswer, fallback: bool, *, may_repeat: bool) -> Steps:
    """Judge the answer to the probe."""
    if answer.result is not None:
        return (yield from _discovered(answer.result, fallback, may_repeat=may_repeat))
    error = answer.error
    if isinstance(error, PeerError) and error.code in MODERN_ERRORS:
        return (yield from _modern_error(error, fallback, may_repeat=may_repeat))
    verdict = _verdict(error)
    if verdict is None or (verdict == "odd" and not fallback):
        assert error is not None
        raise error
    if not fallback:
        raise ConnectFailed(f"The server does not speak the stateless era: {_words(error)}") from error
    return (yield from _handshake_after(error, odd=verdict == "odd", may_probe=may_repeat))


def _verdict(error: Exception | None) -> Literal["legacy", "odd"] | None:
    """What an error, or silence, says about the era: a handshake server, one that answers oddly, nothing."""
    if isinstance(error, PeerError):
        if error.code in _OF_LOAD:
            return None
        return "legacy" if error.status is None or error.status < 500 else "odd"
    if isinstance(error, HttpStatus):
        if error.status < 400 or error.status in _OF_ACCESS | _OF_BUSY_SERVERS:
            return None
        return "legacy" if error.status in LEGACY_STATUSES else "odd"
    if isinstance(error, InvalidResponse) or (isinstance(error, ConnectionLost) and error.without_answer):
        return "odd"
    return "legacy" if error is None else None


def retry_delay(error: Exception | None) -> float | None:
    """The seconds that a busy server or a gateway asks to wait, 0 if it names none; None for other errors."""
    if isinstance(error, PeerError):
        return error.retry_after
    if isinstance(error, HttpStatus) and error.status in _OF_BUSY_SERVERS:
        return error.retry_after or 0.0
    return None


def refuses_the_era(error: PeerError | HttpStatus) -> bool:
    """Whether a server that does not know the era refuses requests in this way, before it runs them."""
    return error.status in LEGACY_STATUSES if isinstance(error, HttpStatus) else error.code in _REFUSALS


def may_be_older(error: CallError) -> bool:
    """Whether a refused handshake may mean that the server only knows the HTTP transport of the first revision."""
    cause: BaseException = error
    while isinstance(cause, ConnectFailed) and cause.__cause__ is not None:
        cause = cause.__cause__
    if isinstance(error, ConnectFailed) and isinstance(cause, PeerError):
        return cause.code not in MODERN_ERRORS
    status = getattr(cause, "status", None)
    return status is not None and 400 <= status < 500 and status not in _OF_ACCESS | _OF_BUSY_SERVERS


def _discovered(result: Raw, fallback: bool, *, may_repeat: bool) -> Steps:
    try:
        discovered = msgspec.json.decode(result, type=DiscoverResult)
    except msgspec.MsgspecError as exc:
        if not fallback:
            raise ConnectFailed(f"The server's answer to server/discover can't be read: {exc}") from exc
        return (yield from _handshake_after(exc, odd=True, may_probe=may_repeat))
    common = _common(STATELESS_REVISIONS, discovered.supported_versions)
    if common:
        return Discovery(
            era=STATELESS.name,
            revision=common[-1],
            server_info=_identity(discovered.meta),
            capabilities=discovered.capabilities,
            instructions=discovered.instructions,
        )
    return (yield from _only_legacy(discovered.supported_versions, fallback))


def _modern_error(error: PeerError, fallback: bool, *, may_repeat: bool) -> Steps:
    if error.code != UNSUPPORTED_VERSION:
        raise ConnectFailed(f"The server refused the discovery request: {error}") from error
    supported = _supported(error)
    common = _common(STATELESS_REVISIONS, supported)
    if common and may_repeat:
        return (yield from _judge((yield Probe(common[-1], only=not fallback)), fallback, may_repeat=False))
    return (yield from _only_legacy(supported, fallback))


def _only_legacy(supported: list[str], fallback: bool) -> Steps:
    if fallback and _common(HANDSHAKE_REVISIONS, supported):
        return (yield from _handshake())
    offered = shorten(", ".join(map(str, supported)) or "nothing")
    raise ConnectFailed(f"No protocol revision in common: the server offers {offered}")


def _handshake_after(probed: Exception | None, *, odd: bool, may_probe: bool) -> Steps:
    """The handshake after a probe that failed, or got no answer. If it fails, too, the error tells both answers.

    What an odd answer, which no server of any era gives, says about the era is not certain.
    """
    try:
        discovery = yield from _handshake(may_probe=may_probe, odd=probed if odd else None)
    except (NotSent, AuthorizationFailed):
        raise
    except CallError as exc:
        status = getattr(exc, "status", None)
        if status in _OF_ACCESS | _OF_BUSY_SERVERS or (
            status and status == getattr(probed, "status", None) and not odd
        ):
            raise
        kind = ConnectionLost if isinstance(exc, ConnectionLost) else ConnectFailed
        raise kind(
            f"The server answered neither server/discover ({_words(probed)}) nor initialize ({shorten(str(exc))}) as a server "
            f"does. {NAME_THE_ERA}"
        ) from exc
    return (
        msgspec.structs.replace(discovery, certain=False)
        if odd and ERAS[discovery.era].negotiation_method
        else discovery
    )


def _handshake(*, may_probe: bool = False, odd: Exception | None = None) -> Steps:
    """Send `initialize` with our latest revision; to a server that refuses it by an error, with one that it supports.

    A stateless server that was too slow for the probe is probed once more.
    """
    answer = yield Initialize(HANDSHAKE_REVISIONS[-1], odd)
    if answer.to == "initialize" and isinstance(answer.error, PeerError):
        supported = _supported(answer.error)
        modern = _common(STATELESS_REVISIONS, supported)
        if modern and may_probe and not _common(HANDSHAKE_REVISIONS, supported):
            return (yield from _judge((yield Probe(modern[-1])), fallback=True, may_repeat=False))
        answer = yield from _second_try(answer.error)
    if answer.to == "discover":
        return (yield from _late_discovery(answer))
    if answer.error is not None:
        raise answer.error
    if answer.result is None:
        raise ConnectFailed("The server did not answer initialize")
    return _agreed(answer.result)


def _late_discovery(answer: StepAnswer) -> Steps:
    """The probe was answered while `initialize` was on its way: a slow stateless server."""
    if answer.result is not None or (isinstance(answer.error, PeerError) and answer.error.code in MODERN_ERRORS):
        return (yield from _judge(answer, fallback=True, may_repeat=True))
    return (yield from _handshake())


def _second_try(error: PeerError) -> Generator[Probe | Initialize, StepAnswer, StepAnswer]:
    """Send `initialize` with what the server supports; if it only says that it is another version, with each older one."""
    supported = _supported(error)
    common = _common(HANDSHAKE_REVISIONS, supported)
    if common:
        return (yield Initialize(common[-1]))
    if _common(STATELESS_REVISIONS, supported):
        raise ConnectFailed(f"The server speaks only the stateless era ({', '.join(supported)}): use era='2026'")
    if not supported and error.code in _REFUSALS and "version" in str(error).lower():
        for older in reversed(HANDSHAKE_REVISIONS[:-1]):
            answer = yield Initialize(older)
            if not isinstance(answer.error, PeerError):
                return answer
    raise ConnectFailed(f"The server refused initialize: {error}") from error


def _agreed(result: Raw) -> Discovery:
    try:
        agreed = msgspec.json.decode(result, type=InitializeResult)
    except msgspec.MsgspecError as exc:
        raise ConnectFailed(f"The server's answer to initialize can't be read: {exc}") from exc
    if not _common(HANDSHAKE_REVISIONS, [agreed.protocol_version]):
        raise ConnectFailed(
            f"The server requires the protocol revision {shorten(agreed.protocol_version)!r}, which is unknown to this client"
        )
    return Discovery(
        era=HANDSHAKE.name,
        revision=agreed.protocol_version,
        server_info=agreed.server_info if agreed.server_info.name else None,
        capabilities=agreed.capabilities,
        instructions=agreed.instructions,
    )


#: How the negotiation begins, by the era that is required.
_STRATEGIES: dict[EraOption, Callable[[], Steps]] = {
    "2025": lambda: _handshake(),
    "2026": lambda: _probe_first(fallback=False),
    "auto": lambda: _probe_first(fallback=True),
}


def _supported(error: PeerError) -> list[str]:
    supported: Any = error.data.get("supported") if isinstance(error.data, dict) else None
    return [str(item) for item in supported] if isinstance(supported, list) else []


def _identity(meta: dict[str, Any] | None) -> Implementation | None:
    try:
        return msgspec.convert((meta or {}).get(SERVER_INFO), Implementation)
    except msgspec.ValidationError:
        return None


def _words(error: Exception | None) -> str:
    if error is None:
        return "no answer"
    return shorten(str(error)) if isinstance(error, CallError) else "its answer to server/discover can't be read"


#: Observes a message by its method, params and id; see `ClientConnection.observe`.
Observe = Callable[
    [str, Mapping[str, Any], RequestId | None], AbstractContextManager[tuple["ObservedMessage | None", dict[str, str]]]
]


#: What a client declares in an era.
DeclaredCapabilities = Callable[[Era], ClientCapabilities]


class ProbeEndedServer(ConnectionLost):
    """A server on a byte stream ended at the probe, as servers of the official Python SDK up to 1.9 do: start it again.

    What it wrote to standard error is held back.
    """


class Negotiation:
    """Runs the negotiation over an open session.

    Requests to a busy server are repeated, if that is possible before `until`, by the clock of the loop.
    """

    def __init__(
        self,
        session: Session,
        info: Implementation,
        capabilities: DeclaredCapabilities,
        observe: Observe,
        until: float | None = None,
    ) -> None:
        self._until = until
        self._session = session
        self._info = info
        self._capabilities = capabilities
        self._observe = observe
        #: The step that was begun last.
        self._step: Probe | Initialize | None = None
        #: What each request was answered, for errors.
        self.answers: dict[str, str] = {}
        #: A probe without an answer: over a byte stream a slow server may still answer it.
        self._probe: asyncio.Task[StepAnswer] | None = None

    async def run(self, era: EraOption) -> Discovery:
        """Negotiate. Raises ConnectFailed, or the transport's own error when it says nothing about the era."""
        steps = negotiate(era)
        try:
            step = next(steps)
            while True:
                step = steps.send(await self._take(step))
        except StopIteration as done:
            discovery: Discovery = done.value
            is_older = bool(ERAS[discovery.era].negotiation_method)
            self._release_stderr(without="server/discover" if is_older else None)
            return discovery
        except (ConnectionLost, NotSent) as exc:
            probed = isinstance(self._step, Probe) or self._probe is not None
            if era == "auto" and probed and self._session.channel.kind != "post":
                raise ProbeEndedServer(str(exc)) from exc
            self._release_stderr()
            raise
        except BaseException:
            self._release_stderr()
            raise
        finally:
            if self._probe is not None:
                self._probe.cancel()
                await asyncio.wait([self._probe])

    def _release_stderr(self, *, without: str | None = None) -> None:
        if isinstance(self._session.channel, ProcessChannel):
            self._session.channel.release_stderr(without=without)

    async def _take(self, step: Probe | Initialize) -> StepAnswer:
        self._step = step
        if isinstance(step, Probe):
            return await self._discover(step.revision, only=step.only)
        if step.odd is not None:
            self._session.note("odd-probe-answer", _words(step.odd))
        return await self._initialize(step.revision)

    async def _discover(self, revision: str, *, only: bool) -> StepAnswer:
        if self._probe is not None:
            self._probe.cancel()
        meta = STATELESS.request_meta(revision, self._info, self._capabilities(STATELESS))
        on_http = self._session.channel.kind == "post"
        headers = request_headers("server/discover", None, revision) if on_http else ()
        # Over HTTP the limit doesn't count the time in which a person is asked to log in.
        idle = 2 * self._session.connection.limits.probe if on_http and not only else None
        asking = asyncio.create_task(self._ask("server/discover", {"_meta": meta}, headers, "discover", idle))
        if on_http or only:
            return await _own(asking)
        if isinstance(self._session.channel, ProcessChannel):
            self._session.channel.hold_stderr()  # servers of the handshake era complain about the probe
        await asyncio.wait([asking], timeout=self._session.connection.limits.probe)
        if asking.done():
            return asking.result()
        self._release_stderr()
        self._probe = asking
        return StepAnswer("discover")

    async def _initialize(self, revision: str) -> StepAnswer:
        capabilities = self._capabilities(HANDSHAKE)
        mine = InitializeParams(protocol_version=revision, capabilities=capabilities, client_info=self._info)
        params = shape(mine, revision)
        asking = asyncio.create_task(self._ask("initialize", params, (), "initialize"))
        if self._probe is None:
            return await _own(asking)
        probe = self._probe
        try:
            await asyncio.wait([asking, probe], return_when=asyncio.FIRST_COMPLETED)
            # A server that was busy starting answers both at once: then the probe decides.
            if not probe.done() or not _modern(probe.result()):
                return await _own(asking)
        except BaseException:
            asking.cancel()
            raise
        self._probe = None
        asking.cancel()
        await asyncio.wait([asking])
        return probe.result()

    async def _ask(
        self,
        method: str,
        params: object,
        headers: object,
        to: Literal["discover", "initialize"],
        idle: float | None = None,
    ) -> StepAnswer:
        """Send a request, again to a busy server."""
        limits, loop = self._session.connection.limits, asyncio.get_running_loop()
        for attempt in range(limits.retries):
            answer = await self._ask_once(method, params, headers, to, idle)
            delay = retry_delay(answer.error)
            if delay is None:
                return answer
            delay = max(delay, limits.backoff * 2**attempt * random.uniform(0.5, 1.5))
            if self._until is None or loop.time() + delay >= self._until:
                return answer
            logger.debug("%s is repeated: %s", method, answer.error)
            await asyncio.sleep(delay)
        return await self._ask_once(method, params, headers, to, idle)

    async def _ask_once(
        self, method: str, params: object, headers: object, to: Literal["discover", "initialize"], idle: float | None
    ) -> StepAnswer:
        self.answers.setdefault(method, "no answer")
        answer = await self._request(method, params, headers, to, idle)
        if answer.error is not None:
            self.answers[method] = _words(answer.error)
        return answer

    async def _request(
        self, method: str, params: Any, headers: Any, to: Literal["discover", "initialize"], idle: float | None
    ) -> StepAnswer:
        try:
            pending = self._session.register_request(method)
            with self._observe(method, plain_value(params), pending.id) as (operation, trace):
                if trace:
                    params = plain_value(params)
                    params["_meta"] = {**params.get("_meta", {}), **trace}
                result = await self._session.send_request(pending, params, headers=headers, idle=idle)
                if operation is not None:
                    operation.finished(method, result)
                return StepAnswer(to, result=self._usable(to, result))
        except CallTimeout:
            return StepAnswer(to)
        except ConnectionLost as exc:
            # Over HTTP the next request opens another connection.
            exc.without_answer |= self._session.channel.kind == "post"
            return StepAnswer(to, error=exc)
        except CallError as exc:
            return StepAnswer(to, error=exc)

    def _usable(self, to: Literal["discover", "initialize"], result: Raw) -> Raw:
        """The result, without optional members that are not valid."""
        kind = InitializeResult if to == "initialize" else DiscoverResult
        try:
            msgspec.json.decode(result, type=kind)
        except msgspec.MsgspecError:
            from gemel.client.salvage import salvage_opening

            return salvage_opening(result, kind, self._session.note)
        return result


async def _own(task: asyncio.Task[StepAnswer]) -> StepAnswer:
    """Wait for a task, and cancel it if this task is cancelled."""
    try:
        return await task
    except asyncio.CancelledError:
        task.cancel()
        raise


def _modern(answer: StepAnswer) -> bool:
    """Whether a late answer to the probe comes from a stateless server."""
    if answer.error is not None:
        return getattr(answer.error, "code", None) in MODERN_ERRORS
    return answer.result is not None
