"""What the tools of smolagents are made of."""

import pytest

pytest.importorskip("smolagents")

from PIL import Image
from smolagents import CodeAgent, LogLevel

from gemel import DefinitionError, Server, ToolError
from gemel.adapters.smolagents import tools
from gemel.sync import Client
from tests.adapters.drivers.smolagents import Writes
from tests.adapters.server import SHORT_NAME, odd_server, server


def test_results_are_structured_or_text_or_images() -> None:
    with Client(server) as client:
        by_name = {tool.name: tool for tool in tools(client)}
        assert by_name["add"](2, 3) in ("5", {"result": 5})
        assert by_name["weather"](city="Oslo") == {"city": "Oslo", "celsius": 21.5}
        assert by_name["get_total"](prices=[1, 2], tax=1) == "total 4"
        assert by_name["get_total"]([1, 2]) == "total 3"
        assert isinstance(by_name["picture"](), Image.Image)
        see, image, *others = by_name["mixed"]()
        assert (see, isinstance(image, Image.Image), len(others)) == ("see", True, 4)
        with pytest.raises(ToolError, match="it failed: no tea"):
            by_name["fail"]("no tea")
        inputs = by_name["get_total"].inputs
        assert (inputs["prices"]["type"], inputs["tax"]["type"]) == ("array", "number")
        assert ("nullable" in inputs["prices"], inputs["tax"]["nullable"]) == (False, True)


def test_code_of_a_model_calls_tools() -> None:
    code = 'city = weather("Oslo")["city"]\nfinal_answer(f"{city}: {get_total(prices=[1, 2])}")'
    with Client(server) as client:
        agent = CodeAgent(tools(client), Writes(code), verbosity_level=LogLevel.OFF)
        assert str(agent.run("go")) == "Oslo: total 3"


def test_two_names_that_become_one_are_refused() -> None:
    twice = Server("twice")
    twice.tool(lambda: "a", name="a-b")
    twice.tool(lambda: "b", name="a_b")
    with Client(twice) as client, pytest.raises(DefinitionError, match="Several tools become 'a_b'"):
        tools(client)


def test_a_name_that_models_do_not_take_is_a_short_one() -> None:
    with Client(odd_server) as client:
        (tool,) = tools(client)
        assert (tool.name, tool()) == (SHORT_NAME, "found")
