"""The plan that every Python client of the interop matrix walks, and the report that it prints.

Knows neither Gemel nor any foreign SDK: a client hands in an `Adapter`. It must run in every environment, so it
imports the standard library only. A step of the plan is a list: the verb, and what it takes (see `Walk`).
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.interop.answers import Asked

STEP_LIMIT = 30.0
"""Seconds that any one step may take; longer is reported as a hang."""

CANCEL_AFTER = 0.7
"""Seconds after which the call of the cancel step is abandoned; also the limit of the limit step."""

HEARD_LIMIT = 4.0
"""Seconds until a change that was brought about must have been heard."""

SILENCE = 0.3
"""Seconds in which nothing must be heard."""

OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]
Heard = list[list[str | None]]


class Adapter(Protocol):
    """What a client under test must be able to do. The kinds of lists: tools, resources, templates, prompts."""

    logs: list[dict[str, Any]]
    heard: Heard
    """What changed: the kind of a list and None, or `resource` and the URI."""
    asked: Asked
    skips: Mapping[str, str]
    """Verbs and steps that the client has no way to make, and why."""

    async def connect(self) -> dict[str, Any]: ...
    async def listed(self, kind: str) -> dict[str, Any]:
        """All pages: `items` as JSON, and `pages`, their number, if the client can know it."""
        ...

    async def page(self, kind: str, cursor: str) -> Any: ...
    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None, level: str | None = None
    ) -> dict[str, Any]: ...
    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]: ...
    async def set_log_level(self, level: str) -> None:
        """For the handshake era; in the other one `call` takes the level."""
        ...

    async def read(self, uri: str) -> list[dict[str, Any]]: ...
    async def prompt(self, name: str, arguments: dict[str, str]) -> dict[str, Any]: ...
    async def complete(
        self, reference: dict[str, str], argument: str, value: str, given: dict[str, str] | None
    ) -> dict[str, Any]: ...
    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """A method that is not the client's own."""
        ...

    def watch(self, uri: str | None) -> AbstractAsyncContextManager[Any]:
        """Hear of this resource and, where they come unasked or can be asked for, of all lists; gives what is honoured."""
        ...

    async def watch_to_end(self, uri: str, ready: Callable[[], None]) -> Any:
        """Watch until it ends without our doing, and say how."""
        ...

    async def watch_on(self, uri: str, ready: Callable[[], None]) -> Any:
        """Watch until a loss, and on until something is heard again; for clients that take it up by themselves."""
        ...

    async def close(self) -> None: ...


@dataclass
class Settings:
    """What the runner asked for."""

    transport: str
    era: str
    revision: str
    target: str
    plan: dict[str, list[Any]]
    answers: dict[str, Any]
    hold: list[str]
    go: Path

    @property
    def command(self) -> list[str]:
        """The server's command line (stdio)."""
        parts: list[str] = json.loads(self.target)
        return parts


@dataclass
class Report:
    """One JSON object: for each step either `value` or `error`, its seconds and the time of its end (epoch)."""

    client: str
    settings: Settings
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def step(self, name: str, work: Awaitable[Any]) -> bool:
        """Await the work within the limit and write down how it ended."""
        begin = time.monotonic()
        entry: dict[str, Any] = {}
        limit = asyncio.timeout(STEP_LIMIT)
        try:
            async with limit:
                entry["value"] = await work
        except BaseException as error:
            hang = {"type": "Hang", "message": f"no end within {STEP_LIMIT} s"}
            entry["error"] = hang if limit.expired() else describe(error)
        entry["ended_at"] = time.time()
        entry["seconds"] = round(time.monotonic() - begin, 3)
        self.steps[name] = entry
        return "value" in entry

    def skip(self, name: str, why: str) -> None:
        """Write down that a step can't be made."""
        self.steps[name] = {"value": {"skipped": why}, "seconds": 0.0}

    def print(self) -> None:
        """The report on standard output, as the last line."""
        shown = {"client": self.client, "transport": self.settings.transport, "era": self.settings.era}
        print(json.dumps({**shown, "steps": self.steps}), flush=True)


def describe(error: BaseException) -> dict[str, Any]:
    """An exception as data: its type, and the JSON-RPC code, message and data where it carries them."""
    inner = error
    while isinstance(getattr(inner, "exceptions", None), tuple):
        inner = inner.exceptions[0]  # type: ignore[attr-defined]  # an exception group of any make
    data = getattr(inner, "error", inner)
    code = getattr(data, "code", None)
    out: dict[str, Any] = {"type": type(inner).__name__, "message": str(inner)[:500]}
    if isinstance(code, int):
        out["code"] = code
        out["data"] = repr(getattr(data, "data", None))[:300]
    return out


def settings() -> Settings:
    """The command line of every client of the matrix."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=("stdio", "http", "sse"), required=True)
    parser.add_argument("--era", choices=("2025", "2026"), required=True)
    parser.add_argument("--revision", required=True, help="the revision to pin in the 2026 era")
    parser.add_argument("--plan", required=True, help="JSON: step name -> [verb, …]")
    parser.add_argument("--answers", default="{}", help="JSON: what to say to the forms that the server shows")
    parser.add_argument("--hold", default="", help="stay in the middle of these: call, listen, ask, relisten")
    parser.add_argument("--go", type=Path, default=Path(), help="the file whose coming answers a held question")
    parser.add_argument("target", help="the URL, or the JSON list of the server's command line")
    given = parser.parse_args()
    plan, answers = json.loads(given.plan), json.loads(given.answers)
    return Settings(
        given.transport, given.era, given.revision, given.target, plan, answers, _words(given.hold), given.go
    )


def _words(text: str) -> list[str]:
    return text.split(",") if text else []


async def walk(name: str, adapter: Adapter, chosen: Settings) -> None:
    """Connect, make every step of the plan, close, print the report."""
    report = Report(name, chosen)
    if await report.step("connect", adapter.connect()):
        if chosen.hold:
            await _hold(adapter, report)
        else:
            await Walk(adapter, report).plan()
    await report.step("close", adapter.close())
    report.print()


async def _hold(adapter: Adapter, report: Report) -> None:
    """Stay in the middle of calls, subscriptions and questions, say the server's pid, and see how each of them ends."""
    if not await report.step("pid", adapter.call("pid", {})):
        return
    plan, ready = report.settings.plan, asyncio.Semaphore(0)
    begin: dict[str, Callable[[], Awaitable[Any]]] = {
        "call": lambda: adapter.call(*plan["cancel"][1:]),
        "ask": lambda: adapter.call(*plan["elicit"][1:]),
        "listen": lambda: adapter.watch_to_end(plan["watch"][1], ready.release),
        "relisten": lambda: adapter.watch_on(plan["watch"][1], ready.release),
    }
    tasks = []
    for what in report.settings.hold:
        if what == "ask":
            adapter.asked.hold(ready.release, report.settings.go)
        tasks.append(asyncio.ensure_future(report.step(what, begin[what]())))
        if what != "call":
            await ready.acquire()
    print(json.dumps({"server_pid": int(report.steps["pid"]["value"]["text"])}), flush=True)
    while pending := [task for task in tasks if not task.done()]:
        with suppress(asyncio.CancelledError):  # some clients cancel the task that opened them
            await asyncio.wait(pending)


class Walk:
    """Makes the steps of a plan, each by the method that is called like its verb."""

    def __init__(self, adapter: Adapter, report: Report) -> None:
        self._adapter = adapter
        self._report = report

    async def plan(self) -> None:
        """All steps, one after the other."""
        for name, (verb, *arguments) in self._report.settings.plan.items():
            why = self._adapter.skips.get(name) or self._adapter.skips.get(verb)
            if why is not None:
                self._report.skip(name, why)
            else:
                await self._report.step(name, getattr(self, verb)(*arguments))

    async def items(self, kind: str) -> Any:
        """All items of a kind."""
        return await self._adapter.listed(kind)

    async def page(self, kind: str, cursor: str) -> Any:
        """The page that a cursor names."""
        return await self._adapter.page(kind, cursor)

    async def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """A tool."""
        return await self._adapter.call(name, arguments)

    async def ask(self, name: str, arguments: dict[str, Any]) -> Any:
        """A tool that asks; what it asked comes with the answer."""
        self._adapter.asked.clear()
        return {**await self._adapter.call(name, arguments), "asked": list(self._adapter.asked)}

    async def ask_prompt(self, name: str, arguments: dict[str, str]) -> Any:
        """A prompt that asks."""
        self._adapter.asked.clear()
        return {**await self._adapter.prompt(name, arguments), "asked": list(self._adapter.asked)}

    async def ask_read(self, uri: str) -> Any:
        """A resource that asks."""
        self._adapter.asked.clear()
        return {"contents": await self._adapter.read(uri), "asked": list(self._adapter.asked)}

    async def read(self, uri: str) -> Any:
        """A resource."""
        return {"contents": await self._adapter.read(uri)}

    async def prompt(self, name: str, arguments: dict[str, str]) -> Any:
        """A prompt."""
        return await self._adapter.prompt(name, arguments)

    async def complete(
        self, reference: dict[str, str], argument: str, value: str, given: dict[str, str] | None = None
    ) -> Any:
        """Suggestions for an argument or a variable."""
        return await self._adapter.complete(reference, argument, value, given)

    async def request(self, method: str, params: dict[str, Any]) -> Any:
        """Any method."""
        return await self._adapter.request(method, params)

    async def progress(self, name: str, arguments: dict[str, Any]) -> Any:
        """A tool, and the progress that it reports."""
        seen: list[Any] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append([progress, total, message])

        answer = await self._adapter.call(name, arguments, note)
        await asyncio.sleep(0.1)
        return {**answer, "progress": seen}

    async def logging(self, name: str, arguments: dict[str, Any], level: str) -> Any:
        """A tool, and what it logs at a level and above."""
        level_error = None
        if self._report.settings.era == "2025":
            try:
                await self._adapter.set_log_level(level)
            except Exception as error:
                level_error = describe(error)
        self._adapter.logs.clear()
        answer = await self._adapter.call(name, arguments, level=level)
        await asyncio.sleep(0.2)
        return {**answer, "logs": [dict(one) for one in self._adapter.logs], "level_error": level_error}

    async def limit(self, name: str, arguments: dict[str, Any]) -> Any:
        """A call with a time limit that passes."""
        return await self._adapter.call_with_limit(name, arguments, CANCEL_AFTER)

    async def cancel(self, name: str, arguments: dict[str, Any]) -> Any:
        """Abandon a call in mid-flight; what is asked next must still be answered."""
        task = asyncio.ensure_future(self._adapter.call(name, arguments))
        await asyncio.sleep(CANCEL_AFTER)
        task.cancel()
        ended: Any = None
        try:
            ended = await task
        except asyncio.CancelledError:
            ended = "cancelled"
        except Exception as error:
            ended = describe(error)
        return {"ended": ended}

    async def concurrent(self, calls: Any) -> Any:
        """Many calls at once."""
        answers = await asyncio.gather(*(self._adapter.call(*item) for item in calls), return_exceptions=True)
        return [describe(one) if isinstance(one, BaseException) else one for one in answers]

    async def watch(self, uri: str | None, touch: Any, changes: Any) -> Any:
        """Watch a resource and the lists, bring changes about, stop, and bring one more about.

        `touch` is the call that changes the resource; `changes` gives for each list the call that changes it. Without a
        resource only the lists are watched.
        """
        heard = self._adapter.heard
        async with self._adapter.watch(uri) as honoured:
            heard.clear()
            if uri is not None:
                await self._adapter.call(*touch)
                await self._until(["resource", uri])
            for kind, change in changes.items():
                await self._adapter.call(*change)
                await self._until([kind, None])
            came = [list(one) for one in heard]
        heard.clear()
        if uri is not None:
            await self._adapter.call(*touch)
        await asyncio.sleep(SILENCE)
        return {"honoured": honoured, "heard": came, "after": [list(one) for one in heard]}

    async def _until(self, wanted: list[str | None]) -> None:
        deadline = time.monotonic() + HEARD_LIMIT
        while wanted not in self._adapter.heard and time.monotonic() < deadline:  # noqa: ASYNC110 # a plain list
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------- results as data


def shape(content: list[Any], structured: Any, is_error: bool) -> dict[str, Any]:
    """A tool's result as data; content blocks may be objects or mappings."""
    texts = [_member(block, "text") for block in content if _member(block, "type") == "text"]
    text = "\n".join(str(one) for one in texts)
    types = [_member(block, "type") for block in content]
    return {"text": text[:300], "length": len(text), "types": types, "structured": structured, "is_error": is_error}


def _member(block: Any, name: str) -> Any:
    return block.get(name) if isinstance(block, dict) else getattr(block, name, None)


def plain(model: Any) -> Any:
    """A model of the Python SDKs, or a list of them, as it stands on the wire."""
    if isinstance(model, list):
        return [plain(one) for one in model]
    return model.model_dump(by_alias=True, exclude_none=True, mode="json") if hasattr(model, "model_dump") else model


def change_of(method: str, uri: Any) -> list[str | None] | None:
    """A notification as an entry of `heard`; None when it tells of no change."""
    if method == "notifications/resources/updated":
        return ["resource", str(uri)]
    parts = method.split("/")
    return [parts[1], None] if parts[-1] == "list_changed" else None
