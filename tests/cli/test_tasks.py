"""`gemel call --task` and `gemel tasks`, against a server that each command starts anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gemel.cli import main

SERVER = """
import asyncio

from gemel import Context, Server, Tasks, ToolError

server = Server("jobs", backend="sqlite:///state.db")
server.add_extension(Tasks(poll_interval=0.05))

@server.tool(task=True)
async def report(year: int, ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half")
    return f"The report of {year}"

@server.tool(task=True)
async def fail() -> str:
    raise ToolError("no luck")

@server.tool(task=True)
async def wait() -> str:
    await asyncio.Event().wait()
    return "never"

@server.tool
async def plain() -> str:
    return "at once"
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.py").write_text(SERVER)
    return "jobs.py"


def test_a_call_as_a_task_is_waited_for(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["call", target, "report", "year=2025", "--task"]) == 0
    out, err = capsys.readouterr()
    assert out == "The report of 2025\n"
    assert err.startswith("task ")
    assert main(["call", target, "fail", "--task"]) == 1
    assert capsys.readouterr().out == "no luck\n"
    assert main(["call", target, "plain", "--task", "--no-wait"]) == 0
    assert capsys.readouterr().out == "at once\n"


@pytest.mark.parametrize("era", ["2025", "2026"])
def test_a_task_goes_on_and_is_found_by_later_commands(
    target: str, era: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """TEX-13: by its id, though client and server were restarted meanwhile."""

    def run(*words: str, code: int = 0) -> str:
        assert main([*words, "--era", era]) == code
        return capsys.readouterr().out.strip()

    task_id = run("call", target, "report", "year=2025", "--task", "--no-wait")
    assert run("tasks", "result", target, task_id, "--timeout", "60") == "The report of 2025"
    assert run("tasks", "get", target, task_id).startswith(f"{task_id}  completed")
    state = json.loads(run("tasks", "get", target, task_id, "--json"))
    assert (state["id"], state["status"]) == (task_id, "completed")
    waiting = json.loads(run("call", target, "wait", "--task", "--no-wait", "--json"))["id"]
    assert run("tasks", "cancel", target, waiting).startswith(f"{waiting}  cancelled")
    run("tasks", "result", target, waiting, code=1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tasks", "list", "jobs.py", "x"], "takes a TARGET only"),
        (["tasks", "get", "jobs.py"], "needs the ID of a task"),
        (["tasks", "forget", "jobs.py"], "invalid choice"),
        (["call", "jobs.py", "report", "--no-wait"], "--no-wait needs --task"),
        (["tasks", "list", "jobs.py"], "tasks/list was not sent: jobs"),
        (["tasks", "get", "jobs.py", "x"], "Unknown task"),
    ],
)
def test_mistakes_get_one_line(target: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words)
    except SystemExit as exc:
        code = int(str(exc.code))
    assert code != 0
    assert message in capsys.readouterr().err
