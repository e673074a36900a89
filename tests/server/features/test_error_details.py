"""`error_details`: whether the text of an unexpected exception of a tool reaches the model."""

from __future__ import annotations

from typing import Annotated, Any

import pytest

from gemel import Client, DefinitionError, Depends, Router, Server, ToolError
from tests.server.bare_end import Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
HIDDEN = "Tool 'fail' failed unexpectedly. The server's log says why."


class ShopError(Exception):
    def __str__(self) -> str:
        return self.args[0] if self.args else str(1 // 0)


async def answer(details: Any, error: BaseException, era: Era = "2026") -> str:
    server: Server[Any] = Server("shop", error_details=details)

    @server.tool
    async def fail() -> None:
        raise error

    async with Client(server, era=era) as client:
        result = await client.call_tool("fail", raise_on_error=False)
        assert result.is_error
        return result.text


@both_eras
@pytest.mark.parametrize(
    ("details", "error", "text"),
    [
        (False, ValueError("no moon"), HIDDEN),
        (True, ValueError("no moon"), "Tool 'fail' failed: no moon"),
        (True, ValueError(), "Tool 'fail' failed: ValueError"),
        (True, ToolError("for the model"), "for the model"),
        (True, SystemExit("leaving"), HIDDEN),
        (True, ShopError(), HIDDEN),  # its own __str__ fails
        ([ShopError], ShopError("closed"), "Tool 'fail' failed: closed"),
        ((LookupError, ShopError), KeyError("moon"), "Tool 'fail' failed: 'moon'"),
        ([ShopError], ValueError("no moon"), HIDDEN),
        ([], ValueError("no moon"), HIDDEN),
        (lambda error: f"{type(error).__name__}!", ValueError("secret"), "Tool 'fail' failed: ValueError!"),
        (lambda error: None, ValueError("secret"), HIDDEN),
        (lambda error: 1 // 0, ValueError("secret"), HIDDEN),
    ],
)
async def test_the_option_decides(details: Any, error: BaseException, text: str, era: Era) -> None:
    assert await answer(details, error, era) == text


async def test_the_log_has_it_either_way(caplog: pytest.LogCaptureFixture) -> None:
    await answer(True, ValueError("no moon"))
    assert "ValueError: no moon" in caplog.text


async def test_it_holds_for_dependencies_and_each_mounted_server_has_its_own() -> None:
    def stock() -> int:
        raise ValueError("no database")

    def fail(items: Annotated[int, Depends(stock)]) -> int:
        return items

    open_server, closed = Server("open", error_details=True), Server("closed")
    for server in (open_server, closed):
        server.tool(fail)
    outer = Server("outer")
    outer.mount(open_server, "a")
    outer.mount(closed, "b")
    async with Client(outer) as client:
        assert (await client.call_tool("a_fail", raise_on_error=False)).text == "Tool 'a_fail' failed: no database"
        assert "no database" not in (await client.call_tool("b_fail", raise_on_error=False)).text


@pytest.mark.parametrize("given", ["all", None, ValueError, [int], 1, [ValueError("x")]])
def test_other_values_are_refused(given: Any) -> None:
    with pytest.raises(DefinitionError, match="use True, False, a list of exception types"):
        Server("shop", error_details=given)
    with pytest.raises(DefinitionError, match="use True, False, a list of exception types"):
        Router(error_details=given)
