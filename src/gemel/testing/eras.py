"""Run a handler or a test in both eras, and compare."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, Unpack, cast, overload

import msgspec

from gemel.client.client import Client
from gemel.client.options import ClientOptions
from gemel.errors import CallError, DefinitionError, ToolCallError
from gemel.protocol.eras.base import EraName
from gemel.schema.tools import CallToolResult
from gemel.server.server import Server
from gemel.testing.comparison import MessageDifference, comparable, differences, format_differences

ResultT = TypeVar("ResultT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

ERAS: tuple[EraName, ...] = ("2025", "2026")
_CALLBACKS = ("on_elicit", "on_elicit_url", "on_sample", "on_roots")


def both_eras(function: FunctionT) -> FunctionT:
    """Decorate a pytest test to run once in each era: its parameter `era` is "2025", then "2026".

    Args:
        function: The test.

    Returns:
        The decorated test.

    Raises:
        DefinitionError: pytest is not running.
    """
    pytest: Any = sys.modules.get("pytest")
    if pytest is None:
        raise DefinitionError("both_eras needs pytest, which is not running: use in_both_eras")
    marked: FunctionT = pytest.mark.parametrize("era", ERAS)(function)
    return marked


@overload
async def in_both_eras(
    target: Any, use: Callable[[Client], Awaitable[ResultT]], **options: Unpack[ClientOptions]
) -> ResultT: ...


@overload
async def in_both_eras(
    target: Callable[..., Any], use: Mapping[str, Any] | None = None, **options: Unpack[ClientOptions]
) -> CallToolResult: ...


async def in_both_eras(
    target: object,
    use: Callable[[Client], Awaitable[Any]] | Mapping[str, Any] | None = None,
    **options: Unpack[ClientOptions],
) -> Any:
    """Do the same in both eras, and compare the results or errors, and the requests of the server to the client.

    Args:
        target: A server or another target of a Client, or a function that returns a new server for each era. With arguments
            as `use`, a function that is registered as a tool.
        use: An async function that gets a client, for each era; or the arguments of the tool.
        **options: Options of Client: `on_elicit`, `on_sample`, …

    Returns:
        What `use` returned in both eras, or the result of the tool.

    Raises:
        AssertionError: The eras differ; the message shows where.
        Exception: What `use` raised in both eras.

    Example:
        >>> await in_both_eras(forecast, {"city": "Oslo"})
    """
    outcomes = [await _outcome(_target(target, use), era, _use(use, target), options) for era in ERAS]
    first, second = outcomes
    differing = [
        MessageDifference(what, 0, path, one, two)
        for what, in_first, in_second in (
            ("the outcome", _comparable_outcome(first), _comparable_outcome(second)),
            ("the requests to the client", {"requests": first.requests}, {"requests": second.requests}),
        )
        for path, one, two in differences(comparable(in_first, ()), comparable(in_second, ()), path="it", opaque=False)
    ]
    if differing:
        words = (
            format_differences(differing)
            .replace("    recorded:", "    era 2025:")
            .replace("    now:     ", "    era 2026:")
        )
        raise AssertionError(f"The two eras differ:\n{words.replace('  it.', '  ')}") from (first.error or second.error)
    if first.error is not None:
        raise first.error
    return first.result


class _EraOutcome(msgspec.Struct, eq=False):
    """The result of one era."""

    result: Any = None
    error: Exception | None = None
    requests: list[Any] = []


def _target(target: Any, use: object) -> Any:
    """Return the target; a new server for each era if one can be made."""
    if isinstance(use, Mapping) or use is None:
        server: Server[Any] = Server("in both eras")
        server.tool(target)
        return server
    return target() if inspect.isroutine(target) else target


def _use(use: Any, handler: object) -> Callable[[Client], Awaitable[Any]]:
    if callable(use):
        return cast("Callable[[Client], Awaitable[Any]]", use)

    async def call(client: Client) -> Any:
        (tool,) = await client.list_tools()
        return await client.call_tool(tool.name, dict(use or {}))

    return call


async def _outcome(
    target: object, era: EraName, use: Callable[[Client], Awaitable[Any]], options: Mapping[str, Any]
) -> _EraOutcome:
    outcome = _EraOutcome()
    callbacks: Any = {
        name: _recording_callback(name, value, outcome.requests) if name in _CALLBACKS else value
        for name, value in options.items()
    }
    callbacks["era"] = era
    async with Client(target, **callbacks) as client:
        try:
            outcome.result = await use(client)
        except Exception as exc:
            outcome.error = exc
    outcome.requests.sort(key=lambda one: msgspec.json.encode(one))
    return outcome


def _recording_callback(name: str, callback: object, requests: list[Any]) -> Any:
    """Return the callback, which also records its arguments."""
    if not callable(callback):
        return callback

    def record(*arguments: object) -> Any:
        requests.append([name, *(msgspec.to_builtins(one) for one in arguments)])
        return callback(*arguments)

    return record


def _comparable_outcome(outcome: _EraOutcome) -> dict[str, Any]:
    """Return an outcome as values to compare and show; of an error the class and text."""
    error = outcome.error
    if error is None:
        return {"result": result_values(outcome.result)}
    values: dict[str, Any] = {"raised": type(error).__name__, "message": str(error)}
    if isinstance(error, ToolCallError):
        values["result"] = result_values(error.result)
    elif isinstance(error, CallError):
        values["outcome"] = error.outcome.value
    return values


def result_values(result: object) -> Any:
    """Return a result as JSON values if possible, without what only one era has.

    In the handshake era the structured content of a tool must be an object; other values are wrapped in `{"result": …}`.
    """
    try:
        values = _common_members(msgspec.to_builtins(result))
    except (TypeError, ValueError):
        return result
    match values:
        case {"content": _, "structuredContent": {"result": wrapped, **others}} if not others:
            return {**values, "structuredContent": wrapped}
    return values


def _common_members(value: object) -> Any:
    if isinstance(value, dict):
        return {name: _common_members(item) for name, item in value.items() if name not in _ONE_ERA}
    return [_common_members(item) for item in value] if isinstance(value, list) else value


#: Members that only results of the stateless era have.
_ONE_ERA = frozenset({"resultType", "ttlMs", "cacheScope", "_meta"})
