"""Every error of Gemel, the one map from an exception to an error object on the wire, and what the log says of a failure.

    GemelError
    ├── DefinitionError          invalid signature, name or option; raised at registration
    │   └── NoSession                the call belongs to no session that could keep something
    ├── StartError               a server cannot start: port in use, missing file
    ├── ToolError                a tool failed; the message is meant for the model
    ├── ProtocolError            JSON-RPC error {code, message, data}; raise it in a handler to send it
    │   ├── ParseError               -32700  not JSON
    │   ├── InvalidRequest           -32600  not a valid request
    │   │   └── WrongUrl                 the URL asks for what there is not
    │   ├── MethodNotFound           -32601
    │   ├── InvalidParams            -32602
    │   │   ├── InvalidEnvelope          a stateless request without its required `_meta`
    │   │   ├── InvalidArguments         arguments of a tool do not match its schema
    │   │   └── ResourceNotFound         -32002 in the handshake revisions
    │   ├── InternalError            -32603
    │   ├── HeaderMismatch           -32020
    │   ├── MissingClientCapability  -32021
    │   ├── UnsupportedVersion       -32022
    │   ├── InsufficientScope        403     the caller's authorization lacks a scope
    │   ├── Overloaded               429     too many requests; carries a retry delay
    │   └── NotFinished              504     stopped by the server; the outcome is unknown
    ├── ChannelClosed            the transport is closed: the message was not sent
    ├── BackendError             a backend can't be reached, is damaged or in use by another program
    │   └── LeaseLost                a lease ended while it was held
    ├── LogConflict              somebody else has appended to a log of a backend meanwhile
    └── CallError                a request to the peer failed; `outcome` says whether it may have run
        ├── NotSent                  the request was not sent: safe to retry
        ├── AuthorizationFailed      there is no access token; the request was not sent, and is not retried
        ├── PeerError                the peer answered with a JSON-RPC error
        ├── InvalidResponse          the response is not valid
        ├── ToolCallError            a tool result has `isError`; also a ToolError
        ├── HttpStatus               the server answered with an HTTP error status
        │   └── SessionEnded             404: the HTTP session no longer exists; nothing ran
        ├── ConnectionLost           the connection was lost after sending: the outcome is unknown
        ├── CallTimeout              no response in time: the outcome is unknown
        ├── ConnectFailed            connecting failed
        └── ContractDrift            the server does not match its contract; the request was not sent

Only ProtocolError and PeerError have codes; errors raised locally have none.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from traceback import TracebackException
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

from gemel.visible import escape_log

logger = logging.getLogger("gemel")

#: No more than this many characters of a caller's own text stand in an error message.
ECHO_LIMIT = 200


def shorten(text: str, limit: int = ECHO_LIMIT) -> str:
    """The text, cut to `limit` characters: callers' text is echoed only in part."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


class GemelError(Exception):
    """The base of every error that Gemel raises on purpose.

    Args:
        *args: As for Exception.
    """

    def __init__(self, *args: object) -> None:
        super().__init__(*args)


class DefinitionError(GemelError):
    """A signature, name or option can't work; the message names it and says what to do.

    Raised at registration, or when a function returns what its annotation doesn't allow.
    """


class NoSession(DefinitionError):
    """Nothing can be kept for the session of this call, because it belongs to none, or its session has ended.

    The message names what to use in place of it.
    """


class StartError(GemelError):
    """A server or a command can't start: a port in use, a missing file, an unknown option."""


class ToolError(GemelError):
    """Raise it to report a failure to the model: the result of the call is `isError` with this text.

    It may be raised in a tool, a dependency, a middleware or a `connection_lifespan`. Requests that are not calls of tools
    get a JSON-RPC error with the text.
    """


class ErrorObject(msgspec.Struct, omit_defaults=True):
    """The `error` member of a JSON-RPC response."""

    #: The code of the error.
    code: int
    #: The text of the error.
    message: str
    #: Any JSON value, for programs.
    data: Any = msgspec.UNSET


class ProtocolError(GemelError):
    """An error that is sent to the peer as it is. Handlers raise one of the subclasses.

    Args:
        message: The text of the error.
        data: Any JSON value, for programs.
        code: A code of your own, outside of -32768 to -32000; that of the class by default.
    """

    #: The code of the JSON-RPC error.
    code: ClassVar[int] = -32603
    #: The HTTP status of a stateless response with this error; it follows from the code.
    http_status: int = 200

    def __init__(self, message: str, data: object = msgspec.UNSET, *, code: int | None = None) -> None:
        super().__init__(message)
        self.error = ErrorObject(self.code if code is None else code, message, data)
        if code is not None:
            self.http_status = _STATUS_OF_CODE.get(code, 200)


_STATUS_OF_CODE = {-32700: 400, -32600: 400, -32601: 404, -32020: 400, -32021: 400, -32022: 400}


class ParseError(ProtocolError):
    """The text is not JSON."""

    code = -32700
    http_status = 400


class InvalidRequest(ProtocolError):
    """JSON, but not one JSON-RPC message."""

    code = -32600
    http_status = 400


class WrongUrl(InvalidRequest):
    """The URL of the request asks for what there is not. The HTTP status is 400 in both eras."""


class MethodNotFound(ProtocolError):
    """The method is unknown, removed, or needs a capability that isn't offered.

    Args:
        method: Its name, which becomes `data`.
    """

    code = -32601
    http_status = 404

    def __init__(self, method: str) -> None:
        super().__init__("Method not found", shorten(method))


class InvalidParams(ProtocolError):
    """The params don't fit the method."""

    code = -32602


class InvalidEnvelope(InvalidParams):
    """A stateless request lacks a required `_meta` field."""

    http_status = 400


class InvalidArguments(InvalidParams):
    """A tool's arguments don't fit its schema.

    Args:
        errors: One line for each error, written for the model.
        tool: The name of the tool.
    """

    def __init__(self, errors: Sequence[str], tool: str = "") -> None:
        self.errors = list(errors)
        where = f" for tool {shorten(tool)!r}" if tool else ""
        super().__init__(f"Invalid arguments{where}: " + "; ".join(self.errors))


class ResourceNotFound(InvalidParams):
    """There is no such resource: -32602 in the stateless era, -32002 in the handshake era.

    Args:
        uri: The URI that was asked for.
    """

    def __init__(self, uri: str) -> None:
        super().__init__("Resource not found", {"uri": shorten(uri, 2048)})


class InternalError(ProtocolError):
    """An unexpected failure on this side; the text never has internal details.

    Args:
        message: The text of the error.
        data: Any JSON value, for programs.
    """

    def __init__(self, message: str = "Internal server error", data: object = msgspec.UNSET) -> None:
        super().__init__(message, data)


class HeaderMismatch(ProtocolError):
    """A header that repeats a part of the body differs from it, is missing, or can't be read."""

    code = -32020
    http_status = 400


class MissingClientCapability(ProtocolError):
    """The call needs a capability that the client didn't declare.

    Args:
        required: The capabilities, in the shape of ClientCapabilities.
        purpose: What they are needed for, if the call alone doesn't say it: "by which …".
    """

    code = -32021
    http_status = 400

    def __init__(self, required: dict[str, Any], purpose: str = "") -> None:
        names = ", ".join(sorted(required))
        text = f"Missing required client capability: {names}{', ' if purpose else ''}{purpose}"
        super().__init__(text, {"requiredCapabilities": required})
        self.required = required


class UnsupportedVersion(ProtocolError):
    """The request names a revision that the server doesn't support.

    Args:
        requested: The revision of the request.
        supported: The revisions of the server.
    """

    code = -32022
    http_status = 400

    def __init__(self, requested: str, supported: Sequence[str]) -> None:
        data = {"supported": list(supported), "requested": shorten(requested)}
        super().__init__("Unsupported protocol version", data)


class Overloaded(ProtocolError):
    """Too much at once: the request was not served, and may be repeated later. Over HTTP it is a 503 with `Retry-After`.

    Args:
        message: The text of the error.
        retry_after_ms: When to try again, in milliseconds; `retryAfterMs` in `data`.
        detail: What only this side may know, such as the path of a full database: it is in `str(error)`, and is not sent.
    """

    code = 429
    http_status = 503

    def __init__(self, message: str, retry_after_ms: int = 1000, *, detail: str = "") -> None:
        super().__init__(message, {"retryAfterMs": retry_after_ms})
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.error.message}: {self.detail}" if self.detail else self.error.message


class InsufficientScope(ProtocolError):
    """The caller is not authorized for the operation. A handler raises it where the option `scopes=` does not suffice.

    Over HTTP it is a 403 whose `WWW-Authenticate` names the scopes, so that the client can ask the user for them ("Step-Up
    Authorization Flow" in basic/authorization), unless the response has begun; elsewhere it is an error with code 403.

    Args:
        *scopes: All scopes that the operation needs; `requiredScopes` in `data`. Those of the option `scopes=` are added.
    """

    code = 403
    http_status = 403

    def __init__(self, *scopes: str) -> None:
        self.scopes = frozenset(scopes)
        names = sorted(self.scopes)
        super().__init__(f"Insufficient scope: this needs {' '.join(names)}", {"requiredScopes": names})


class NotFinished(ProtocolError):
    """The server stopped before the call was finished. It may have run in part: the outcome is unknown.

    Args:
        reason: Why the server stopped it.
    """

    code = 504

    def __init__(self, reason: str) -> None:
        super().__init__(f"Not finished, the outcome is unknown: {reason}")


class ChannelClosed(GemelError):
    """The channel is closed; the message was not sent."""


class BackendError(GemelError):
    """A backend can't be reached, is damaged, or belongs to another program.

    Args:
        message: The text of the error.
        retry_after_ms: When to try again, in milliseconds; None where that does not help.
    """

    def __init__(self, message: str, retry_after_ms: int | None = None) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class LeaseLost(BackendError):
    """A lease ended while it was held: somebody else may have done the same work meanwhile."""


class LogConflict(GemelError):
    """Somebody else has appended to a log of a backend: nothing was appended.

    Args:
        after: The position that the caller took for the newest.
        newest: The newest position.
    """

    def __init__(self, after: int, newest: int) -> None:
        super().__init__(f"Nothing was appended: the newest position of the log is {newest}, not {after}")
        self.newest = newest


class Outcome(Enum):
    """How far a request to the peer got: what a caller must know before repeating it.

    Attributes:
        NOT_SENT: The request was not sent: it is safe to repeat.
        ANSWERED: The peer answered, with an error or in an unusable way.
        UNKNOWN: The request was sent and not answered: it may have run.
    """

    NOT_SENT = "not sent"
    ANSWERED = "answered"
    UNKNOWN = "unknown"


class CallError(GemelError):
    """A request to the peer didn't end in a result. `outcome` tells whether it may have run."""

    #: Whether the request may have run.
    outcome: Outcome = Outcome.UNKNOWN


#: What is told of a request that got no answer.
_SAID = {
    Outcome.NOT_SENT: ": the request was not sent",
    Outcome.ANSWERED: "",
    Outcome.UNKNOWN: ": the request may have run",
}


def relayed(text: str, outcome: Outcome) -> InternalError:
    """Return the error for a caller whose request was passed on to another server and failed there.

    Its text and its `data.outcome` tell whether the request may have run.

    Args:
        text: What happened.
        outcome: How far the request got.
    """
    return InternalError(f"{text}{_SAID[outcome]}", {"outcome": outcome.value})


class NotSent(CallError):
    """The request was not sent: it is safe to repeat."""

    outcome = Outcome.NOT_SENT


class AuthorizationFailed(CallError):
    """There is no access token for the request: the login failed or was refused, or nobody is there for it."""

    outcome = Outcome.NOT_SENT


#: Milliseconds that a peer may ask to wait in the data of an error; no larger number is believed.
_LONGEST_WAIT = 86_400_000


class PeerError(CallError):
    """The peer answered with an error. `outcome` is unknown if the peer says so: see `NotFinished` and `relayed`.

    Args:
        error: The error object.
        status: The HTTP status of the response; None on other transports.
    """

    outcome = Outcome.ANSWERED

    def __init__(self, error: ErrorObject, status: int | None = None) -> None:
        self.error = error
        super().__init__(f"{self.description} ({error.code})")
        self.status = status
        said = error.data.get("outcome") if isinstance(error.data, Mapping) else None
        if error.code == NotFinished.code or said == Outcome.UNKNOWN.value:
            self.outcome = Outcome.UNKNOWN

    @property
    def code(self) -> int:
        """The JSON-RPC error code."""
        return self.error.code

    @property
    def message(self) -> str:
        """The text of the error."""
        return self.error.message

    @property
    def description(self) -> str:
        """The text of the error, with what its `data` names: a short text, or a URI."""
        return f"{self.error.message}{_about(self.error.data)}"

    @property
    def data(self) -> Any:
        """The error's `data`, or None."""
        return None if self.error.data is msgspec.UNSET else self.error.data

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait before the next attempt, if the peer was too busy (see `Overloaded`); 0 if it named none."""
        if self.error.code != Overloaded.code:
            return None
        wait = self.data.get("retryAfterMs") if isinstance(self.data, Mapping) else None
        return wait / 1000 if isinstance(wait, int | float) and 0 <= wait < _LONGEST_WAIT else 0.0


def _about(data: object) -> str:
    """What the data of an error names, if that is a short text or a URI."""
    name = data.get("uri") if isinstance(data, Mapping) else data
    return f": {shorten(name)}" if isinstance(name, str) and name else ""


class InvalidResponse(CallError):
    """The peer answered, but not with a valid answer to this request.

    Attributes:
        pages: The pages that came, if this is about the pages of a list.
    """

    outcome = Outcome.ANSWERED
    pages: Sequence[Any] = ()


class ToolCallError(CallError, ToolError):
    """A tool that a client called reported an error (`isError`).

    `except ToolError` catches it, too. If it leaves a handler of a server, it counts as an internal failure, like any
    CallError: the other server's text is not passed on to the caller.

    Args:
        message: The text of the result.
        result: The whole `CallToolResult`.
    """

    outcome = Outcome.ANSWERED

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


_LOST_BEHIND = (502, 504)


class HttpStatus(CallError):
    """The server answered with an HTTP error status, or with a redirect that isn't followed.

    401 and 403 are always reported as this class. With 502 and 504 a gateway lost the server: the outcome is unknown.

    Args:
        message: The text of the error.
        status: The HTTP status.
        headers: Those that say what to do next (`www-authenticate`, `dpop-nonce`, `retry-after`, `location`,
            `content-type`, `allow`), with lower-case names.
        body: The start of the body, as text.
        error: The JSON-RPC error object in the body, if it names no request or another one.
    """

    outcome = Outcome.ANSWERED

    def __init__(
        self, message: str, status: int, headers: Mapping[str, str], body: str = "", error: ErrorObject | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        if status in _LOST_BEHIND:
            self.outcome = Outcome.UNKNOWN
        self.headers = headers
        self.body = body
        self.error = error

    @property
    def retry_after(self) -> float | None:
        """The seconds to wait before the next attempt, if the server named a number."""
        text = self.headers.get("retry-after", "")
        return float(text) if text.isdecimal() and text.isascii() and len(text) < 8 else None


class SessionEnded(HttpStatus):
    """The server no longer knows the session: the message was not served. Begin with `initialize`.

    The status is 404; some servers send 400, 401 or 410.
    """


class ConnectionLost(CallError):
    """The connection ended after the request was sent: it may have run.

    Attributes:
        without_answer: Whether only an HTTP exchange ended without an answer, regularly or not, so that the server may answer
            other requests.
    """

    without_answer: bool = False


class CallTimeout(CallError, TimeoutError):
    """No answer within the limit; the request was cancelled, but may have run."""


class ConnectFailed(CallError):
    """No connection could be opened."""

    outcome = Outcome.NOT_SENT


#: In ascending order. "text" breaks no program, but a model reads it: instructions may hide there.
Severity: TypeAlias = Literal["harmless", "text", "may break", "breaking"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One change between two contracts; `str()` gives it as a line.

    Attributes:
        severity: What it may break: "harmless", "text", "may break" or "breaking".
        kind: "tool", "prompt", "resource", "resource template" or "server".
        name: The name of the entry, the URI of a resource, empty for the server.
        message: What changed.
        place: Where in the entry: `input.city`, `description`.
    """

    severity: Severity
    kind: str
    name: str
    message: str
    place: str = ""

    def __str__(self) -> str:
        name = self.name
        if not (name.isascii() and name.isprintable()) or " " in name or '"' in name or len(name) > ECHO_LIMIT:
            name = shorten(json.dumps(name))  # no hidden characters
        place = f"{self.place}: " if self.place else ""
        return f"{f'{self.kind} {name}' if name else self.kind}: {place}{self.message}"


class ContractDrift(CallError):
    """The server differs from its contract: the request was not sent.

    Args:
        message: The text of the error.
        lines: What differs, one change each.
    """

    outcome = Outcome.NOT_SENT

    def __init__(self, message: str, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.lines = tuple(lines)


def as_failure(exc: BaseException) -> BaseException:
    """Convert what a handler raised to the failure of its call; `SystemExit` and the like must not end the process.

    `sys.exit()`, a KeyboardInterrupt and a GeneratorExit of its own become an error like any other.
    """
    match exc:
        case SystemExit():
            failure = RuntimeError(f"the function called sys.exit({exc.code!r})")
        case KeyboardInterrupt() | GeneratorExit() | StopIteration():
            failure = RuntimeError(f"the function raised {type(exc).__name__}({exc})")
        case _:
            return exc
    failure.__cause__ = exc
    return failure


def told_by(group: BaseException) -> GemelError | None:
    """The error that an exception group reports to the peer, as task groups raise one also for a single error.

    Args:
        group: Any exception.

    Returns:
        The only error in it, or one with the texts of all, if all are ToolErrors; None for anything else.
    """
    if not isinstance(group, BaseExceptionGroup):
        return None
    errors = list(_members(group))
    if len(errors) == 1:
        return errors[0] if isinstance(errors[0], ToolError | ProtocolError) else None
    if not all(isinstance(error, ToolError) and not isinstance(error, ToolCallError) for error in errors):
        return None
    return ToolError("; ".join(dict.fromkeys(map(str, errors))))


def _members(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _members(error)
        else:
            yield error


def wire_error(exc: BaseException, about: str = "") -> ProtocolError:
    """Convert an exception to the error that the peer gets, the same on every transport.

    A ProtocolError is sent as it is. Anything else becomes an InternalError without details; its text and traceback are
    logged to `gemel`, with `about` (the method) in front.
    """
    if isinstance(exc, ProtocolError):
        return exc
    # The text of a DefinitionError is complete.
    logger.error("%s failed: %s", about or "A request", exc, exc_info=None if isinstance(exc, DefinitionError) else exc)
    return internal_error(exc)


def internal_error(exc: BaseException) -> InternalError:
    """The error that the peer gets for an exception of a handler. That of a BackendError says when the store may be back."""
    if isinstance(exc, BackendError) and exc.retry_after_ms is not None:
        text = "Internal server error: a store that the server needs can't be used now"
        return InternalError(text, {"retryAfterMs": exc.retry_after_ms})
    return InternalError()


# ---------------------------------------------------------------- the log

FrameT = TypeVar("FrameT")

#: With this environment variable set to "full", texts have all frames.
_SETTING = "GEMEL_TRACEBACKS"

_OURS = os.path.dirname(os.path.abspath(__file__)) + os.sep
#: The standard library, and the scripts of the environment: `gemel` is one.
_PYTHON = tuple(
    os.path.dirname(os.path.abspath(file)) + os.sep for file in (os.__file__, sys.executable or os.__file__)
)
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")


class LogFilter(logging.Filter):
    """Makes records safe to write: what clients, servers and exceptions said is escaped, and credentials are left out.

    The loggers `gemel` and `gemel.access` have it, so that the handlers of any program get such records; only one with text
    to escape is changed. It also writes the text of its exception into each record, which formatters use; see
    `logging.Formatter.format`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Prepare a record.

        Args:
            record: The record.

        Returns:
            True.
        """
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = describe_failure(record.exc_info[1])
        try:
            text = record.getMessage()
        except Exception:  # a handler reports it
            return True
        safe = escape_log(text)
        if safe != text:
            record.msg, record.args = safe, ()
        return True


def hides_frames() -> bool:
    """Whether the frames of Gemel are left out of tracebacks of tests: those of a checkout are what its tests are about."""
    return os.environ.get(_SETTING) != "full" and any(packages in _OURS for packages in _PACKAGES)


def describe_failure(exc: BaseException) -> str:
    """The traceback of an exception and of its causes, as Python writes it, without the frames of Gemel, and fit for a log.

    All frames are there if none is the user's, since the failure is Gemel's then, or if the setting says so.

    Args:
        exc: The exception.

    Returns:
        The lines, without a line end.
    """
    told = TracebackException.from_exception(exc, compact=True)
    hidden = 0 if os.environ.get(_SETTING) == "full" else _fold(told)
    text = _escape_traceback("".join(told.format()).rstrip("\n"), exc)
    if not hidden:
        return text
    frames = "1 frame of Gemel is" if hidden == 1 else f"{hidden} frames of Gemel are"
    return f"{text}\n({frames} not shown; {_SETTING}=full shows all)"


def _escape_traceback(text: str, exc: BaseException) -> str:
    """Escape a traceback; only lines of exceptions' texts are indented."""
    exceptions: list[BaseException] = [exc]
    for one in exceptions:
        inner = (one.__cause__, one.__context__, *(one.exceptions if isinstance(one, BaseExceptionGroup) else ()))
        known = set(map(id, exceptions))
        exceptions += [other for other in inner if other is not None and id(other) not in known]
    for one in exceptions:
        for words in (one, *getattr(one, "__notes__", ())):
            with suppress(Exception):  # from the text of a user's class
                if "\n" in (said := str(words).strip("\n")):
                    text = text.replace(said, escape_log(said))
    return "\n".join(map(escape_log, text.split("\n")))


def _fold(told: TracebackException) -> int:
    """Remove the frames that are not the user's. Returns how many, 0 if nothing was removed."""
    parts = _parts(told)
    shown = [user_frames(part.stack or (), lambda frame: frame.filename) for part in parts]
    if not any(shown):
        return 0
    hidden = 0
    for part, frames in zip(parts, shown, strict=True):
        hidden += len(part.stack or ()) - len(frames)
        if frames:
            part.stack[:] = frames
        else:
            part.stack = None  # type: ignore[assignment]  # leaves out the heading, too
    return hidden


def _parts(told: TracebackException) -> list[TracebackException]:
    """The exception, its causes, and the members of groups."""
    parts = [told]
    for part in parts:
        parts += [one for one in (part.__cause__, part.__context__, *(part.exceptions or ())) if one is not None]
    return parts


def user_frames(stack: Iterable[FrameT], filename: Callable[[FrameT], str]) -> list[FrameT]:
    """The frames of the user, and those of Python that they called, unless these led back to Gemel."""
    frames: list[FrameT] = []
    called: list[FrameT] | None = None
    for frame in stack:
        name = filename(frame)
        if name.startswith(_OURS):
            called = None
        elif not _is_python(name):
            frames += [*(called or ()), frame]
            called = []
        elif called is not None:
            called.append(frame)
    return frames + (called or [])


def _is_python(filename: str) -> bool:
    """Whether a frame is of Python or of an extension module: it belongs to what called it."""
    if filename.startswith(("<frozen ", *_PYTHON)):
        return not any(packages in filename for packages in _PACKAGES)
    return filename.endswith(".pyx")


for _name in ("gemel", "gemel.access"):
    logging.getLogger(_name).addFilter(LogFilter())
