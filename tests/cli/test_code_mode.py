"""`--code` of `gemel run` and `gemel proxy`: code mode around whatever is served, also around all servers of a configuration."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gemel import Client
from tests.quick_commands import QUICK

SHOP = """
from gemel import Server, ToolAnnotations

calls = []

async def note(ctx, call_next):
    if ctx.method == "tools/call":
        calls.append(ctx.decoded_params["name"])
    return await call_next(ctx)

server = Server("shop", middleware=[note])

@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def price(item: str) -> int:
    "The price of an item."
    return len(item)

@server.tool
def seen() -> list[str]:
    "The calls that the middleware saw."
    return calls
"""
GEMEL = (sys.executable, "-m", "gemel")
WITHOUT_SANDBOX = (
    sys.executable,
    "-c",
    "import sys; sys.modules['pydantic_monty'] = None; from gemel.cli import main; sys.exit(main(sys.argv[1:]))",
)
SCRIPTS = ["search_tools", "query_code", "run_code"]
SEARCH = ["search_tools", "call_tool"]
ERAS = ["2025", "2026"]
needs_sandbox = pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed")


@pytest.fixture
def shop(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SHOP)
    return str(tmp_path / "shop.py")


@pytest.fixture
def configuration(shop: str, tmp_path: Path) -> str:
    """Two servers, as hosts have them in a file."""
    entry = {"command": sys.executable, "args": ["-m", "gemel", "run", shop]}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"shop": entry, "store": entry}}))
    return str(tmp_path / "mcp.json")


def started(command: Sequence[str], era: Any) -> Client:
    return Client(list(command), era=era)


async def names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


@needs_sandbox
@pytest.mark.parametrize("era", ERAS)
async def test_run_serves_a_file_in_code_mode_outside_of_its_middleware(shop: str, era: str) -> None:
    async with started([*GEMEL, "run", shop, "--code"], era) as client:
        assert await names(client) == SCRIPTS
        code = "from shop import price, seen\nawait price(item='tea')\nawait seen()"
        assert json.loads((await client.call_tool("run_code", {"code": code})).text) == ["price", "seen"]


@needs_sandbox
@pytest.mark.parametrize("era", ERAS)
async def test_proxy_serves_all_servers_of_a_configuration_in_code_mode(configuration: str, era: str) -> None:
    async with started([*GEMEL, "proxy", configuration, "--to", "stdio", "--code"], era) as client:
        assert await names(client) == SCRIPTS
        code = "import shop, store\n[await shop.price(item='tea'), await store.price(item='coffee')]"
        assert (await client.call_tool("run_code", {"code": code})).text == "[3,6]"


@needs_sandbox
@pytest.mark.parametrize("era", ERAS)
async def test_query_code_of_a_proxy_calls_only_servers_that_are_trusted(configuration: str, era: str) -> None:
    trusting = ["--code", "--trust-hints", "sto*", "--trust-hints", "other"]
    async with started([*GEMEL, "proxy", configuration, "--to", "stdio", *trusting], era) as client:
        arguments = {"code": "import store\nawait store.price(item='tea')"}
        assert (await client.call_tool("query_code", arguments)).text == "3"
        for code in ("import shop\nawait shop.price(item='tea')", "import store\nawait store.seen()"):
            assert (await client.call_tool("query_code", {"code": code}, raise_on_error=False)).is_error


@needs_sandbox
async def test_one_server_of_a_configuration_is_trusted_by_its_name(configuration: str) -> None:
    command = [*GEMEL, "proxy", f"{configuration}:store", "--to", "stdio", "--code", "--trust-hints", "store"]
    async with started(command, "2026") as client:
        code = "import store\nawait store.price(item='tea')"
        assert (await client.call_tool("query_code", {"code": code})).text == "3"


def test_trusted_hints_need_something_that_looks_at_them(configuration: str) -> None:
    done = QUICK.run("proxy", configuration, "--trust-hints", "shop")
    assert (done.returncode, done.stderr) == (1, "gemel: --trust-hints needs --policy or --code\n")


@needs_sandbox
@pytest.mark.parametrize("era", ERAS)
async def test_proxy_serves_one_server_in_code_mode(shop: str, era: str) -> None:
    async with started([*GEMEL, "proxy", "--code", shop, "--to", "stdio"], era) as client:
        assert await names(client) == SCRIPTS
        found = (await client.call_tool("search_tools", {"query": "price"})).text
        module = found.split("from ")[1].split()[0]
        code = f"from {module} import price\nawait price(item='tea')"
        assert (await client.call_tool("run_code", {"code": code})).text == "3"


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("words", [["run", "{shop}"], ["proxy", "{configuration}:shop", "--to", "stdio"]], ids=" ".join)
async def test_searching_needs_no_extra(words: list[str], era: str, shop: str, configuration: str) -> None:
    given = [word.format(shop=shop, configuration=configuration) for word in words]
    async with started([*WITHOUT_SANDBOX, *given, "--code=search"], era) as client:
        assert await names(client) == SEARCH
        found = (await client.call_tool("search_tools", {"query": "price"})).text
        module = found.split("from ")[1].split()[0]
        result = await client.call_tool("call_tool", {"name": f"{module}.price", "arguments": {"item": "tea"}})
        assert result.text == "3"


@pytest.mark.parametrize("era", ERAS)
async def test_proxy_serves_all_servers_of_a_configuration_each_with_its_name(configuration: str, era: str) -> None:
    async with started([*GEMEL, "proxy", configuration, "--to", "stdio"], era) as client:
        assert sorted(await names(client)) == ["shop_price", "shop_seen", "store_price", "store_seen"]
    async with started([*GEMEL, "proxy", f"{configuration}:shop", "--to", "stdio"], era) as client:
        assert sorted(await names(client)) == ["price", "seen"]


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (["--header", "A:b"], "--header"),
        (["--env", "A=b"], "--env"),
        (["--cwd", "."], "--cwd"),
        (["--", "more"], "-- ARGS"),
    ],
)
def test_options_of_one_server_need_its_name(words: list[str], flag: str, configuration: str) -> None:
    done = QUICK.run("proxy", configuration, *words)
    expected = f"gemel: {flag} is for one server: name it, as in {configuration}:NAME\n"
    assert (done.returncode, done.stderr) == (1, expected)


def test_a_mode_that_there_is_not_is_an_error(shop: str) -> None:
    done = QUICK.run("run", shop, "--code=all")
    assert done.returncode == 2
    assert "--code" in done.stderr


@needs_sandbox
@pytest.mark.parametrize("target", ["{configuration}", "{shop}"])
async def test_a_proxy_in_code_mode_is_served_by_several_processes_that_share_a_backend(
    target: str, shop: str, configuration: str, tmp_path: Path
) -> None:
    words = ["proxy", target.format(shop=shop, configuration=configuration), "--code", "--workers", "2", "--port", "0"]
    alone = QUICK.run(*words)
    assert alone.returncode == 1
    assert "--backend" in alone.stderr
    assert len(alone.stderr.splitlines()) == 1
    backend = f"sqlite:///{tmp_path}/proxy.db"
    process = await asyncio.create_subprocess_exec(*GEMEL, *words, "--backend", backend, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while "http://" not in (line := (await process.stderr.readline()).decode()):
                assert line
        url = next(word for word in line.split() if word.startswith("http://"))
        async with Client(url) as client:
            assert await names(client) == SCRIPTS
    finally:
        process.terminate()
        await process.wait()
