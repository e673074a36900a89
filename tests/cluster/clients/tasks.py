"""Clients start tasks on the cluster and fetch their results with new ones: `tasks.py [COMMAND…] KIND ERA URL NAME`.

`tasks` is Gemel's client. In 2025-11-25 `tasks-python` is the official SDK 1.26; in 2026-07-28 `tasks-fastmcp` is FastMCP with
fastmcp-tasks. `tasks-typescript` runs COMMAND, see typescript_tasks.mjs. The official Python SDK 2.3.0 and FastMCP alone have no
tasks in either era. Prints what it counted as one line of JSON, as tally.py does.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Literal, NamedTuple, cast

*COMMAND, KIND, ERA, URL, NAME = sys.argv[1:]
#: Tools that become tasks, called side by side, and seconds between two calls of one.
TOOLS = ("job", "job_with_a_question", "job_that_is_not_repeated")
PAUSE = 0.7 if KIND == "tasks" else 2.0
#: Seconds in which a request and a fetch must end, and each task: its process may be killed several times.
CALL_SECONDS = 15.0
FETCH_SECONDS = 20.0
TASK_SECONDS = 120.0
#: How long a task is to be kept, in milliseconds.
KEEP = 3_600_000
STEPS = 4
#: Codes of errors about this moment: overload, a server that stops, and the clients' own for a lost connection and a time limit.
PASSING = (408, 429, 503, 504, -32000, -32001)


class Failed(Exception):
    """A result with `isError`, or the error of a server."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


class Doors(NamedTuple):
    """What a kind of client does, with a new client each time.

    Attributes:
        start: Call a tool as a task. Returns what the result is fetched with, None if the call became no task.
        fetch: Answer questions and return the text of the result.
        told: Errors that a server answered with.
        visible: Errors that are allowed while processes are killed.
    """

    start: Callable[[str, dict[str, Any]], Awaitable[Any]]
    fetch: Callable[[Any], Awaitable[str]]
    told: tuple[type[Exception], ...]
    visible: tuple[type[Exception], ...] = (Exception,)


async def gemel() -> Doors:
    """Gemel's client."""
    from gemel import Client, GemelError, PeerError, ToolCallError

    def connect() -> Client:
        era = cast(Literal["2025", "2026"], ERA)
        return Client(URL, era=era, on_elicit=lambda form: {"value": "yes"}, reconnect=False)

    async def start(tool: str, arguments: dict[str, Any]) -> str | None:
        async with connect() as client:
            return (await client.call_tool(tool, arguments, task=True)).id

    async def fetch(task: str) -> str:
        async with connect() as client:
            return (await (await client.tasks.resume(task)).result()).text

    return Doors(start, fetch, (PeerError, ToolCallError), (GemelError, TimeoutError, OSError))


async def python() -> Doors:
    """The official Python SDK with its experimental tasks."""
    from mcp import ClientSession, McpError, types
    from mcp.client.streamable_http import streamablehttp_client

    async def answer(context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"value": "yes"})

    @asynccontextmanager
    async def connect() -> AsyncIterator[Any]:
        async with streamablehttp_client(URL) as (read, write, _):
            limit = timedelta(seconds=CALL_SECONDS)
            async with ClientSession(read, write, limit, elicitation_callback=answer) as session:
                await session.initialize()
                yield session.experimental

    async def start(tool: str, arguments: dict[str, Any]) -> str:
        async with connect() as tasks:
            return str((await tasks.call_tool_as_task(tool, arguments, ttl=KEEP)).task.taskId)

    async def fetch(task: str) -> str:
        async with connect() as tasks:
            async for state in tasks.poll_task(task):
                if state.status == "input_required":
                    break
            result = await tasks.get_task_result(task, types.CallToolResult)
            if result.isError:
                raise Failed(result.content[0].text)
            return str(result.content[0].text)

    return Doors(start, fetch, (McpError, Failed))


async def fastmcp() -> Doors:
    """FastMCP with its extension for tasks."""
    from fastmcp import Client
    from fastmcp.client.elicitation import ElicitResult
    from fastmcp.exceptions import ToolError
    from fastmcp_tasks import ToolTask, call_tool_task
    from mcp.shared.exceptions import MCPError

    async def answer(*_: Any) -> Any:
        return ElicitResult(action="accept", content={"value": "yes"})

    def connect() -> Any:
        return Client(URL, mode="auto", elicitation_handler=answer, timeout=CALL_SECONDS)

    async def start(tool: str, arguments: dict[str, Any]) -> Any:
        async with connect() as client:
            return tool, (await call_tool_task(client, tool, arguments)).create_result

    async def fetch(task: Any) -> str:
        async with connect() as client:
            return str((await ToolTask(client, *task).result()).content[0].text)

    return Doors(start, fetch, (MCPError, ToolError))


async def typescript() -> Doors:
    """A program that makes the calls: it reads and writes lines of JSON."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*COMMAND, ERA, URL, stdin=pipe, stdout=pipe)
    answers: dict[int, asyncio.Future[Any]] = {}

    async def read() -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            answer = json.loads(line)
            future = answers.pop(answer["id"])
            if future.cancelled():
                pass
            elif "error" not in answer:
                future.set_result(answer["value"])
            elif answer["code"] is None:
                future.set_exception(ConnectionError(answer["error"]))
            else:
                future.set_exception(Failed(answer["error"], answer["code"]))

    async def request(name: str, *values: Any) -> Any:
        assert process.stdin is not None
        number = next(numbers)
        future = answers[number] = asyncio.get_running_loop().create_future()
        process.stdin.write(f"{json.dumps({'id': number, 'name': name, 'values': values})}\n".encode())
        return await future

    numbers = iter(range(1 << 30))
    reading.append(asyncio.ensure_future(read()))
    await request("ready")
    return Doors(lambda *values: request("start", *values, KEEP), lambda task: request("fetch", task), (Failed,))


#: Readers that must not be collected.
reading: list[asyncio.Future[None]] = []


class Tasks:
    """The tasks of this client, and what became of them."""

    def __init__(self, doors: Doors) -> None:
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []
        self._doors = doors
        self._number = 0
        self._fetching: set[asyncio.Task[None]] = set()

    async def until(self, end: float) -> None:
        """Start tasks until a time, then wait for the ends of all."""
        await asyncio.gather(*(self._start(tool, end) for tool in TOOLS))
        await asyncio.gather(*self._fetching)
        if not self.calls["completed"]:
            self.violations.append("no task was completed")

    async def _start(self, tool: str, end: float) -> None:
        while time.time() < end:
            self._number += 1
            key = f"{NAME}-{self._number}"
            try:
                async with asyncio.timeout(CALL_SECONDS):
                    task = await self._doors.start(tool, {"key": key, "steps": STEPS})
                if task is None:
                    self.violations.append(f"{tool} became no task")
                    return
            except Exception as exc:  # visible to whoever calls: that is allowed while processes are killed
                self.errors[f"start: {_text(_cause(exc))}"] += 1
            else:
                self.calls["started"] += 1
                self._fetching.add(asyncio.create_task(self._fetch(task, key, tool)))
            await asyncio.sleep(PAUSE)

    async def _fetch(self, task: Any, key: str, tool: str) -> None:
        """Ask for the result with one new client after the other, each of which may meet another process."""
        begun = time.monotonic()
        while time.monotonic() < begun + TASK_SECONDS:
            try:
                async with asyncio.timeout(FETCH_SECONDS):
                    text = await self._doors.fetch(task)
                self._judge(key, tool, text)
                return
            except Exception as exc:
                if self._is_end(_cause(exc), tool, f"{key} ({task}), {time.monotonic() - begun:.1f} s after its start"):
                    return
                self.errors[f"result: {_text(_cause(exc))}"] += 1
            await asyncio.sleep(0.5)
        self.violations.append("a task did not end")

    def _is_end(self, exc: Exception, tool: str, which: str) -> bool:
        """Count an error that is the end of a task. Returns whether it is, and not one of this moment."""
        code = getattr(getattr(exc, "error", exc), "code", 0)
        told = isinstance(exc, self._doors.told)
        if told and "ended while the step" in str(exc) and tool == "job_that_is_not_repeated":
            self.calls["outcome unknown"] += 1
        elif told and "Unknown task" in str(exc):
            self.violations.append(f"an acknowledged task is lost, {time.strftime('%H:%M:%S')}: {which}")
        elif told and str(exc) == "Server returned an error response":
            return False  # this client does not tell the status of HTTP: run.py looks at those that servers answered
        elif told and "was made in revision" in str(exc):
            return (
                False  # the probe of this client failed, and it fell back to the other era: the next one finds the task
            )
        elif (told and code not in PASSING) or not isinstance(exc, self._doors.visible):
            self.violations.append(f"a task failed: {_text(exc)}")
        else:
            return False
        return True

    def _judge(self, key: str, tool: str, text: str) -> None:
        answer = " yes" if tool == "job_with_a_question" else ""
        expected = f"{key}: {' '.join(map(str, range(STEPS)))}{answer}"
        if text == expected:
            self.calls["completed"] += 1
        else:
            self.violations.append(f"a wrong result of a task: {text[:100]}")


def _cause(exc: Exception) -> Exception:
    """The only error in a group."""
    while isinstance(exc, ExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc


def _text(exc: Exception) -> str:
    return f"{type(exc).__name__} {str(exc)[:100]}".splitlines()[0]


async def main() -> None:
    kinds = {"tasks": gemel, "tasks-python": python, "tasks-fastmcp": fastmcp, "tasks-typescript": typescript}
    tasks = Tasks(await kinds[KIND]())
    print("connected", flush=True)
    end = float((await asyncio.to_thread(sys.stdin.readline)).split()[0])
    await tasks.until(end)
    counts = {"calls": tasks.calls, "errors": tasks.errors, "violations": tasks.violations}
    print(json.dumps({"client": f"{KIND} {ERA}", "usable": bool(tasks.calls["completed"]), **counts}), flush=True)


asyncio.run(main())
