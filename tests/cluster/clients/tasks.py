"""Our own client starts tasks on the cluster and fetches their results with other clients: `tasks.py ERA URL NAME`.

The foreign clients have no tasks yet. Prints what it counted as one line of JSON, as tally.py does.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from typing import Any, Literal, cast

from hinge import Client, ElicitFormParams, HingeError, PeerError, ToolCallError

ERA, URL, NAME = cast(Literal["2025", "2026"], sys.argv[1]), sys.argv[2], sys.argv[3]
#: Tasks that are started side by side, and seconds in which each must end: its process may be killed several times.
LOOPS = 3
TASK_SECONDS = 120.0
STEPS = 4


class Tasks:
    """The tasks of this client, and what became of them."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.violations: list[str] = []
        self._number = 0
        self._fetching: set[asyncio.Task[None]] = set()

    async def until(self, end: float) -> None:
        """Start tasks until a time, then wait for the ends of all."""
        await asyncio.gather(*(self._start(number, end) for number in range(LOOPS)))
        await asyncio.gather(*self._fetching)

    async def _start(self, loop: int, end: float) -> None:
        while time.time() < end:
            self._number += 1
            key = f"{NAME}-{self._number}"
            kind = ("job", "job_with_a_question", "job_that_is_not_repeated")[loop]
            try:
                async with asyncio.timeout(15), connect() as client:
                    task: Any = await client.call_tool(kind, {"key": key, "steps": STEPS}, task=True)
                if task.id is None:
                    self.violations.append(f"{kind} became no task")
                    return
            except Exception as exc:  # visible to whoever calls: that is allowed while processes are killed
                self.errors[f"start: {_text(exc)}"] += 1
            else:
                self.calls["started"] += 1
                fetching = asyncio.ensure_future(self._fetch(task.id, key, kind))
                self._fetching.add(fetching)
            await asyncio.sleep(0.7)

    async def _fetch(self, task_id: str, key: str, kind: str) -> None:
        """Ask for the result with one new client after the other, each of which may meet another process."""
        limit = time.monotonic() + TASK_SECONDS
        while time.monotonic() < limit:
            try:
                async with asyncio.timeout(20), connect() as client:
                    result = await (await client.tasks.resume(task_id)).result()
                self._judge(key, kind, result.text)
                return
            except (PeerError, ToolCallError) as exc:
                text = str(exc)
                if kind == "job_that_is_not_repeated" and "unknown" in text and "Unknown task" not in text:
                    self.calls["outcome unknown"] += 1
                    return
                if "Unknown task" in text:
                    self.violations.append("an acknowledged task is lost")
                    return
                if not _may_pass(exc):
                    self.violations.append(f"a task failed: {text[:100]}")
                    return
                self.errors[f"result: {_text(exc)}"] += 1
            except (HingeError, TimeoutError, OSError) as exc:
                self.errors[f"result: {_text(exc)}"] += 1
            await asyncio.sleep(0.5)
        self.violations.append("a task did not end")

    def _judge(self, key: str, kind: str, text: str) -> None:
        answer = " yes" if kind == "job_with_a_question" else ""
        expected = f"{key}: {' '.join(map(str, range(STEPS)))}{answer}"
        if text == expected:
            self.calls["completed"] += 1
        else:
            self.violations.append(f"a wrong result of a task: {text[:100]}")


def _may_pass(exc: Exception) -> bool:
    """Whether an error is about this moment: a server that stops, a store that is away."""
    return getattr(exc, "code", 0) in (429, 503, 504)


def _text(exc: Exception) -> str:
    return f"{type(exc).__name__} {str(exc)[:60]}"


def connect() -> Client:
    """A client that was not there before."""

    def answer(form: ElicitFormParams) -> dict[str, Any]:
        return {"value": "yes"}

    return Client(URL, era=ERA, on_elicit=answer, reconnect=False)


async def main() -> None:
    tasks = Tasks()
    async with connect() as client:
        await client.ping()
    print("connected", flush=True)
    end = float((await asyncio.to_thread(sys.stdin.readline)).split()[0])
    await tasks.until(end)
    counts = {"calls": tasks.calls, "errors": tasks.errors, "violations": tasks.violations}
    print(json.dumps({"client": f"tasks {ERA}", "usable": bool(tasks.calls["completed"]), **counts}), flush=True)


asyncio.run(main())
