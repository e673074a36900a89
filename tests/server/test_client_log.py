"""Python's logging to the client whose call is running, and finding the Context of that call."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from gemel import Context, GemelError, LogToClient, Server, current_context
from gemel.server.log_to_client import level_of
from tests.jumping_clock import in_no_time
from tests.server.bare_end import BareEnd, Era
from tests.support import LOG_LEVEL, Outgoing

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    """A logger whose records go to clients."""
    log = logging.getLogger("app.weather")
    handler = LogToClient()
    log.addHandler(handler)
    log.setLevel(logging.DEBUG)
    yield log
    log.removeHandler(handler)
    log.setLevel(logging.NOTSET)


async def wants(end: BareEnd, level: str) -> None:
    if end.era == "2025":
        await end.ask("logging/setLevel", {"level": level})


def messages(end: BareEnd) -> list[tuple[str, Any]]:
    found = [one["params"] for one in end.heard if one.get("method") == "notifications/message"]
    return [(one["level"], one["data"]) for one in found]


async def call(end: BareEnd, name: str, level: str | None = "debug") -> None:
    meta = {"_meta": {LOG_LEVEL: level}} if end.era == "2026" and level is not None else {}
    result = await end.ask("tools/call", {"name": name, "arguments": {}, **meta})
    assert not result.get("isError"), result


class Unread(BareEnd):
    """A client that does not read log messages."""

    async def send(self, message: Outgoing, /) -> None:
        if message.method == "notifications/message":
            await asyncio.Event().wait()
        await super().send(message)


@in_no_time
async def test_a_client_that_does_not_read_its_log_does_not_hold_the_answer(log: logging.Logger) -> None:
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> None:
        log.info("begun")

    async with Unread(server) as end:
        loop = asyncio.get_running_loop()
        start = loop.time()
        await call(end, "work")
        assert loop.time() - start == pytest.approx(server.limits.teardown)


@both_eras
async def test_records_of_a_call_go_to_its_client_before_the_answer_in_order(era: Era, log: logging.Logger) -> None:
    """LOG-02, LOG-06."""
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> str:
        log.info("begun: %s", 1)
        await asyncio.sleep(0)
        log.warning("nearly done")
        return "done"

    @server.tool
    async def idle() -> str:
        return "nothing to say"

    async with BareEnd(server, era) as end:
        await wants(end, "debug")
        await call(end, "work")
        assert messages(end) == [("info", "begun: 1"), ("warning", "nearly done")]
        assert end.heard[0]["params"]["logger"] == "app.weather"
        log.error("nobody's call")
        await call(end, "idle")
        assert len(messages(end)) == 2


@both_eras
async def test_only_levels_that_the_client_wants_are_sent(era: Era, log: logging.Logger) -> None:
    """LOG-03, LOG-05: nothing at all for a stateless request that named no level."""
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> str:
        for level in (10, 20, 25, 30, 40, 50, 60, 70):
            log.log(level, "at %d", level)
        return "done"

    async with BareEnd(server, era) as end:
        await wants(end, "error")
        await call(end, "work", "error")
        expected = [("error", 40), ("critical", 50), ("alert", 60), ("emergency", 70)]
        assert messages(end) == [(level, f"at {number}") for level, number in expected]
        end.heard.clear()
        if era == "2026":
            await call(end, "work", None)
            assert messages(end) == []


@both_eras
async def test_each_call_has_its_own_records_also_from_threads_and_tasks(era: Era, log: logging.Logger) -> None:
    server: Server[Any] = Server("logging")

    @server.tool
    def threaded() -> str:
        log.info("in %s", threading.current_thread().name)
        return "done"

    @server.tool
    async def branching() -> str:
        async def branch() -> None:
            log.info("in a task")

        await asyncio.gather(branch(), asyncio.to_thread(log.info, "in another thread"))
        return "done"

    async with BareEnd(server, era) as end, BareEnd(server, era) as other:
        await wants(end, "info")
        await wants(other, "info")
        await asyncio.gather(call(end, "threaded", "info"), call(other, "branching", "info"))
        assert messages(end) == [("info", "in gemel-tool")]
        assert sorted(messages(other)) == [("info", "in a task"), ("info", "in another thread")]


async def test_many_threads_may_log_at_once(log: logging.Logger) -> None:
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> str:
        def many(number: int) -> None:
            for turn in range(20):
                log.info("%d:%d", number, turn)

        await asyncio.gather(*(asyncio.to_thread(many, number) for number in range(8)))
        return "done"

    async with BareEnd(server) as end:
        await call(end, "work")
        found = [data for _, data in messages(end)]
        assert len(found) == 160
        for number in range(8):
            assert [one for one in found if one.startswith(f"{number}:")] == [f"{number}:{n}" for n in range(20)]


async def test_what_is_too_much_is_left_out_and_said(log: logging.Logger) -> None:
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> str:
        for number in range(1010):
            log.info("%d", number)
        return "done"

    async with BareEnd(server) as end:
        await call(end, "work")
        found = messages(end)
        assert len(found) == 1001
        assert found[-1] == ("warning", "10 log messages were left out")


async def test_nothing_that_gemel_logs_and_no_traceback_reaches_a_client(caplog: pytest.LogCaptureFixture) -> None:
    """LOG-08."""
    root, handler = logging.getLogger(), LogToClient()
    root.addHandler(handler)
    try:
        server: Server[Any] = Server("logging")

        @server.tool
        async def work(ctx: Context[Any]) -> str:
            logging.getLogger("gemel").error("internal")
            logging.getLogger("gemel.inner").error("internal")
            try:
                raise OSError("secret path")
            except OSError:
                logging.getLogger("app").exception("it went wrong")
            raise RuntimeError("unexpected")

        async with BareEnd(server) as end:
            params = {"name": "work", "arguments": {}, "_meta": {LOG_LEVEL: "debug"}}
            assert (await end.ask("tools/call", params))["isError"]
            assert messages(end) == [("error", "it went wrong")]
    finally:
        root.removeHandler(handler)


async def test_a_formatter_of_the_users_decides_what_is_sent(log: logging.Logger) -> None:
    (handler,) = log.handlers
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> str:
        log.info("hello")
        return "done"

    async with BareEnd(server) as end:
        await call(end, "work")
        assert messages(end) == [("info", "INFO hello")]


async def test_a_record_that_cannot_be_written_hurts_nobody(
    log: logging.Logger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> str:
        log.info("%d", "no number")
        log.info("fine")
        return "done"

    async with BareEnd(server) as end:
        await call(end, "work")
        assert messages(end) == [("info", "fine")]


async def test_sending_never_logs_to_the_client_again(log: logging.Logger) -> None:
    """What is logged while a message is on its way belongs to no call."""
    server: Server[Any] = Server("logging")

    @server.tool
    async def work() -> str:
        log.info("once")
        return "done"

    class Chatty(BareEnd):
        async def send(self, message: Any, /) -> None:
            log.info("sending %s", message.method)
            await super().send(message)

    async with Chatty(server) as end:
        await call(end, "work")
        assert messages(end) == [("info", "once")]


async def test_a_task_that_outlives_its_call_says_nothing_more(log: logging.Logger) -> None:
    server: Server[Any] = Server("logging")
    go_on = asyncio.Event()
    tasks: list[asyncio.Task[None]] = []

    @server.tool
    async def work() -> str:
        async def later() -> None:
            await go_on.wait()
            log.info("too late")

        tasks.append(asyncio.create_task(later()))
        return "done"

    async with BareEnd(server) as end:
        await call(end, "work")
        go_on.set()
        await tasks[0]
        await asyncio.sleep(0.01)
        assert messages(end) == []


@pytest.mark.parametrize(
    ("number", "level"),
    [
        (0, "debug"),
        (10, "debug"),
        (19, "debug"),
        (20, "info"),
        (25, "notice"),
        (30, "warning"),
        (59, "critical"),
        (99, "emergency"),
    ],
)
def test_every_level_of_python_has_one_of_the_protocol(number: int, level: str) -> None:
    """LOG-02."""
    assert level_of(number) == level


# ---------------------------------------------------------------- the current context


@both_eras
async def test_code_without_a_context_finds_it(era: Era) -> None:
    server: Server[Any] = Server("finding")

    def deep() -> str:
        return f"{current_context().method} {current_context().request_id}"

    @server.tool
    async def asynchronous() -> str:
        await asyncio.sleep(0)
        return deep()

    @server.tool
    def synchronous() -> str:
        return deep()

    async with BareEnd(server, era) as end:
        first = 1 if era == "2026" else 2
        assert await end.text("asynchronous") == f"tools/call {first}"
        assert await end.text("synchronous") == f"tools/call {first + 1}"
    with pytest.raises(GemelError, match="No call is being served here"):
        current_context()


def test_importing_a_name_changes_nothing_about_calls() -> None:
    """A call that began before `current_context` was imported knows its context all the same."""
    code = (
        "import asyncio, gemel\n"
        "server = gemel.Server('x')\n"
        "@server.tool\n"
        "async def late() -> str:\n"
        "    from gemel import current_context\n"
        "    return current_context().method\n"
        "async def main():\n"
        "    async with gemel.Client(server) as client:\n"
        "        assert (await client.call_tool('late')).text == 'tools/call'\n"
        "asyncio.run(main())\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
