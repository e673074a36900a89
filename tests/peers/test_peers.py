"""What clients, groups and proxies of Gemel make of servers that deviate from the specification: see `rows.py`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import pytest

import gemel
from gemel import Client, ClientGroup, GemelError, Limits, Server
from gemel.protocol.deviations import DEVIATIONS
from tests.peers.rows import ROWS, Over, Row
from tests.peers.servers import served


def cases(rows: Iterable[Row]) -> list[Any]:
    """Each row with each of its transports."""
    return [pytest.param(row, over, id=f"{over}: {row.name}") for row in rows for over in row.over]


#: A client shows every row, a group and a proxy these.
FOR_ALL = [row for row in ROWS if not row.of_client]


#: The names of the errors of Gemel.
ERRORS = [name for name in gemel.__all__ if isinstance(getattr(gemel, name), type)]


async def outcome(connecting: Any, row: Row) -> Any:
    """Connect, do what the row says, and tell what came of it."""
    try:
        async with connecting as client:
            if row.do == "list":
                return [tool.name for tool in await client.list_tools()]
            if row.do == "progress":
                told: list[Any] = []
                await client.call_tool("t", on_progress=told.append)
                return len(told)
            if row.do == "era":
                return client.era, (await client.call_tool("t")).text
            if row.do == "prompts":
                prompts = await client.list_prompts()
                return [(one.name, [argument.name for argument in one.arguments or ()]) for one in prompts]
            if row.do == "prompt":
                return [getattr(one.content, "text", None) for one in (await client.get_prompt("p")).messages]
            if row.do == "read":
                return [(one.uri, one.text) for one in (await client.read_resource("x:1")).contents]
            if row.do == "complete":
                return (await client.complete(prompt="p", argument="a")).values
            if row.do == "both":
                return (await client.call_tool("t")).text, [tool.name for tool in await client.list_tools()]
            return (await client.call_tool("t")).text
    except GemelError as exc:
        return type(exc).__name__


def warned(records: Iterable[logging.LogRecord]) -> list[str]:
    """The deviations that the log names at level WARNING."""
    names = [record.getMessage().partition(":")[0] for record in records if record.levelno == logging.WARNING]
    return [name for name in names if name in DEVIATIONS]


@pytest.mark.parametrize(("row", "over"), cases(ROWS))
async def test_a_client(row: Row, over: Over, caplog: pytest.LogCaptureFixture) -> None:
    async with served(row, over) as target:
        client = Client(target, era=row.era, limits=Limits(**row.limits))
        assert await outcome(client, row) == row.expected
        assert [one.name for one in client.warnings] == list(row.warns)
    assert warned(caplog.records) == list(row.warns)


def of_one_era(row: Row) -> Row:
    """The row for a group or proxy, which have no era of their own."""
    return row._replace(do="call", expected=row.expected[1]) if row.do == "era" else row


@pytest.mark.parametrize(("row", "over"), cases(FOR_ALL))
async def test_a_group(row: Row, over: Over, caplog: pytest.LogCaptureFixture) -> None:
    row = of_one_era(row)
    async with served(row, over) as target:
        group = ClientGroup({"a": target}, era=row.era, limits=Limits(**row.limits))
        got = await outcome(group, row)
    assert got in (row.expected, "NotSent") if row.expected == "ConnectFailed" else got == row.expected
    assert warned(caplog.records) == list(row.warns)


@pytest.mark.parametrize(("row", "over"), cases(FOR_ALL))
async def test_a_proxy(row: Row, over: Over, caplog: pytest.LogCaptureFixture) -> None:
    """What fails upstream is an error of the proxy."""
    row = of_one_era(row)
    async with served(row, over) as target:
        proxy = Server.from_client(Client(target, era=row.era, limits=Limits(**row.limits)))
        got = await outcome(Client(proxy), row)
    assert got in ("PeerError", "ToolCallError", "ConnectFailed") if row.expected in ERRORS else got == row.expected
    assert warned(caplog.records) == list(row.warns)


def test_every_row_has_a_name_of_its_own_and_warns_of_known_deviations() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert {name for row in ROWS for name in row.warns} <= set(DEVIATIONS)
