"""`gemel proxy --policy FILE --receipts FILE`: rules and receipts in front of servers that somebody else wrote."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, ElicitFormParams
from gemel.receipts import verify
from tests.ask_by_page.visitor import Visitor
from tests.quick_commands import QUICK
from tests.transports.loops import until

SHOP = """
from gemel import Server

server = Server("anything")

@server.tool(annotations={"read_only_hint": True})
def price(item: str) -> int:
    return len(item)

@server.tool
def buy(item: str) -> str:
    return f"bought {item}"

@server.tool
def close() -> None: ...
"""
RULES = """
trust_hints = ["shop"]
[[rule]]
server = "shop"
hints.read_only = true
effect = "allow"
[[rule]]
tool = "*buy"
arguments.item = "tea"
effect = "ask"
"""
ERAS = ["2025", "2026"]
KEY = "a key of more than 16 bytes"


@pytest.fixture
def configuration(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "policy.toml").write_text(RULES)
    entry = {"command": sys.executable, "args": ["-m", "gemel", "run", str(tmp_path / "shop.py")]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry}}))
    return str(tmp_path / "mcp.json")


def proxy(target: str, tmp_path: Path, *words: str) -> list[str]:
    policy = ["--policy", str(tmp_path / "policy.toml")]
    return [sys.executable, "-m", "gemel", "proxy", target, "--to", "stdio", *policy, *words]


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("target", "prefix"), [("{}", "shop_"), ("{}:shop", "")])
async def test_a_proxy_decides_and_writes_receipts(
    target: str, prefix: str, era: Any, configuration: str, tmp_path: Path
) -> None:
    asked: list[str] = []

    def person(form: ElicitFormParams) -> dict[str, bool]:
        asked.append(form.message.splitlines()[0])
        return {"allow": True}

    words = ["--receipts", str(tmp_path / "receipts.jsonl"), "--receipts-key-env", "KEY_OF_RECEIPTS"]
    command = proxy(target.format(configuration), tmp_path, *words)
    async with Client(command, era=era, on_elicit=person, env={"KEY_OF_RECEIPTS": KEY}) as client:
        assert [tool.name for tool in await client.list_tools()] == [f"{prefix}price", f"{prefix}buy"]
        assert (await client.call_tool(f"{prefix}price", {"item": "tea"})).text == "3"
        assert (await client.call_tool(f"{prefix}buy", {"item": "tea"})).text == "bought tea"
        assert (await client.call_tool(f"{prefix}buy", {"item": "gold"}, raise_on_error=False)).is_error
    assert asked == [f"Allow {prefix}buy of shop?"]
    (report,) = verify(tmp_path / "receipts.jsonl", keys=[KEY])
    assert report.receipts == 3


@pytest.mark.skipif(sys.platform == "win32", reason="the browser is a shell script")
@pytest.mark.parametrize("era", ERAS)
async def test_a_client_without_forms_is_asked_on_a_page(era: Any, configuration: str, tmp_path: Path) -> None:
    opened, browser = tmp_path / "opened", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    command = proxy(configuration, tmp_path)
    async with Client(command, era=era, env={"BROWSER": str(browser)}) as client, Visitor() as visitor:
        asked = await client.call_tool("shop_buy", {"item": "tea"}, raise_on_error=False)
        assert asked.is_error
        assert "Allow shop_buy of shop?" in asked.text
        await until(opened.exists)
        await visitor.answer(opened.read_text().strip())
        assert (await client.call_tool("shop_buy", {"item": "tea"})).text == "bought tea"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--policy", "none.toml"], "gemel: none.toml: the policy can't be read: No such file or directory\n"),
        (["--receipts-key-env", "KEY"], "gemel: --receipts-key-env needs --receipts\n"),
        (
            ["--receipts", "r.jsonl", "--receipts-key-env", "NOT_SET"],
            "gemel: --receipts-key-env NOT_SET: this environment variable is not set\n",
        ),
    ],
)
def test_what_can_not_be_used_is_one_line(words: list[str], error: str, configuration: str) -> None:
    done = QUICK.run("proxy", configuration, *words)
    assert (done.returncode, done.stderr) == (1, error)
