"""The inspector: connections in both eras, calls, and the commands that change them. All effects are events of the journal."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from gemel.channel import ChannelKind
from gemel.contracts.contract import Contract
from gemel.dev.commands import (
    Answer,
    AsClient,
    Cancel,
    Clear,
    Command,
    Connect,
    Copy,
    Disconnect,
    Listen,
    LogLevel,
    Logout,
    MakeCall,
    Refresh,
    Restart,
    ShowApp,
    StartLogin,
    Unlisten,
)
from gemel.dev.connection import EraConnection
from gemel.dev.journal import EventJournal
from gemel.dev.metrics import Measures
from gemel.dev.questions import Questions
from gemel.dev.target import DevTarget
from gemel.dev.wire import SENT, Sent
from gemel.errors import CallError, GemelError, InvalidResponse, PeerError
from gemel.protocol.eras.base import EraName, EraOption
from gemel.schema.notifications import ProgressParams

if TYPE_CHECKING:
    from gemel.dev.apps import Frames

logger = logging.getLogger("gemel")

ERAS: tuple[EraName, ...] = ("2025", "2026")
#: Calls that may be open at once.
MAX_CALLS = 100
#: Bytes of a result that the event of its call contains.
MAX_RESULT = 256 * 1024
#: Seconds for a page of a server to arrive.
APP_WAIT = 30.0
#: Calls that can be copied.
MAX_MADE = 1000


class _Call:
    """A call that is open."""

    def __init__(self, call: str, era: EraName) -> None:
        self.id = call
        self.era: EraName = era
        self.sent = Sent(call)
        self.start = time.perf_counter()
        self.began = round(time.time() * 1000, 3)
        self.task: asyncio.Task[None] | None = None
        self.is_cancelled = False
        #: All that was shown of it.
        self.shown: dict[str, Any] = {}
        #: Whether its connection was closed.
        self.is_lost = False


class _Made(msgspec.Struct):
    """A call that was made, to be copied."""

    era: EraName
    method: str
    params: dict[str, Any]
    sent: Sent
    result: dict[str, Any] | None = None


class Inspector:
    """One server, looked at in both eras.

    Args:
        target: The server.
        journal: Where everything is shown.
    """

    def __init__(self, target: DevTarget, journal: EventJournal) -> None:
        self.target = target
        self.journal = journal
        self.questions = Questions(journal)
        self.questions.on_change = self._questioned
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = {era: EraConnection(era, target, journal, self.questions, self._spawn) for era in ERAS}
        for connection in self.connections.values():
            connection.on_listed = self._listed
            connection.on_close = self._closing
            connection.on_state = self._state_changed
        self._calls: dict[str, _Call] = {}
        #: The latest calls, open or not.
        self._made: dict[str, _Made] = {}
        self._count = 0
        #: The calls of the traces. A call tells its trace to a program that may send spans: the first span comes after it.
        self._traces: dict[str, str] = {}
        self._measures = Measures()
        self._logging_in: asyncio.Task[None] | None = None
        #: Where pages of the server are shown; None if nowhere.
        self.frames: Frames | None = None
        #: Called with the reason when there is no connection in any era, once for each reason.
        self.on_failure: Callable[[str], None] = lambda reason: None
        #: Called when there is one again.
        self.on_recovery: Callable[[], None] = lambda: None
        self._failure: str | None = None
        #: What the server offered last, and whether it was started again since then.
        self._contract: Contract | None = None
        self._edited = False

    def start(self, era: EraOption) -> None:
        """Connect in one era, or in both."""
        for name in ERAS if era == "auto" else (era,):
            self._spawn(self.connections[name].connect())
        self._spawn(self._measure())
        if self.target.changes is not None:
            self._spawn(self._watch(self.target.changes()))

    async def close(self) -> None:
        """End all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await asyncio.gather(*(connection.disconnect() for connection in self.connections.values()))
        self.journal.close()

    def state(self) -> dict[str, Any]:
        """Return what a page needs to start."""
        return {
            "target": self.target.name,
            "eras": {era: connection.described for era, connection in self.connections.items()},
            "first": self.journal.first,
            "next": self.journal.next,
            "apps": None if self.frames is None else self.frames.origin,
        }

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("gemel dev: a task failed", exc_info=error)

    # ---------------------------------------------------------------- commands

    async def run(self, command: Command) -> dict[str, Any]:
        """Run a command.

        Args:
            command: The command.

        Returns:
            Members of the answer.

        Raises:
            ValueError: It can't be done now; the text says why.
        """
        try:
            return await self._run(command)
        except GemelError as exc:
            raise ValueError(str(exc)) from exc

    async def _run(self, command: Command) -> dict[str, Any]:
        match command:
            case Connect(era=era):
                self._spawn(self.connections[era].connect())
            case Disconnect(era=era):
                self._spawn(self.connections[era].disconnect())
            case Restart():
                self._spawn(self.restart("asked for"))
            case AsClient(era=only, without=without):
                for era in ERAS if only is None else (only,):
                    connection = self.connections[era]
                    connection.without = without
                    if connection.state != "off" or only is not None:
                        self._spawn(connection.connect())
            case Refresh(era=era):
                connection = self.connections[era]
                _ = connection.ready
                connection.refresh()
            case MakeCall():
                return self._call(command)
            case Cancel(call=name):
                call = self._calls.get(name)
                if call is None or call.task is None:
                    raise ValueError(f"There is no open call {name!r}")
                call.is_cancelled = True
                call.task.cancel()
            case Answer():
                self.questions.answer(command)
            case Listen(era=era, changes=changes, uris=uris):
                await self.connections[era].listen(changes, uris)
            case Unlisten(era=era):
                await self.connections[era].unlisten()
            case StartLogin(era=era) | Logout(era=era):
                if self.target.authorize is None:
                    raise ValueError("Logins are for a server with a URL, and without credentials in its headers")
                if self._logging_in is not None and not self._logging_in.done():
                    self._logging_in.cancel()
                self._logging_in = self._spawn(self._log(era, log_in=isinstance(command, StartLogin)))
            case ShowApp(era=era, uri=uri):
                return {"frame": await self._show_app(era, uri)}
            case Copy():
                return {"text": self._copy(command)}
            case LogLevel(era=era, level=level):
                connection = self.connections[era]
                client = connection.ready
                connection.log_level = level
                await client.set_log_level(level)
            case Clear():
                self.journal.clear()
        return {}

    async def restart(self, reason: str, files: list[str] | None = None) -> None:
        """Connect again as before, which starts a program again."""
        connected = [connection for connection in self.connections.values() if connection.state != "off"]
        self._edited = True
        await asyncio.gather(*(connection.connect() for connection in connected))
        fields: dict[str, Any] = {"reason": reason}
        if files is not None:
            fields["files"] = files
        errors = [connection.error for connection in connected if connection.error is not None]
        if errors:
            fields["error"] = errors[0]
        self.journal.add("restarted", fields)

    def _state_changed(self) -> None:
        """Tell why there is no connection, once no era is being tried any more, and when there is one again."""
        states = {connection.state for connection in self.connections.values()}
        if "ready" in states:
            if self._failure is not None:
                self._failure = None
                self.on_recovery()
        elif "connecting" not in states:
            reason = next((each.error for each in self.connections.values() if each.error is not None), None)
            if reason is not None and reason != self._failure:
                self._failure = reason
                self.on_failure(reason)

    async def _watch(self, changes: AsyncIterator[list[str]]) -> None:
        """Restart the program whenever its files change."""
        try:
            async for files in changes:
                self._spawn(self.restart("files changed", files))  # gives up an attempt that is under way
        except GemelError as exc:
            self.journal.add("stderr", {"text": f"gemel dev: {exc}"})

    async def _listed(self, connection: EraConnection) -> None:
        """Judge what a connection offers."""
        client = connection.client
        if client is None:
            return
        from gemel.dev.contract_changes import compare_contracts, contract_of, find_problems

        try:
            findings = await asyncio.to_thread(find_problems, client, connection.listed)
        except RecursionError:
            findings = []
        self.journal.add("findings", {"era": connection.era, "items": findings}, key=("findings", connection.era))
        newest = self.connections[ERAS[-1]]
        if connection is not newest:  # one era is enough for the contract; the newest one says most
            await newest.settled()
            if newest.state == "ready":
                return
        try:
            contract = await asyncio.to_thread(contract_of, client, connection.listed)
        except (InvalidResponse, RecursionError) as exc:
            summary = str(exc) or "The definitions are nested too deep"
            self.journal.add("contract", {"differences": [], "summary": summary}, key="contract")
            return
        before = self._contract
        self._contract = contract
        is_first = before is None and self.target.lock is not None and self.target.lock.exists()
        if self._edited or is_first:
            self._edited = False
            fields = await asyncio.to_thread(compare_contracts, before, contract, self.target.lock)
            self.journal.add("contract", fields, key="contract")

    async def _log(self, era: EraName, *, log_in: bool) -> None:
        """Log in or out, and connect again."""
        from gemel.dev import login

        connection = self.connections[era]

        def show(step: Mapping[str, Any]) -> None:
            self.journal.add("login", {"era": era, **step})

        url = connection.find_url()
        if url is None:
            show({"step": "There is no URL to log in to", "state": "failed"})
            return
        if log_in:
            if not await login.log_in(self.target, url, show):
                return
        else:
            await login.log_out(self.target, url, show)
        await asyncio.gather(*(each.connect() for each in self.connections.values() if each.state != "off"))

    async def _show_app(self, era: EraName, uri: str) -> str:
        from gemel.dev.apps import page_of

        if self.frames is None:
            raise ValueError("There is no origin for pages of servers")
        client = self.connections[era].ready
        result = await client.request("resources/read", {"uri": uri}, cache="bypass", idle=APP_WAIT, total=APP_WAIT)
        return self.frames.add(*page_of(result))

    async def _measure(self) -> None:
        """Show figures once a second while they change."""
        while True:
            await asyncio.sleep(1.0)
            pids = {pid for connection in self.connections.values() if (pid := connection.pid) is not None}
            figures = self._measures.take(pids)
            if figures is not None:
                self.journal.add("measures", figures, key="measures")

    # ---------------------------------------------------------------- calls

    def _call(self, command: MakeCall) -> dict[str, Any]:
        if command.both:
            eras = ERAS
        elif command.era is not None:
            eras = (command.era,)
        else:
            raise ValueError('Say in which era: "era", or "both": true')
        if len(self._calls) + len(eras) > MAX_CALLS:
            raise ValueError(f"{MAX_CALLS} calls are open: wait for one, or cancel one")
        for era in eras:
            _ = self.connections[era].ready
        names = [self._start_call(era, command) for era in eras]
        return {"calls": names} if command.both else {"call": names[0]}

    def _start_call(self, era: EraName, command: MakeCall) -> str:
        self._count += 1
        call = _Call(f"c{self._count}", era)
        self._calls[call.id] = call
        fields: dict[str, Any] = {"method": command.method, "state": "running"}
        if command.id is not None:
            fields["id"] = command.id
        params = msgspec.json.encode(command.params)
        if len(params) <= MAX_RESULT:
            fields["params"] = msgspec.Raw(params)
        self._show(call, fields)
        self._made[call.id] = _Made(era, command.method, command.params, call.sent)
        if len(self._made) > MAX_MADE:
            del self._made[next(iter(self._made))]
        call.task = self._spawn(self._run_call(call, command))
        return call.id

    async def _run_call(self, call: _Call, command: MakeCall) -> None:
        connection = self.connections[call.era]
        SENT.set(call.sent)
        trace = self._start_trace(call) if connection.sends_spans else None

        def progressed(progress: ProgressParams) -> None:
            self._show(call, {"progress": {"progress": progress.progress, **_given(progress, "total", "message")}})

        ending: dict[str, Any] = {"state": "cancelled"}
        try:
            result = await connection.ready.request(
                command.method,
                command.params,
                idle=None,
                total=None,
                cache="bypass",
                safe=False,
                on_progress=None if "progress" in connection.without else progressed,
                meta=trace,
            )
            ending = {"state": "done"}
            if call.sent.size <= MAX_RESULT:
                ending["result"] = result
                if call.id in self._made:
                    self._made[call.id].result = result
            else:
                ending["message"] = call.sent.response
        except PeerError as exc:
            error: dict[str, Any] = {"code": exc.code, "message": exc.message}
            ending = {"state": "failed", "error": error if exc.data is None else {**error, "data": exc.data}}
        except (CallError, GemelError, ValueError) as exc:
            ending = {"state": "failed", "error": {"message": str(exc), "type": type(exc).__name__}}
        except asyncio.CancelledError:
            if call.is_lost:
                error = {"message": "The connection was closed", "type": "ConnectionLost"}
                ending = {"state": "failed", "error": error}
            elif not call.is_cancelled:
                raise
        finally:
            del self._calls[call.id]
            ms = round((time.perf_counter() - call.start) * 1000, 3)
            if "result" in ending:
                ending |= self._judge(connection, command, ending["result"])
            self._show(call, {**ending, "ms": ms, "rounds": call.sent.rounds})
            name = command.params.get("name")
            self._add_span(call, command.method, name, ending["state"], ms)
            if command.method == "tools/call" and isinstance(name, str) and ending["state"] != "cancelled":
                failed = ending["state"] == "failed" or ending.get("result", {}).get("isError") is True
                self._measures.add(name, ms, failed=failed)

    def _judge(self, connection: EraConnection, command: MakeCall, result: dict[str, Any]) -> dict[str, str]:
        """Return what is wrong with a result, as a member of the event of its call."""
        from gemel.dev.contract_changes import find_problem

        tools = connection.listed.get("tools", ())
        problem = find_problem(command.method, command.params, result, tools)
        return {} if problem is None else {"problem": problem}

    async def _closing(self, connection: EraConnection) -> None:
        """End the calls of a connection that is being closed, also those that wait for a person."""
        calls = [call for call in self._calls.values() if self.connections[call.era] is connection]
        tasks = [call.task for call in calls if call.task is not None]
        for call in calls:
            call.is_lost = True
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _start_trace(self, call: _Call) -> dict[str, str]:
        """Return what a call tells the server of its trace: https://www.w3.org/TR/trace-context/."""
        trace = secrets.token_hex(16)
        self._traces[trace] = call.id
        if len(self._traces) > MAX_MADE:
            del self._traces[next(iter(self._traces))]
        return {"traceparent": f"00-{trace}-{trace[:16]}-01"}

    def add_spans(self, spans: Iterable[dict[str, Any]]) -> None:
        """Show spans that the program exported. Those that belong to a call are shown below it."""
        for span in spans:
            trace = span["trace"]
            call = self._traces.get(trace)
            if call is not None:
                span["trace"] = call
                if span.get("parent") == trace[:16]:
                    span["parent"] = call
            self.journal.add("span", span)

    def _add_span(self, call: _Call, method: str, name: object, state: str, ms: float) -> None:
        attributes = {"mcp.method.name": method, "era": call.era}
        if isinstance(name, str):
            attributes["gen_ai.tool.name" if method == "tools/call" else "name"] = name
        fields = {
            "trace": call.id,
            "span": call.id,
            "side": "client",
            "name": f"{method} {name}" if isinstance(name, str) else method,
            "start": call.began,
            "ms": ms,
            "status": {"done": "ok", "failed": "error"}.get(state, state),
            "attributes": attributes,
        }
        self.journal.add("span", fields)

    def _show(self, call: _Call, fields: dict[str, Any]) -> None:
        """Show what changed of a call. An open call is part of the current state, without its latest progress."""
        event = {"call": call.id, "era": call.era, **fields}
        call.shown |= event
        if call.id not in self._calls:
            self.journal.forget(call.id)
        elif "state" in fields:
            self.journal.add("call", event, key=call.id, state=call.shown)
            return
        self.journal.add("call", event)

    def _questioned(self, name: str | None, question: str | None) -> None:
        call = self._calls.get(name) if name is not None else None
        if call is not None:
            state = {"state": "running"} if question is None else {"state": "waiting", "question": question}
            self._show(call, state)

    # ---------------------------------------------------------------- texts to use elsewhere

    def _copy(self, command: Copy) -> str:
        from gemel.dev.copy_as import as_curl, as_gemel, as_pytest

        if command.call is not None:
            made = self._made.get(command.call)
            if made is None:
                raise ValueError(f"There is no call {command.call!r}, or not any more")
        elif command.era is not None and command.method is not None:
            made = _Made(command.era, command.method, command.params, Sent())
        else:
            raise ValueError('Say what to copy: "call", or "era", "method" and "params"')
        connection = self.connections[made.era]
        if command.form == "curl":
            headers, body = self._request(made, connection)
            return as_curl(connection.url, headers, body, self.target)
        if command.form == "pytest":
            place = connection.url or self.target.place
            return as_pytest(place, made.era, made.method, made.params, made.result)
        tools = connection.items.get("tools", ())
        schemas = [tool.get("inputSchema") for tool in tools if tool.get("name") == made.params.get("name")]
        schema = schemas[0] if schemas and isinstance(schemas[0], dict) else {}
        return as_gemel(self.target, made.era, made.method, made.params, schema)

    def _request(self, made: _Made, connection: EraConnection) -> tuple[dict[str, str], bytes]:
        """The headers and the body of the request that a call sent, or would send."""
        event = self.journal.get(made.sent.request) if made.sent.request else None
        if event is None:
            return connection.describe_request(made.method, made.params)
        shown = msgspec.json.decode(event.data)
        body = event.message or msgspec.json.encode(shown["data"])
        return shown.get("headers") or connection.describe_request(made.method, made.params)[0], body

    def recording(self, era: EraName | None) -> tuple[EraName, Iterator[bytes]]:
        """Return a recording of all messages of one era that are kept.

        Args:
            era: The era; None for that of the latest call.

        Returns:
            The era, and the lines of the recording.
        """
        from gemel.dev.export import recording

        called: list[EraName] = [made.era for made in self._made.values()]
        ready: list[EraName] = [each for each in ERAS if self.connections[each].state == "ready"]
        candidates: list[EraName] = [*ERAS[-1:], *ready[-1:], *called[-1:]]
        chosen = era or candidates[-1]
        kinds: dict[tuple[EraName, int], ChannelKind] = {
            (chosen, number): kind for number, kind in self.connections[chosen].kinds.items()
        }
        return chosen, recording(self.journal, kinds)


def _given(value: object, *names: str) -> dict[str, Any]:
    """Return the members of a struct that have a value."""
    return {
        name: member for name in names if (member := getattr(value, name)) is not None and member is not msgspec.UNSET
    }
