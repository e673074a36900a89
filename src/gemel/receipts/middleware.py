"""Receipts as middleware of servers and clients: what is noted of a call on its way, and when a call may not begin."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Literal, NoReturn

import msgspec
from msgspec import UNSET, Raw

from gemel.client.methods import ClientContext
from gemel.decisions import Decision, decisions
from gemel.errors import (
    CallError,
    DefinitionError,
    NotFinished,
    NotSent,
    Outcome,
    Overloaded,
    PeerError,
    ProtocolError,
    shorten,
)
from gemel.jsonrpc import ABSENT
from gemel.options import TEXT, Check, check_values, is_whole, one_of, or_none, whole
from gemel.receipts.canonical import canonical_json
from gemel.receipts.entries import EVENT, HashKey, Kind, timestamp
from gemel.receipts.writer import PendingLine, Settings, Sync, writer_of
from gemel.schema.base import Implementation
from gemel.server.context import Context, served_call
from gemel.server.elicitation.elicit import Unanswered
from gemel.telemetry import add_event, records_events
from gemel.values.encoding import encode_value

#: Characters of the arguments in a receipt, with `values=True`.
_VALUES = 2000
#: At most so many, so that a line stays far below the longest one that is read.
_MOST_VALUES = 50_000
#: Events of telemetry carry the hash of arguments up to this many bytes: it is made while the call waits.
_EVENT_BYTES = 1 << 16
_QUEUE_BYTES = 32 << 20
_STRICTNESS = ("allow", "ask", "deny")
_NO_ARGUMENTS = b"{}"


class _Called(msgspec.Struct):
    """The members of params that receipts have a use for."""

    name: Any = None
    arguments: Raw = Raw(_NO_ARGUMENTS)
    request_state: Any = msgspec.field(name="requestState", default=None)


class _CallResult(msgspec.Struct, rename="camel"):
    """The members of a result that receipts have a use for."""

    is_error: Any = False
    result_type: Any = "complete"
    request_state: Any = None
    task: Any = None
    task_id: Any = None
    content: Any = None


_called = msgspec.json.Decoder(_Called)
_call_result = msgspec.json.Decoder(_CallResult)

_OPTIONS = {
    "path": Check(lambda value: isinstance(value, str | os.PathLike), "write the path of a file"),
    "key": or_none(Check(lambda value: isinstance(value, str | bytes), "give a secret of 16 bytes or more")),
    "sync": one_of("later", "written", "disk"),
    "unwritable": one_of("refuse", "go on"),
    "server": or_none(TEXT),
    "values": Check(
        lambda value: isinstance(value, bool) or is_whole(value, 0, _MOST_VALUES),
        "use True, False, or a number up to 50,000",
    ),
    "max_bytes": whole(10_000),
    "keep": or_none(whole(0)),
    "queue": whole(1),
}


class Receipts:
    """Middleware that writes one line of JSON for each tool call that ended.

        server = Server("shop", middleware=[Receipts("receipts.jsonl")])

    It is middleware of servers, mounted servers, proxies, gateways, clients and client groups. Put it before policies, so that it
    sees what they decide. Each line has the hash of the line before, so that `gemel receipts verify` finds lines that were changed,
    removed or put in another order. A process writes a file of its own: `receipts.jsonl`, the next one `receipts-2.jsonl`.

    Args:
        path: The file. Its folder must exist.
        key: A secret of 16 bytes or more, with which hashes are HMAC-SHA-256. Without one they are SHA-256: whoever can write the
            file can compute them anew, and arguments with few possible values can be found by trying.
        sync: What the answer of a call waits for. "later": nothing; a process that is killed loses the receipts of its last
            moments. "written": the line was handed to the operating system, and survives the process. "disk": the line is on the
            disk, and survives a power failure.
        unwritable: What happens while the file can't be written, or is written too slowly. "refuse": calls are refused before
            they begin; one that has run already is answered with an error that says that its outcome is unknown, if its answer
            waits for the receipt. "go on": calls are served, with an error in the log; what does not fit into the queue is lost,
            and counted in the file.
        values: The characters of the arguments that a receipt contains, in canonical form: none by default, 2,000 with True,
            50,000 at most.
        server: The name of the server in the receipts. By default, on a server the name that clients see, and the prefixes of
            servers that are mounted in it; in a client group its name there, on another client the name that the server gives
            itself. Several Receipts of one file may have different names.
        max_bytes: The size at which a file is rotated: `receipts.jsonl` becomes `receipts.jsonl.1`.
        keep: How many rotated files each process keeps; the oldest ones are deleted. None keeps all.
        queue: How many receipts may wait to be written, with 32 MiB of arguments at most.

    Raises:
        DefinitionError: A value is not allowed, the folder does not exist, or the file is written with other options in this
            process.

    Example:
        >>> server = Server("shop", middleware=[Receipts("receipts.jsonl", key=os.environ["RECEIPTS_KEY"])])
    """

    #: Results pass as they are.
    leaves_results: Final = True

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        key: str | bytes | None = None,
        sync: Sync = "later",
        unwritable: Literal["refuse", "go on"] = "refuse",
        values: bool | int = False,
        server: str | None = None,
        max_bytes: int = 64 << 20,
        keep: int | None = 20,
        queue: int = 10_000,
    ) -> None:
        check_values(locals(), _OPTIONS)
        file = Path(path)
        if not file.parent.is_dir():
            raise DefinitionError(f"path={os.fspath(path)!r}: the folder {file.parent} does not exist")
        self._writer = writer_of(file, key, Settings(sync, max_bytes, keep, queue, _QUEUE_BYTES))
        self._waits = sync != "later"
        self._refuses = unwritable == "refuse"
        self._server = server
        self._values = _VALUES if values is True else int(values)

    def placed_in(self, owner: Any, name: str | None = None, /) -> Receipts:
        """Return what runs around one server or client, which calls this.

        Args:
            owner: The server or client.
            name: The name of the server in a client group.

        Returns:
            The same, in a client group with the name of the server.
        """
        if name is None or self._server is not None:
            return self
        named = copy(self)
        named._server = name
        return named

    def __call__(
        self,
        ctx: Context[Any] | ClientContext,
        call_next: Callable[[Any], Awaitable[Any]],
    ) -> Awaitable[Any]:
        """Serve or send the call, and write its receipt.

        Args:
            ctx: The context of the call.
            call_next: The rest of the chain.

        Returns:
            The result of the call.

        Raises:
            Overloaded: On a server: no receipt can be written now, so the call was not served.
            NotSent: On a client: no receipt can be written now, so the call was not sent.
        """
        if ctx.method != "tools/call":
            return call_next(ctx)
        if isinstance(ctx, ClientContext):
            return call_next(ctx) if ctx.inbound or ctx.notification else self._sent(ctx, call_next)
        return call_next(ctx) if ctx.request_id is None else self._served(ctx, call_next)

    async def _served(self, ctx: Context[Any], call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        def refuse(reason: str) -> NoReturn:
            raise Overloaded("The server can't write receipts now", detail=reason)

        def lost(reason: str) -> NoReturn:
            raise NotFinished("the receipt of the call can't be written")

        params = _NO_ARGUMENTS if ctx.params is ABSENT else ctx.params
        note = _Note("server", _name(ctx.client_info), self._server or _server_of(ctx), ctx.principal, params)
        note.client_id = None if ctx.caller is None else ctx.caller.client
        note.depth = ctx.depth
        return await self._around(note, ctx, call_next, refuse, lost)

    async def _sent(self, ctx: ClientContext, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        def refuse(reason: str) -> NoReturn:
            raise NotSent(f"tools/call was not sent, because its receipt could not be written: {reason}")

        def lost(reason: str) -> NoReturn:
            raise CallError(f"tools/call was sent, and its receipt can't be written: {reason}")

        note = _Note("client", None, self._server or _server_at(ctx), None, _params_of(ctx))
        return await self._around(note, ctx, call_next, refuse, lost)

    async def _around(
        self,
        note: _Note,
        ctx: Any,
        call_next: Callable[[Any], Awaitable[Any]],
        refuse: Callable[[str], NoReturn],
        lost: Callable[[str], NoReturn],
    ) -> Any:
        writer = self._writer
        obstacle = writer.obstacle()
        if obstacle is not None and self._refuses:
            refuse(obstacle)
        waits, is_written = self._waits and obstacle is None, True
        error: BaseException | None = None
        outer = decisions.get()
        token = decisions.set(note.decisions)
        start = time.perf_counter()
        try:
            result = await call_next(ctx)
            note.answered(result)
        except Exception as exc:
            error = exc
            note.failed(exc)
            raise
        except BaseException as exc:  # cancelled, or abandoned
            error = exc
            note.outcome, waits = "cancelled", False
            raise
        finally:
            if isinstance(ctx, Context):
                _note_end(note, ctx, error)
            note.ms = (time.perf_counter() - start) * 1000
            decisions.reset(token)
            if outer is not None and not note.depth:  # of a mounted server, for the receipt of the one around it
                outer.extend(note.decisions)
            written = self._write(note, waits)
            if written is not None:
                is_written = await written
        if not is_written and self._refuses:
            lost(writer.failure or "")
        return result

    def _write(self, note: _Note, waits: bool) -> asyncio.Future[bool] | None:
        """Have the line of a call written. Returns what is to be waited for, if anything is.

        A round of a call that a handler made has no line: its rounds are those of the handler.
        """
        if note.kind == "asked" and note.depth:
            return None
        writer = self._writer
        note.at = time.time()
        if records_events():
            if note.kind == "call" and len(note.params) <= _EVENT_BYTES:
                note.digest = writer.key.arguments(note.arguments)
            add_event(EVENT, note.event())
        if writer.is_full and not self._refuses:
            writer.drop()
            return None
        entry = PendingLine(partial(note.members, writer.key, self._values), len(note.params))
        if waits:
            entry.waiter = asyncio.get_running_loop().create_future()
        writer.add(entry)
        return entry.waiter

    def close(self) -> None:
        """Write what waits, and close the file. That also happens at the end of the event loop; the next call opens it again."""
        self._writer.close()


def _note_end(note: _Note, ctx: Context[Any], error: BaseException | None) -> None:
    """Note which task the call belongs to, and whether it is made again: in the next round, or by another run of the task."""
    served = served_call(ctx)
    elicitation = (served.root or served).elicitation
    if elicitation is None:
        return
    note.task = note.task or elicitation.task_id
    if elicitation.is_repeated(error):
        note.kind = "moved"
    elif elicitation.has_ended_round and note.outcome == "cancelled":
        note.kind = "asked"


class _Note:
    """What is noted of one call."""

    __slots__ = (
        "_called",
        "at",
        "client",
        "client_id",
        "decisions",
        "depth",
        "digest",
        "error",
        "kind",
        "ms",
        "outcome",
        "params",
        "principal",
        "server",
        "side",
        "state",
        "task",
    )

    def __init__(
        self,
        side: Literal["server", "client"],
        client: str | None,
        server: str | None,
        principal: str | None,
        params: Raw | bytes,
    ) -> None:
        self.side = side
        self.client = client
        self.server = server
        self.principal = principal
        self.client_id: str | None = None
        self.depth = 0
        self.params = params
        self.kind: Kind = "call"
        self.outcome = "ok"
        self.error: str | None = None
        self.state: str | None = None
        self.task: str | None = None
        self.digest: str | None = None
        self.decisions: list[Decision] = []
        self.ms = self.at = 0.0
        self._called: _Called | None = None

    def answered(self, result: Any) -> None:
        """Note a result."""
        if isinstance(result, Raw):
            try:
                result = _call_result.decode(result)
            except (msgspec.MsgspecError, RecursionError):
                return
        kind = _member(result, "result_type", "resultType")
        if kind == "input_required":
            state = _member(result, "request_state", "requestState")
            self.kind, self.state = "asked", state if isinstance(state, str) else None
        elif kind not in (None, "complete") or (
            _member(result, "task", "task") is not None and _member(result, "content", "content") is None
        ):
            self.kind = "task"
            task = _member(result, "task_id", "taskId") or _member(_member(result, "task", "task"), "task_id", "taskId")
            self.task = task if isinstance(task, str) else None
        elif isinstance(result, Unanswered):
            self.kind = "asked"
        elif _member(result, "is_error", "isError") is True:
            self.outcome = "tool error"

    def failed(self, exc: Exception) -> None:
        """Note an exception."""
        error = exc.error if isinstance(exc, ProtocolError | PeerError) else None
        data = None if error is None else error.data
        is_unknown = (
            (isinstance(exc, CallError) and exc.outcome is Outcome.UNKNOWN)
            or (error is not None and error.code == NotFinished.code)
            or (isinstance(data, Mapping) and data.get("outcome") == Outcome.UNKNOWN.value)
        )
        self.outcome = "unknown" if is_unknown else "error"
        self.error = type(exc).__name__ if error is None else str(error.code)

    @property
    def called(self) -> _Called:
        """The tool and the arguments; what can't be read counts as the arguments."""
        if self._called is None:
            try:
                self._called = _called.decode(self.params)
            except (msgspec.MsgspecError, RecursionError):
                self._called = _Called(arguments=Raw(bytes(self.params)))
        return self._called

    @property
    def arguments(self) -> bytes:
        """The arguments as JSON text."""
        text = bytes(self.called.arguments)
        return _NO_ARGUMENTS if text == b"null" else text

    @property
    def decision(self) -> Decision | None:
        """The decision that counts: of several policies the strictest one, and of these the last one."""
        return max(reversed(self.decisions), key=lambda one: _STRICTNESS.index(one.effect), default=None)

    def _about(self, called: _Called) -> dict[str, Any]:
        """The members that lines and events have."""
        decision, outcome = self.decision, self.outcome
        if decision is not None and decision.effect == "ask" and decision.approved_by is None:
            outcome = "declined" if outcome in ("tool error", "error") else outcome
        about: dict[str, Any] = {
            "side": self.side,
            "server": _short(self.server),
            "tool": _short(called.name) if isinstance(called.name, str) else None,
            "principal": _short(self.principal),
            "client": _short(self.client),
        }
        if self.client_id is not None:
            about["client_id"] = _short(self.client_id)
        if self.depth:
            about["depth"] = self.depth
        if self.task is not None:
            about["task"] = _hash_of(self.task)
        if self.kind != "call":
            return about
        about |= {
            "effect": None if decision is None else decision.effect,
            "rule": None if decision is None else _short(decision.rule),
            "approved_by": None if decision is None else _short(decision.approved_by),
            "outcome": outcome,
        }
        if self.error is not None:
            about["error"] = self.error
        return about | {"ms": round(self.ms, 3)}

    def event(self) -> dict[str, Any]:
        """The attributes of an event of telemetry."""
        about = {"kind": self.kind, **self._about(self.called), "arguments": self.digest}
        return {f"{EVENT}.{name}": value for name, value in about.items() if value is not None}

    def members(self, key: HashKey, values: int) -> dict[str, Any]:
        """The members of the line, with so many characters of the arguments."""
        called = self.called
        members = {"at": timestamp(self.at), "kind": self.kind, **self._about(called)}
        if self.kind == "call":
            text = self.arguments
            members["arguments"] = self.digest or key.arguments(text)
            if values:
                try:
                    shown = canonical_json(text)
                except (ValueError, RecursionError):
                    shown = text
                members["values"] = shorten(shown[: values * 4 + 4].decode("utf-8", "replace"), values)
        if isinstance(called.request_state, str):
            members["after"] = _hash_of(called.request_state)
        if self.state is not None:
            members["state"] = _hash_of(self.state)
        return members


def _hash_of(secret: str) -> str:
    """What connects lines: a hash of a request state or of the id of a task, with which the result could be fetched."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _member(result: Any, attribute: str, name: str) -> Any:
    value = result.get(name) if isinstance(result, Mapping) else getattr(result, attribute, None)
    return None if value is UNSET else value


def _short(text: str | None) -> str | None:
    return None if text is None else shorten(text)


def _name(of: Implementation | None) -> str | None:
    """Name and version, as the peer says."""
    return None if of is None else " ".join(filter(None, (shorten(of.name, 100), shorten(of.version, 100))))


def _server_of(ctx: Context[Any]) -> str | None:
    """The name of the server that the client sees, and the prefixes of mounted servers up to this one."""
    call = served_call(ctx)
    description = call.session.connection.description
    names = [] if description is None else [description.info.name]
    names += [text for layer in call.layers if isinstance(text := getattr(layer, "text", None), str)]
    return "/".join(names) or None


def _server_at(ctx: ClientContext) -> str | None:
    """The server of a client, as it describes itself; None while the client is not connected."""
    try:
        return _name(ctx.client.server_info)
    except NotSent:
        return None


def _params_of(ctx: ClientContext) -> bytes:
    """The params of a call as JSON text, as they are now; what can't be written is not sent either."""
    try:
        return encode_value({"name": ctx.params.get("name"), "arguments": ctx.params.get("arguments")})
    except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
        return msgspec.json.encode({"name": str(ctx.params.get("name"))})
