"""Code mode over HTTP: what a client chooses by its URL, questions of concurrent scripts, and what ends with a connection."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from gemel import CallError, Client, ConnectFailed, PeerError, ToolError
from gemel.code import CodeMode
from gemel.policies import Policy
from tests.code.test_mode import Shop, agree, both_eras, run
from tests.serving import connected, over_http
from tests.support import CLIENT_CAPABILITIES, CLIENT_INFO, PROTOCOL_VERSION, V2025_11, V2026_07

pytest.importorskip("pydantic_monty")

CODE = ["search_tools", "query_code", "run_code"]
SEARCH = ["search_tools", "call_tool"]
ALL = ["list_issues", "charge", "close_issue", "fail", "wait"]
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
INFO = {"name": "bare", "version": "1"}


async def names(url: str, era: Any) -> list[str]:
    async with Client(url, era=era) as client:
        return [tool.name for tool in await client.list_tools()]


@both_eras
async def test_a_client_chooses_its_list_by_the_url(era: Any) -> None:
    async with over_http(Shop(CodeMode("search")).server) as url:
        assert await names(url, era) == SEARCH
        assert await names(f"{url}?other=all", era) == SEARCH
        assert await names(f"{url}?tools=code", era) == CODE
        assert await names(f"{url}?a=b&tools=search", era) == SEARCH
        assert await names(f"{url}?tools=%61ll", era) == ALL


@both_eras
async def test_tools_that_are_always_listed_come_first_and_once(era: Any) -> None:
    async with over_http(Shop(CodeMode(always=["charge", "drop_tables", "nothing"])).server) as url:
        assert await names(url, era) == ["charge", *CODE]
        assert await names(f"{url}?tools=search", era) == ["charge", *SEARCH]
        assert await names(f"{url}?tools=all", era) == ALL


@both_eras
async def test_an_operator_can_fix_the_list(era: Any) -> None:
    async with over_http(Shop(CodeMode(by_url=False)).server) as url:
        for query in ("", "?tools=all", "?tools=nonsense"):
            assert await names(url + query, era) == CODE


@both_eras
@pytest.mark.parametrize("query", ["tools=", "tools=codes", "tools=ALL", "tools=all&tools=all", "tools=code&tools=all"])
async def test_a_list_that_there_is_not_is_refused_at_once(era: Any, query: str) -> None:
    async with over_http(Shop().server) as url:
        with pytest.raises((PeerError, ConnectFailed), match="use one of code, search, all"):
            await names(f"{url}?{query}", era)


async def test_requests_with_an_unknown_list_are_bad_requests() -> None:
    """The status says it in both eras, and `initialize` makes no session."""
    shop = Shop()
    meta = {PROTOCOL_VERSION: V2026_07, CLIENT_INFO: INFO, CLIENT_CAPABILITIES: {}}
    charge = {"name": "charge", "arguments": {"card": "1"}}
    async with over_http(shop.server) as url, httpx.AsyncClient(headers=HEADERS) as http:
        for method, params in (("server/discover", {}), ("tools/list", {}), ("tools/call", charge)):
            headers = {"Mcp-Protocol-Version": V2026_07, "Mcp-Method": method}
            headers |= {"Mcp-Name": "charge"} if method == "tools/call" else {}
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
            response = await http.post(f"{url}?tools=bad", headers=headers, json=message)
            assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
        params = {"protocolVersion": V2025_11, "capabilities": {}, "clientInfo": INFO}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        response = await http.post(f"{url}?tools=bad", json=message)
        assert (response.status_code, response.json()["error"]["code"]) == (400, -32600)
        assert "mcp-session-id" not in response.headers
    assert shop.log == []


@both_eras
async def test_a_list_changes_nothing_that_is_allowed(era: Any) -> None:
    rules = {"default": "allow", "rule": [{"tool": "charge", "effect": "deny"}]}
    shop = Shop(CodeMode(), Policy(rules))
    async with over_http(shop.server) as url:
        for mode in ("code", "search", "all"):
            async with Client(f"{url}?tools={mode}", era=era) as client:
                for hidden in ("charge", "drop_tables"):
                    ways: dict[str, list[tuple[str, dict[str, Any]]]] = {
                        "all": [(hidden, {"card": "1"})],
                        "search": [
                            (hidden, {"card": "1"}),
                            ("call_tool", {"name": hidden, "arguments": {"card": "1"}}),
                        ],
                        "code": [
                            (hidden, {"card": "1"}),
                            ("run_code", {"code": f"from shop import {hidden}\nawait {hidden}(card='1')"}),
                            ("query_code", {"code": f"from shop import {hidden}\nawait {hidden}(card='1')"}),
                        ],
                    }
                    for name, arguments in ways[mode]:
                        with pytest.raises((ToolError, CallError)):
                            await client.call_tool(name, arguments)
                assert "issue 2" in (await client.call_tool("list_issues", {"repo": "a"})).text
    assert set(shop.log) == {"list a"}


TWO_QUESTIONS = (
    "import asyncio\nfrom shop import charge, close_issue\npaid = await charge(card='{card}')\n"
    "[paid, await close_issue(number={card}0), await close_issue(number={card}1)]"
)


@both_eras
async def test_ten_scripts_at_a_time_with_two_questions_each(era: Any) -> None:
    shop, asked = Shop(), list[str]()

    async def answer(form: Any) -> dict[str, bool]:
        asked.append(form.message)
        await asyncio.sleep(0)
        return agree(form)

    async with connected(shop.server, "http", era=era, on_elicit=answer) as client:
        texts = await asyncio.gather(*(run(client, TWO_QUESTIONS.format(card=card)) for card in range(1, 11)))
    assert texts == ['["charged","closed","closed"]'] * 10
    assert sorted(asked) == sorted(f"Close {card}{number}?" for card in range(1, 11) for number in range(2))
    assert sorted(line for line in shop.log if "charge" in line) == sorted(f"charge {card}" for card in range(1, 11))
    assert len([line for line in shop.log if "close" in line]) == 20


@both_eras
async def test_calls_of_a_script_end_when_their_caller_gives_up(era: Any) -> None:
    shop = Shop()
    async with connected(shop.server, "http", era=era) as client:
        call = asyncio.create_task(run(client, "from shop import wait\nawait wait()"))
        await asyncio.wait_for(shop.waiting.wait(), 30)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.wait_for(shop.ended.wait(), 30)


@both_eras
async def test_calls_of_a_script_end_when_their_caller_leaves(era: Any) -> None:
    shop = Shop()
    async with over_http(shop.server) as url:
        async with Client(url, era=era) as client:
            call = asyncio.create_task(run(client, "from shop import wait\nawait wait()"))
            await asyncio.wait_for(shop.waiting.wait(), 30)
        await asyncio.wait_for(shop.ended.wait(), 30)
        await asyncio.gather(call, return_exceptions=True)
