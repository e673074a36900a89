"""Compare messages with recorded ones; send the recorded requests to a server and compare its responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import UNSET

from gemel.channel import Transport
from gemel.errors import CallError, GemelError, PeerError, ProtocolError
from gemel.protocol.limits import Limits
from gemel.protocol.records import Call
from gemel.session import Session
from gemel.testing.raw_client import RawClient
from gemel.testing.recording_file import (
    LISTEN,
    RecordedCall,
    RecordedLine,
    RecordedSession,
    RecordedStep,
    ServerMessage,
    ServerRequest,
)

#: Stands for a missing member.
ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "missing", "__slots__": ()})()

#: Members whose values are random or encrypted. Only their presence is compared.
_OPAQUE = frozenset({"requestState", "nextCursor", "cursor"})
#: Values that mean the same as a missing member.
_EMPTY: tuple[Any, ...] = (None, {})
#: How many differences a message for people shows.
_SHOWN = 12


class MessageDifference(msgspec.Struct, frozen=True):
    """One place where a message differs from the recording.

    Attributes:
        what: The request, for example "tools/call 'forecast'".
        line: Its line in the recording; 0 if it is not in there.
        path: The path of the value, for example `result.content.0.text`.
        recorded: The recorded value; its repr is `missing` if there is none.
        now: The present value; its repr is `missing` if there is none.
    """

    what: str
    line: int
    path: str
    recorded: Any
    now: Any

    def __str__(self) -> str:
        about = f"{self.what} (line {self.line})" if self.line else self.what
        return f"{about}\n  {self.path}\n    recorded: {_format_value(self.recorded)}\n    now:      {_format_value(self.now)}"

    __repr__ = __str__


def format_differences(differences: Sequence[MessageDifference]) -> str:
    """Format differences for people; of many, the first ones."""
    lines = [str(one) for one in differences[:_SHOWN]]
    if len(differences) > _SHOWN:
        lines.append(f"… and {len(differences) - _SHOWN} more")
    return "\n".join(lines)


def _format_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 500 else f"{text[:499]}…"


def comparable(value: object, ignore: Sequence[str], path: str = "") -> Any:
    """Return a value without `_meta` and without the paths in `ignore` (`params.arguments.now`, `*.text`)."""
    if isinstance(value, Mapping):
        members = {}
        for name, item in value.items():
            inner = f"{path}.{name}" if path else name
            if name == "_meta" or any(fnmatchcase(inner, pattern) for pattern in ignore):
                continue
            if name == "inputRequests" and isinstance(item, Mapping):  # their keys are random
                item = list(item.values())
            members[name] = comparable(item, ignore, inner)
        return members
    if isinstance(value, list):
        return [comparable(item, ignore, f"{path}.{place}") for place, item in enumerate(value)]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def comparable_request(method: str, params: object, ignore: Sequence[str]) -> Any:
    """Return the params of a request as they are compared. Those of `initialize` don't count."""
    if method in ("initialize", "server/discover"):
        return {}
    request = comparable({"params": params if isinstance(params, Mapping) else {}}, ignore)["params"]
    if method in ("tools/call", "prompts/get") and request.get("arguments", ABSENT) in _EMPTY:
        request.pop("arguments", None)
    return request


def request_key(method: str, params: object, ignore: Sequence[str]) -> bytes:
    """Return a key that is the same for two equal requests."""
    return msgspec.json.encode([method, comparable_request(method, params, ignore)], order="deterministic")


def describe_request(method: str, params: object) -> str:
    """Describe a request: the method, and the name or URI."""
    given = params if isinstance(params, Mapping) else {}
    name = given.get("name") or given.get("uri")
    return f"{method} {name!r}" if isinstance(name, str) else method


def differences(recorded: object, now: object, *, path: str, opaque: bool = True) -> Iterator[tuple[str, Any, Any]]:
    """Yield path, recorded value and present value for each place where two values differ."""
    if isinstance(recorded, Mapping) and isinstance(now, Mapping):
        for name in [*recorded, *(name for name in now if name not in recorded)]:
            one, two = recorded.get(name, ABSENT), now.get(name, ABSENT)
            if not (opaque and name in _OPAQUE and one is not ABSENT and two is not ABSENT):
                yield from differences(one, two, path=f"{path}.{name}", opaque=opaque)
    elif isinstance(recorded, list) and isinstance(now, list):
        for place in range(max(len(recorded), len(now))):
            one = recorded[place] if place < len(recorded) else ABSENT
            two = now[place] if place < len(now) else ABSENT
            yield from differences(one, two, path=f"{path}.{place}", opaque=opaque)
    elif recorded is not now and (recorded != now or isinstance(recorded, bool) is not isinstance(now, bool)):
        yield path, recorded, now


def find_nearest(
    params_now: object, recorded: Iterable[tuple[Any, Any]]
) -> tuple[Any, list[tuple[str, Any, Any]]] | None:
    """Return, of pairs (item, params), the item whose params differ in the fewest places, and the places."""
    best: tuple[int, Any, list[tuple[str, Any, Any]]] | None = None
    for thing, params in recorded:
        mismatches = list(differences(params, params_now, path="params", opaque=False))
        weight = len(mismatches) + 100 * any(path in ("params.name", "params.uri") for path, _, _ in mismatches)
        if best is None or weight < best[0]:
            best = weight, thing, mismatches
    return None if best is None else best[1:]


#: Members that a server chooses anew each time, and that the client sends back.
_HANDLES = ("requestState", "nextCursor")
#: Seconds to wait for notifications after the last response.
_PATIENCE = 2.0
_PROGRESS = "notifications/progress"


class _ReplayedResult(msgspec.Struct, eq=False):
    """What came for one call: the outcome, and the params of progress notifications."""

    call: RecordedCall
    outcome: dict[str, Any] = {}
    progress: list[dict[str, Any]] = []


def _lasts(call: RecordedCall) -> bool:
    """Whether a call goes on until the client or the server leaves: a subscription, unless it was refused."""
    refused = call.answer is not None and call.ending == "answered" and "result" not in call.answer.message
    return call.method == LISTEN and not refused


class SessionComparison:
    """Sends the recorded messages of a client to a server, and compares.

    A message is sent when the responses that the client had received by then are here, so concurrent requests are concurrent
    again.
    """

    def __init__(
        self, session: RecordedSession, transport: Transport, *, ignore: Sequence[str], limits: Limits
    ) -> None:
        self._session = session
        self._ignore = ignore
        self._limits = limits
        self._transport = transport
        self._clients: dict[int, RawClient] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._results: dict[int, _ReplayedResult] = {}
        #: The recorded values of `_HANDLES`, and the present ones.
        self._handles: dict[str, Any] = {}
        self._found: list[MessageDifference] = []
        #: Notifications and requests of the server; the recorded requests that it did not send yet.
        self._from_server: list[tuple[str, Any]] = []
        self._requests = [
            step for call in session.calls for step in call.steps if isinstance(step, ServerRequest) and step.answer
        ]
        #: How many subscriptions the server has agreed to.
        self._agreed = 0
        self._came = asyncio.Event()

    async def run(self) -> list[MessageDifference]:
        """Send everything, and return the differences in the order of the recording. Raises ConnectFailed."""
        posts = {entry.channel for entry in self._session.entries if entry.open is not None and entry.kind == "post"}
        try:
            for entry in self._session.entries:
                for call in self._session.begins.get(entry.line, ()):
                    await self._begin(call, 0 if entry.channel in posts else entry.channel)
                for call in self._session.ends.get(entry.line, ()):
                    await self._end(call)
            for call in self._session.calls:
                await self._end(call)
            await self._await_notifications()
        finally:
            await self._leave()
        for call in self._session.calls:
            self._compare(call)
        self._compare_from_server()
        return sorted(self._found, key=lambda one: one.line)

    async def _leave(self) -> None:
        running = [task for task in self._tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for caller in self._clients.values():
            await caller.close()

    # ---------------------------------------------------------------- sending

    async def _begin(self, call: RecordedCall, channel: int) -> None:
        caller = self._clients.get(channel)
        if caller is None:
            caller = self._clients[channel] = RawClient(self._transport, self._serve_peer, self._limits)
            await caller.open()
        params = self._with_handles(call.entry.message.get("params", UNSET))
        if call.id is None:
            if call.method != "notifications/cancelled":  # sent when the task of the request is cancelled
                await self._notify(caller, call, params)
            return
        received = self._results[call.number] = _ReplayedResult(call)
        agreed = self._agreed
        task = self._tasks[call.number] = asyncio.get_running_loop().create_task(
            self._request(caller, received, params)
        )
        await asyncio.sleep(0)
        if _lasts(call):  # what changes before the server has agreed is told to nobody
            task.add_done_callback(lambda _: self._came.set())
            await self._wait_for(lambda: task.done() or self._agreed > agreed)

    async def _notify(self, caller: RawClient, call: RecordedCall, params: object) -> None:
        try:
            await caller.notify(call.method, params)
        except GemelError as exc:
            self._differ(call, "sent", "yes", str(exc))

    async def _request(self, caller: RawClient, received: _ReplayedResult, params: object) -> None:
        def progress(params: bytes) -> None:
            received.progress.append(msgspec.json.decode(params))

        call = received.call
        try:
            result = await caller.request(
                call.method, params, received, total=self._limits.call_idle, on_progress=progress
            )
            received.outcome = {"result": msgspec.json.decode(result)}
            self._remember_handles(call, received.outcome["result"])
        except PeerError as exc:
            received.outcome = {"error": msgspec.to_builtins(exc.error)}
        except CallError as exc:
            status = getattr(exc, "status", None)
            received.outcome = {"failed": f"HTTP {status}" if status else f"{type(exc).__name__}: {exc}"}

    async def _end(self, call: RecordedCall) -> None:
        """Wait for a call that had ended at this point; cancel it if the client had cancelled it."""
        task = self._tasks.get(call.number)
        if task is None or task.done():
            return
        if _lasts(call):
            return
        if call.ending in ("cancelled", "open", "cut"):
            task.cancel()
        await asyncio.wait([task])

    async def _await_notifications(self) -> None:
        """Wait for as many notifications and requests of the server as are recorded."""
        count = len(self._recorded_from_server())
        await self._wait_for(lambda: len(self._from_server) >= count)

    async def _wait_for(self, holds: Callable[[], bool]) -> None:
        """Wait until something holds that messages of the server change, for `_PATIENCE` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while not holds():
                    self._came.clear()
                    await self._came.wait()

    def _remember_handles(self, call: RecordedCall, result: object) -> None:
        """Remember which present values replace the recorded ones in later requests."""
        then = call.answer.message.get("result") if call.answer is not None else None
        if not isinstance(then, Mapping) or not isinstance(result, Mapping):
            return
        for name in _HANDLES:
            if isinstance(then.get(name), str) and name in result:
                self._handles[then[name]] = result[name]
        old, new = then.get("inputRequests"), result.get("inputRequests")
        if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() != new.keys():
            self._handles.update(zip(old, new, strict=False))

    def _with_handles(self, params: object) -> Any:
        """Return params with the present values of `_HANDLES`."""
        if not isinstance(params, Mapping):
            return params
        replaced = dict(params)
        for name in ("requestState", "cursor"):
            if name in replaced:
                replaced[name] = self._handles.get(replaced[name], replaced[name])
        if isinstance(replaced.get("inputResponses"), Mapping):
            replaced["inputResponses"] = {
                self._handles.get(key, key): it for key, it in replaced["inputResponses"].items()
            }
        return replaced

    # ---------------------------------------------------------------- requests and notifications of the server

    async def _serve_peer(self, session: Session, call: Call) -> Any:
        """Keep what the server sends; respond to a request as the client did in the recording."""
        params = msgspec.json.decode(call.params) if call.params else {}
        if call.method == "notifications/subscriptions/acknowledged":
            self._agreed += 1
            self._came.set()
        if call.method != "ping" and not self._is_ignored(call.method):
            self._from_server.append((call.method, params))
            self._came.set()
        if call.id is None or call.method == "ping":
            return {}
        fitting = [one for one in self._requests if one.entry.message["method"] == call.method]
        request = next((one for one in fitting if self._same(one, params)), next(iter(fitting), None))
        if request is None or request.answer is None:
            raise ProtocolError(f"The server did not send {call.method} in the recording")
        self._requests.remove(request)
        answer = request.answer.message
        if "error" in answer:
            error = answer["error"]
            raise ProtocolError(str(error.get("message")), error.get("data", UNSET), code=error.get("code"))
        return answer["result"]

    def _same(self, request: ServerRequest, params: object) -> bool:
        then = request.entry.params
        return not any(differences(comparable(then, self._ignore), comparable(params, self._ignore), path=""))

    # ---------------------------------------------------------------- comparing

    def _compare(self, call: RecordedCall) -> None:
        received = self._results.get(call.number)
        if received is None:
            return
        if _lasts(call) and not received.outcome:
            return self._compare_progress(call, received)
        if call.ending == "answered" and call.answer is not None:
            then = {name: call.answer.message[name] for name in ("result", "error") if name in call.answer.message}
            self._differences(call, then, received.outcome)
        elif call.ending == "failed" and call.answer is not None:
            status = call.answer.status
            then = {"failed": f"HTTP {status}" if status else call.answer.error}
            now = received.outcome.get("failed", "")
            self._differences(
                call, then, {"failed": now if status else now.partition(":")[0]} if now else received.outcome
            )
        elif call.ending == "cut" and "failed" not in received.outcome and received.outcome:
            self._differ(call, "answer", "the connection was closed", received.outcome)
        self._compare_progress(call, received)

    def _compare_progress(self, call: RecordedCall, received: _ReplayedResult) -> None:
        sent = [step.entry.message for step in call.steps if isinstance(step, ServerMessage)]
        then = [one.get("params", {}) for one in sent if one.get("method") == _PROGRESS]
        old, new = [[_without_token(params) for params in some] for some in (then, received.progress)]
        self._differences(call, {_PROGRESS: old}, {_PROGRESS: new})

    def _compare_from_server(self) -> None:
        """Compare notifications and requests of the server together: not every transport says which call they belong to."""
        now = [(method, comparable(params, self._ignore)) for method, params in self._from_server]
        received, recorded, unmatched = list(now), [], []
        for call, entry in self._recorded_from_server():
            method = str(entry.message["method"])
            sent = method, comparable(entry.params, self._ignore)
            recorded.append(sent)
            if sent in now:
                now.remove(sent)
            elif not (_is_hint(method) and sent in received):
                unmatched.append((call, entry, sent))
        now = [sent for sent in now if not (_is_hint(sent[0]) and sent in recorded)]
        for call, entry, (method, then) in unmatched:
            instead = next((one for one in now if one[0] == method), None)
            if instead is not None:
                now.remove(instead)
            what = describe_request(call.method, call.params) if call is not None else method
            mismatches = differences({method: then}, {method: instead[1]} if instead is not None else {}, path="sent")
            self._found += [MessageDifference(what, entry.line, path, old, new) for path, old, new in mismatches]
        self._found += [MessageDifference(method, 0, "sent", ABSENT, params) for method, params in now]

    def _recorded_from_server(self) -> list[tuple[RecordedCall | None, RecordedLine]]:
        """Return the recorded notifications (except progress) and requests of the server, with the call they belong to."""
        places: list[tuple[RecordedCall | None, Sequence[RecordedStep]]] = [(None, self._session.opening)]
        for call in self._session.calls:
            places += [(call, call.steps), (call, call.followers)]
        messages = [
            (call, step.entry)
            for call, steps in places
            for step in steps
            if isinstance(step, ServerMessage | ServerRequest) and step.entry.message is not UNSET
        ]
        sent = [(call, entry, str(entry.message["method"])) for call, entry in messages]
        return [
            (call, entry)
            for call, entry, method in sent
            if method not in (_PROGRESS, "ping") and not self._is_ignored(method)
        ]

    def _is_ignored(self, method: str) -> bool:
        return any(fnmatchcase(method, pattern) for pattern in self._ignore)

    def _differences(self, call: RecordedCall, then: object, now: object) -> None:
        old, new = comparable(then, self._ignore), comparable(now, self._ignore)
        for name in [*old, *(name for name in new if name not in old)]:
            for path, before, after in differences(old.get(name, ABSENT), new.get(name, ABSENT), path=name):
                self._differ(call, path, before, after)

    def _differ(self, call: RecordedCall, path: str, then: object, now: object) -> None:
        what = describe_request(call.method, call.params)
        self._found.append(MessageDifference(what, call.entry.line, path, then, now))


def _is_hint(method: str) -> bool:
    """Return whether a notification means the same once or several times: changes may be combined."""
    return method.endswith("/list_changed") or method == "notifications/resources/updated"


def _without_token(params: Any) -> Any:
    return {name: item for name, item in params.items() if name != "progressToken"}
