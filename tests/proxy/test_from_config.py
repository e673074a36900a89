"""A gateway made of a host's configuration."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gemel import CallError, Client, Server, StartError
from tests.serving import over_http

WEATHER = Server("weather")


@WEATHER.tool
async def forecast(city: str) -> str:
    """The weather in a city."""
    return f"{city}: sunny"


async def test_each_server_has_its_name_as_prefix_and_a_dead_one_is_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gemel")
    async with over_http(WEATHER) as url:
        configuration = {
            "mcpServers": {
                "weather": {"url": url},
                "dead": {"command": "there-is-no-such-program"},
                "secret": {"url": url, "headers": {"Authorization": "${NO_SUCH_TOKEN}"}},
                "off": {"url": url, "disabled": True},
            }
        }
        server = Server.from_config(configuration, instructions="all of it")
        async with Client(server) as client:
            assert client.instructions == "all of it"
            assert client.server_info is not None
            assert client.server_info.name == "gateway"
            assert [tool.name for tool in await client.list_tools()] == ["weather_forecast"]
            assert (await client.call_tool("weather_forecast", {"city": "Oslo"})).text == "Oslo: sunny"
    assert "'secret' is left out" in caplog.text
    assert "NO_SUCH_TOKEN" in caplog.text
    assert "there-is-no-such-program" in caplog.text


async def test_strict_refuses_what_can_not_be_reached() -> None:
    dead = {"mcpServers": {"dead": {"command": "there-is-no-such-program"}}}
    with pytest.raises(CallError):
        await Client(Server.from_config(dead, strict=True)).connect()
    unset = {"mcpServers": {"secret": {"url": "http://127.0.0.1:9/mcp", "headers": {"X": "${NO_SUCH_TOKEN}"}}}}
    with pytest.raises(StartError, match="NO_SUCH_TOKEN"):
        Server.from_config(unset, strict=True)


async def test_every_name_works_and_is_the_prefix_as_far_as_possible() -> None:
    names = ["Salesforce DX", "21st-magic", "com.example/weather", "天气", "git", "git_hub", "git-hub"]
    async with over_http(WEATHER) as url:
        server = Server.from_config({"mcpServers": {name: {"url": url} for name in names}})
        async with Client(server) as client:
            listed = [tool.name for tool in await client.list_tools()]
            assert len(set(listed)) == len(names)
            assert {"Salesforce_DX_forecast", "server-21st-magic_forecast", "com_example_weather_forecast"} <= set(
                listed
            )
            for name in listed:
                assert (await client.call_tool(name, {"city": "Oslo"})).text == "Oslo: sunny"


async def test_a_wrong_entry_is_left_out_and_named(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gemel")
    wrong = {
        "number": {"command": "x", "env": {"PORT": 8080}},
        "header": {"url": "http://h/mcp", "headers": {"A B": ""}},
    }
    async with over_http(WEATHER) as url:
        server = Server.from_config({"mcpServers": {**wrong, "good": {"url": url}}})
        async with Client(server) as client:
            assert [tool.name for tool in await client.list_tools()] == ["good_forecast"]
    assert "'number' is left out: the configuration: server 'number': env.PORT" in caplog.text
    assert "'header' is left out" in caplog.text
    with pytest.raises(StartError, match=r"env.PORT.*; .*A B"):
        Server.from_config({"mcpServers": wrong}, strict=True)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"nowhere\.json can't be read"):
        Server.from_config(tmp_path / "nowhere.json")
