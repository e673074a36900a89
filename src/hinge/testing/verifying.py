"""A recording that plays the client: it sends what the client sent then, and compares what the server says now.

A message goes out when the answers that the client had seen by then are there; so requests that ran together do so again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import UNSET

from hinge.channel import Transport
from hinge.errors import CallError, HingeError, PeerError, ProtocolError
from hinge.protocol.calls import Call
from hinge.protocol.limits import Limits
from hinge.session import Session
from hinge.testing.caller import Caller
from hinge.testing.comparing import ABSENT, Difference, differences, plain, subject
from hinge.testing.script import LISTEN, Exchange, Question, Say, Script, Step
from hinge.testing.tape import Entry

#: What every pass through a server draws anew, and hands back and forth.
_HANDLES = ("requestState", "nextCursor")
#: What is said unasked has this long to come after the last answer, in seconds.
_PATIENCE = 2.0
_PROGRESS = "notifications/progress"


class _Heard(msgspec.Struct, eq=False):
    """What came for one exchange: the outcome, and the params of progress notifications."""

    exchange: Exchange
    outcome: dict[str, Any] = {}
    progress: list[dict[str, Any]] = []


class Verifier:
    """One pass through a recording with one server."""

    def __init__(
        self, script: Script, target: Any, transport: Transport, *, ignore: Sequence[str], limits: Limits
    ) -> None:
        self._script = script
        self._ignore = ignore
        self._limits = limits
        self._target, self._transport = target, transport
        self._callers: dict[int, Caller] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._heard: dict[int, _Heard] = {}
        #: What the server drew then, and what it drew now.
        self._handles: dict[str, Any] = {}
        self._found: list[Difference] = []
        #: What the server said besides answers and progress, and the questions that it has not asked yet.
        self._unasked: list[tuple[str, Any]] = []
        self._questions = [
            step
            for exchange in script.exchanges
            for step in exchange.steps
            if isinstance(step, Question) and step.answer
        ]
        self._came = asyncio.Event()

    async def run(self) -> list[Difference]:
        """Say all that the client said; every difference, in the order of the recording. Raises ConnectFailed."""
        posts = {entry.channel for entry in self._script.entries if entry.kind == "open" and entry.words == "post"}
        try:
            for entry in self._script.entries:
                for exchange in self._script.begins.get(entry.line, ()):
                    await self._begin(exchange, 0 if entry.channel in posts else entry.channel)
                for exchange in self._script.ends.get(entry.line, ()):
                    await self._end(exchange)
            for exchange in self._script.exchanges:
                await self._end(exchange)
            await self._hear_out()
        finally:
            await self._leave()
        for exchange in self._script.exchanges:
            self._compare(exchange)
        self._compare_unasked()
        return sorted(self._found, key=lambda one: one.line)

    async def _leave(self) -> None:
        running = [task for task in self._tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for caller in self._callers.values():
            await caller.close()

    # ---------------------------------------------------------------- saying

    async def _begin(self, exchange: Exchange, channel: int) -> None:
        caller = self._callers.get(channel)
        if caller is None:
            caller = self._callers[channel] = Caller(self._target, self._transport, self._take, self._limits)
            await caller.open()
        params = self._current(exchange.entry.message.get("params", UNSET))
        if exchange.id is None:
            if exchange.method != "notifications/cancelled":  # called off by whoever waits for the answer
                await self._tell(caller, exchange, params)
            return
        heard = self._heard[exchange.number] = _Heard(exchange)
        self._tasks[exchange.number] = asyncio.get_running_loop().create_task(self._ask(caller, heard, params))
        await asyncio.sleep(0)

    async def _tell(self, caller: Caller, exchange: Exchange, params: Any) -> None:
        try:
            await caller.tell(exchange.method, params)
        except HingeError as exc:
            self._differ(exchange, "sent", "yes", str(exc))

    async def _ask(self, caller: Caller, heard: _Heard, params: Any) -> None:
        def progress(said: bytes) -> None:
            heard.progress.append(msgspec.json.decode(said))

        exchange = heard.exchange
        try:
            result = await caller.ask(
                exchange.method, params, heard, total=self._limits.call_idle, on_progress=progress
            )
            heard.outcome = {"result": msgspec.json.decode(result)}
            self._learn(exchange, heard.outcome["result"])
        except PeerError as exc:
            heard.outcome = {"error": msgspec.to_builtins(exc.error)}
        except CallError as exc:
            status = getattr(exc, "status", None)
            heard.outcome = {"failed": f"HTTP {status}" if status else f"{type(exc).__name__}: {exc}"}

    async def _end(self, exchange: Exchange) -> None:
        """Wait for what the client had seen by now; call off what it had called off."""
        task = self._tasks.get(exchange.number)
        if task is None or task.done():
            return
        if exchange.method == LISTEN and exchange.ending != "answered":
            return  # it listens to the end
        if exchange.ending in ("cancelled", "open", "cut"):
            task.cancel()
        await asyncio.wait([task])

    async def _hear_out(self) -> None:
        """What is said unasked comes when it comes."""
        wanted = len(self._recorded_unasked())
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                while len(self._unasked) < wanted:
                    self._came.clear()
                    await self._came.wait()

    def _learn(self, exchange: Exchange, result: Any) -> None:
        """What the server drew then and what it drew now mean the same from here on."""
        then = exchange.answer.message.get("result") if exchange.answer is not None else None
        if not isinstance(then, Mapping) or not isinstance(result, Mapping):
            return
        for name in _HANDLES:
            if isinstance(then.get(name), str) and name in result:
                self._handles[then[name]] = result[name]
        old, new = then.get("inputRequests"), result.get("inputRequests")
        if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() != new.keys():
            self._handles.update(zip(old, new, strict=False))

    def _current(self, params: Any) -> Any:
        """The params with the handles of now."""
        if not isinstance(params, Mapping):
            return params
        found = dict(params)
        for name in ("requestState", "cursor"):
            if name in found:
                found[name] = self._handles.get(found[name], found[name])
        if isinstance(found.get("inputResponses"), Mapping):
            found["inputResponses"] = {self._handles.get(key, key): it for key, it in found["inputResponses"].items()}
        return found

    # ---------------------------------------------------------------- hearing

    async def _take(self, session: Session, call: Call) -> Any:
        """A notification is kept; a question is kept, and answered as it was then."""
        params = msgspec.json.decode(call.params) if call.params else {}
        if call.method != "ping" and not self._is_ignored(call.method):
            self._unasked.append((call.method, params))
            self._came.set()
        if call.id is None or call.method == "ping":
            return {}
        fitting = [one for one in self._questions if one.entry.message["method"] == call.method]
        question = next((one for one in fitting if self._same(one, params)), next(iter(fitting), None))
        if question is None or question.answer is None:
            raise ProtocolError(f"{call.method} was not asked in the recording")
        self._questions.remove(question)
        answer = question.answer.message
        if "error" in answer:
            error = answer["error"]
            raise ProtocolError(str(error.get("message")), error.get("data", UNSET), code=error.get("code"))
        return answer["result"]

    def _same(self, question: Question, params: Any) -> bool:
        then = question.entry.message.get("params", {})
        return not any(differences(plain(then, self._ignore), plain(params, self._ignore), path=""))

    # ---------------------------------------------------------------- comparing

    def _compare(self, exchange: Exchange) -> None:
        heard = self._heard.get(exchange.number)
        if heard is None:
            return
        if exchange.ending == "answered" and exchange.answer is not None:
            then = {
                name: exchange.answer.message[name] for name in ("result", "error") if name in exchange.answer.message
            }
            self._differences(exchange, then, heard.outcome)
        elif exchange.ending == "failed" and exchange.answer is not None:
            status = exchange.answer.status
            then = {"failed": f"HTTP {status}" if status else exchange.answer.words}
            now = heard.outcome.get("failed", "")
            self._differences(
                exchange, then, {"failed": now if status else now.partition(":")[0]} if now else heard.outcome
            )
        elif exchange.ending == "cut" and "failed" not in heard.outcome and heard.outcome:
            self._differ(exchange, "answer", "the connection ended", heard.outcome)
        self._compare_progress(exchange, heard)

    def _compare_progress(self, exchange: Exchange, heard: _Heard) -> None:
        said = [step.entry.message for step in exchange.steps if isinstance(step, Say)]
        then = [one.get("params", {}) for one in said if one.get("method") == _PROGRESS]
        old, new = [[_without_token(params) for params in some] for some in (then, heard.progress)]
        self._differences(exchange, {_PROGRESS: old}, {_PROGRESS: new})

    def _compare_unasked(self) -> None:
        """Which call a notification or a question belongs to, not every transport says: so they are compared together."""
        now = [(method, plain(params, self._ignore)) for method, params in self._unasked]
        heard, recorded, left = list(now), [], []
        for exchange, entry in self._recorded_unasked():
            method = str(entry.message["method"])
            said = method, plain(entry.message.get("params", {}), self._ignore)
            recorded.append(said)
            if said in now:
                now.remove(said)
            elif not (_is_hint(method) and said in heard):
                left.append((exchange, entry, said))
        now = [said for said in now if not (_is_hint(said[0]) and said in recorded)]
        for exchange, entry, (method, then) in left:
            instead = next((one for one in now if one[0] == method), None)
            if instead is not None:
                now.remove(instead)
            what = subject(exchange.method, exchange.params) if exchange is not None else method
            found = differences({method: then}, {method: instead[1]} if instead is not None else {}, path="said")
            self._found += [Difference(what, entry.line, path, old, new) for path, old, new in found]
        self._found += [Difference(method, 0, "said", ABSENT, params) for method, params in now]

    def _recorded_unasked(self) -> list[tuple[Exchange | None, Entry]]:
        """What the server said besides answers and progress, and to which exchange it was counted."""
        places: list[tuple[Exchange | None, Sequence[Step]]] = [(None, self._script.opening)]
        for exchange in self._script.exchanges:
            places += [(exchange, exchange.steps), (exchange, exchange.followers)]
        found = [
            (exchange, step.entry)
            for exchange, steps in places
            for step in steps
            if isinstance(step, Say | Question) and step.entry.kind == "message"
        ]
        said = [(exchange, entry, str(entry.message["method"])) for exchange, entry in found]
        return [
            (exchange, entry)
            for exchange, entry, method in said
            if method not in (_PROGRESS, "ping") and not self._is_ignored(method)
        ]

    def _is_ignored(self, method: str) -> bool:
        return any(fnmatchcase(method, pattern) for pattern in self._ignore)

    def _differences(self, exchange: Exchange, then: Any, now: Any) -> None:
        old, new = plain(then, self._ignore), plain(now, self._ignore)
        for name in [*old, *(name for name in new if name not in old)]:
            for path, before, after in differences(old.get(name, ABSENT), new.get(name, ABSENT), path=name):
                self._differ(exchange, path, before, after)

    def _differ(self, exchange: Exchange, path: str, then: Any, now: Any) -> None:
        what = subject(exchange.method, exchange.params)
        self._found.append(Difference(what, exchange.entry.line, path, then, now))


def _is_hint(method: str) -> bool:
    """Whether it says the same said once or often: a server may tell of several changes at once."""
    return method.endswith("/list_changed") or method == "notifications/resources/updated"


def _without_token(params: Any) -> Any:
    return {name: item for name, item in params.items() if name != "progressToken"}
