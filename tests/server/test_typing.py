"""What a type checker says of middleware and handlers: those for another state of the lifespan are rejected."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_types import mypy

PROGRAM = """
from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gemel import AccessLog, CallNext, Context, Middleware, RateLimit, ResultLimit, Server


class Database:
    def query(self) -> str:
        return "rows"


class Other: ...


@asynccontextmanager
async def lifespan(server: Server[Database]) -> AsyncIterator[Database]:
    yield Database()


async def right(ctx: Context[Database], call_next: CallNext) -> Any:
    ctx.state.query()
    return await call_next(ctx.replace())


async def wrong(ctx: Context[Other], call_next: CallNext) -> Any:
    return await call_next(ctx)


async def any_state(ctx: Context[Any], call_next: CallNext) -> Any:
    return await call_next(ctx)


async def no_state(ctx: Context, call_next: CallNext) -> object:
    return await call_next(ctx)


class Counting:
    async def __call__(self, ctx: Context[Database], call_next: CallNext) -> Any:
        return await call_next(ctx)


class CountingOther:
    async def __call__(self, ctx: Context[Other], call_next: CallNext) -> Any:
        return await call_next(ctx)


server = Server("x", lifespan=lifespan)
server.add_middleware(right)
server.add_middleware(any_state)
server.add_middleware(no_state)
server.add_middleware(Counting())
server.add_middleware(AccessLog())
server.add_middleware(RateLimit(5))
server.add_middleware(ResultLimit(1000))
server.add_middleware(wrong)  # rejected
server.add_middleware(CountingOther())  # rejected

Server("x", lifespan=lifespan, middleware=[right])
Server("x", lifespan=lifespan, middleware=[right, any_state, no_state, Counting(), AccessLog()])
Server("x", lifespan=lifespan, middleware=(right, any_state))
Server("x", lifespan=lifespan, middleware=[wrong])  # rejected
Server("x", lifespan=lifespan, middleware=[right, wrong])  # rejected
Server("x", lifespan=lifespan, middleware=[CountingOther()])  # rejected
Server[Database]("x", middleware=[wrong])  # rejected
Server("x", middleware=[right])
Server("x", middleware=[any_state, AccessLog()])

listed: list[Middleware[Database]] = [right, any_state]
listed.append(wrong)  # rejected
Server("x", lifespan=lifespan, middleware=listed)
plain: list[Middleware] = [right, wrong, any_state]
Server("x", lifespan=lifespan, middleware=plain)


@server.add_middleware
async def added(ctx: Context[Database], call_next: CallNext) -> Any:
    return await call_next(ctx)


@server.add_middleware  # rejected
async def added_wrong(ctx: Context[Other], call_next: CallNext) -> Any:
    return await call_next(ctx)


@server.request("acme/right")
async def handle(ctx: Context[Database], params: Any) -> Any:
    return ctx.state.query()


@server.request("acme/any")
async def handle_any(ctx: Context, params: Any) -> Any: ...


@server.request("acme/wrong")  # rejected
async def handle_wrong(ctx: Context[Other], params: Any) -> Any: ...


@server.notification("notifications/right")
async def noted(ctx: Context[Database], params: Any) -> None: ...


@server.notification("notifications/wrong")  # rejected
async def noted_wrong(ctx: Context[Other], params: Any) -> None: ...


untyped: Server = Server("x")
untyped.add_middleware(right)
untyped.add_middleware(wrong)


@untyped.request("acme/any")
async def handle_untyped(ctx: Context[Other], params: Any) -> Any: ...
"""

#: The lines that are to be rejected.
REJECTED = {number for number, line in enumerate(PROGRAM.split("\n"), 1) if line.endswith("# rejected")}


@pytest.mark.long
@pytest.mark.timeout(120)  # without its cache mypy reads all of Gemel first
def test_mypy_rejects_middleware_and_handlers_for_another_state(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    found = mypy([tmp_path / "program.py"], tmp_path)
    assert {int(number) for number in re.findall(r"program\.py:(\d+): error", found)} == REJECTED, found


@pytest.mark.long
@pytest.mark.timeout(120)  # it starts Node and reads all of Gemel
def test_pyright_rejects_middleware_and_handlers_for_another_state(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(tmp_path / "program.py")]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=110, check=False).stdout
    assert {int(number) for number in re.findall(r"program\.py:(\d+):\d+ - error", found)} == REJECTED, found
