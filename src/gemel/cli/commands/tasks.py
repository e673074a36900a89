"""`gemel tasks`: list the tasks at a server, show one, wait for its result, or cancel it."""

from __future__ import annotations

import argparse
from typing import Any

from gemel.cli.connect import client_for
from gemel.cli.console import Console, as_json
from gemel.client.tasks import TaskInfo, ToolTask
from gemel.errors import StartError, ToolCallError
from gemel.visible import escape_line


async def run(options: argparse.Namespace) -> int:
    """Do what the action says. The exit code of `result` is 1 if the tool failed."""
    task_id: str = options.id or ""
    if options.action == "list" and task_id:
        raise StartError("gemel tasks list takes a TARGET only")
    if options.action != "list" and not task_id:
        raise StartError(f"gemel tasks {options.action} needs the ID of a task")
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            if options.action == "list":
                tasks = await client.tasks.list()
                lines = [in_one_line(info) for info in tasks]
                console.print(as_json(tasks) if options.json else "\n".join(lines) or "no tasks")
                return 0
            if options.action == "result":
                task = await client.tasks.resume(task_id)
                return await print_result(console, task, options)
            if options.action == "cancel":
                await client.tasks.cancel(task_id)
            info = await client.tasks.get(task_id)
            console.print(as_json(info) if options.json else in_one_line(info))
    return 0


async def print_result(console: Console, task: ToolTask[Any], options: argparse.Namespace) -> int:
    """Wait for the result of a task, show its states meanwhile, and print the result. Returns the exit code."""

    shown = ""

    def show(info: TaskInfo) -> None:
        nonlocal shown
        text = in_one_line(info, with_id=False)
        if text != shown and not info.ended:
            console.note(text)
        shown = text

    try:
        result = await task.result(total=options.timeout, on_status=show)
    except ToolCallError as exc:
        result = exc.result
    console.result(result, options)
    return 1 if result.is_error else 0


def in_one_line(info: TaskInfo, *, with_id: bool = True) -> str:
    """A task for people: its id, its state and what it does."""
    return "  ".join(escape_line(text) for text in (info.id if with_id else "", info.status, info.message) if text)
