"""The plan that every Python client of the interop matrix walks, and the report that it prints.

Knows neither Hinge nor any foreign SDK: a client hands in an `Adapter`. It must run in every environment, so it
imports the standard library only.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

STEP_LIMIT = 30.0
"""Seconds that any one step may take; longer is reported as a hang."""

CANCEL_AFTER = 0.7
"""Seconds after which the call of the cancel step is abandoned; also the limit of the limit step."""

SKIPPED = {"skipped": True}

Call = tuple[str, dict[str, Any]]
OnProgress = Callable[[float, float | None, str | None], Awaitable[None]]


class Adapter(Protocol):
    """What a client under test must be able to do."""

    logs: list[dict[str, Any]]
    skips: frozenset[str]
    """Steps that the client has no way to make."""

    async def connect(self) -> dict[str, Any]: ...
    async def list_tools(self) -> list[dict[str, Any]]: ...
    async def call(
        self, name: str, arguments: dict[str, Any], progress: OnProgress | None = None
    ) -> dict[str, Any]: ...
    async def call_with_limit(self, name: str, arguments: dict[str, Any], seconds: float) -> dict[str, Any]: ...
    async def set_log_level(self, level: str) -> None: ...
    async def close(self) -> None: ...


@dataclass
class Settings:
    """What the runner asked for."""

    transport: str
    era: str
    revision: str
    target: str
    plan: dict[str, Any]
    hold: bool

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
    parser.add_argument("--transport", choices=("stdio", "http"), required=True)
    parser.add_argument("--era", choices=("2025", "2026"), required=True)
    parser.add_argument("--revision", required=True, help="the revision to pin in the 2026 era")
    parser.add_argument("--plan", required=True, help="JSON: step name -> [tool, arguments] (or a list of them)")
    parser.add_argument("--hold", action="store_true", help="only announce the server's pid and make the slow call")
    parser.add_argument("target", help="the URL, or the JSON list of the server's command line")
    given = parser.parse_args()
    return Settings(given.transport, given.era, given.revision, given.target, json.loads(given.plan), given.hold)


async def walk(name: str, adapter: Adapter, chosen: Settings) -> None:
    """Connect, make every step of the plan, close, print the report."""
    report = Report(name, chosen)
    if await report.step("connect", adapter.connect()):
        if chosen.hold:
            await _hold(adapter, report)
        else:
            await _walk_plan(adapter, report)
    await report.step("close", adapter.close())
    report.print()


async def _hold(adapter: Adapter, report: Report) -> None:
    if await report.step("pid", adapter.call("pid", {})):
        print(json.dumps({"server_pid": int(report.steps["pid"]["value"]["text"])}), flush=True)
        tool, arguments = report.settings.plan["cancel"]
        await report.step("held", adapter.call(tool, arguments))


async def _walk_plan(adapter: Adapter, report: Report) -> None:
    await report.step("list_tools", adapter.list_tools())
    for name, item in report.settings.plan.items():
        if name in adapter.skips:
            report.steps[name] = {"value": SKIPPED, "seconds": 0.0}
        elif name == "progress":
            await report.step(name, _progress(adapter, item))
        elif name == "logging":
            await report.step(name, _logging(adapter, item))
        elif name == "cancel":
            await report.step(name, _cancel(adapter, item))
        elif name == "limit":
            await report.step(name, adapter.call_with_limit(item[0], item[1], CANCEL_AFTER))
        elif name == "concurrent":
            await report.step(name, _concurrent(adapter, item))
        else:
            await report.step(name, adapter.call(*item))
    await report.step("afterwards", adapter.list_tools())


async def _progress(adapter: Adapter, item: Call) -> dict[str, Any]:
    seen: list[list[Any]] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        seen.append([progress, total, message])

    answer = await adapter.call(*item, note)
    await asyncio.sleep(0.1)
    return {**answer, "progress": seen}


async def _logging(adapter: Adapter, item: Call) -> dict[str, Any]:
    level_error = None
    try:
        await adapter.set_log_level("debug")
    except Exception as error:
        level_error = describe(error)
    adapter.logs.clear()
    answer = await adapter.call(*item)
    await asyncio.sleep(0.2)
    return {**answer, "logs": list(adapter.logs), "level_error": level_error}


async def _cancel(adapter: Adapter, item: Call) -> dict[str, Any]:
    """Abandon a call in mid-flight; what is asked next must still be answered."""
    task = asyncio.ensure_future(adapter.call(*item))
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


async def _concurrent(adapter: Adapter, items: list[Call]) -> list[Any]:
    answers = await asyncio.gather(*(adapter.call(*item) for item in items), return_exceptions=True)
    return [describe(one) if isinstance(one, BaseException) else one for one in answers]


def shape(content: list[Any], structured: Any, is_error: bool) -> dict[str, Any]:
    """A tool's result as data; content blocks may be objects or mappings."""
    texts = [_member(block, "text") for block in content if _member(block, "type") == "text"]
    text = "\n".join(str(one) for one in texts)
    types = [_member(block, "type") for block in content]
    return {"text": text[:300], "length": len(text), "types": types, "structured": structured, "is_error": is_error}


def _member(block: Any, name: str) -> Any:
    return block.get(name) if isinstance(block, dict) else getattr(block, name, None)
