"""The same in both eras: a handler, or whatever a test does with a client, run twice and compared."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, cast, overload

import msgspec

from hinge.client.client import Client
from hinge.errors import CallError, DefinitionError, ToolCallError
from hinge.protocol.eras.base import EraName
from hinge.schema.tools import CallToolResult
from hinge.server.server import Server
from hinge.testing.comparing import Difference, differences, plain, told

ResultT = TypeVar("ResultT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

ERAS: tuple[EraName, ...] = ("2025", "2026")
_CALLBACKS = ("on_elicit", "on_elicit_url", "on_sample", "on_roots")


def both_eras(function: FunctionT) -> FunctionT:
    """Run a pytest test once in each era: its parameter `era` is "2025", then "2026".

    For tests that hold in each era by themselves; `in_both_eras` compares the two.
    """
    pytest: Any = sys.modules.get("pytest")  # whoever runs its tests has loaded it
    if pytest is None:
        raise DefinitionError("both_eras marks tests for pytest, which isn't running: use in_both_eras")
    marked: FunctionT = pytest.mark.parametrize("era", ERAS)(function)
    return marked


@overload
async def in_both_eras(target: Any, use: Callable[[Client], Awaitable[ResultT]], **options: Any) -> ResultT: ...


@overload
async def in_both_eras(
    target: Callable[..., Any], use: Mapping[str, Any] | None = None, **options: Any
) -> CallToolResult: ...


async def in_both_eras(
    target: Any, use: Callable[[Client], Awaitable[Any]] | Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Do the same in both eras and compare; gives back what both came to.

    - `in_both_eras(server, use)`: `await use(client)` with a client of each era. `target` is a Server, another target of a
      Client, or a function that makes a new Server for each era, where calls leave something behind.
    - `in_both_eras(handler, {"city": "Oslo"})`: a function as it would be registered as a tool, and its arguments. What it
      comes to is the result of the tool call.

    Compared are the results, or the errors, and what the client was asked on the way. `options` are those of Client
    (`on_elicit`, `on_sample`, …). Raises what both eras raised, or AssertionError that tells the differences.
    """
    outcomes = [await _outcome(_target(target, use), era, _use(use, target), options) for era in ERAS]
    first, second = outcomes
    found = [
        Difference(what, 0, path, one, two)
        for what, in_first, in_second in (
            ("the outcome", _judged(first), _judged(second)),
            ("what the client was asked", {"asked": first.asked}, {"asked": second.asked}),
        )
        for path, one, two in differences(plain(in_first, ()), plain(in_second, ()), path="it", opaque=False)
    ]
    if found:
        words = told(found).replace("    recorded:", "    era 2025:").replace("    now:     ", "    era 2026:")
        raise AssertionError(f"The two eras differ:\n{words.replace('  it.', '  ')}") from (first.error or second.error)
    if first.error is not None:
        raise first.error
    return first.result


class _Outcome(msgspec.Struct, eq=False):
    """What one era came to."""

    result: Any = None
    error: Exception | None = None
    asked: list[Any] = []


def _target(target: Any, use: Any) -> Any:
    """A new server for each era, where one can be made."""
    if isinstance(use, Mapping) or use is None:
        server: Server[Any] = Server("in both eras")
        server.tool(target)
        return server
    return target() if inspect.isroutine(target) else target


def _use(use: Any, handler: Any) -> Callable[[Client], Awaitable[Any]]:
    if callable(use):
        return cast("Callable[[Client], Awaitable[Any]]", use)

    async def call(client: Client) -> Any:
        (tool,) = await client.list_tools()
        return await client.call_tool(tool.name, dict(use or {}))

    return call


async def _outcome(
    target: Any, era: EraName, use: Callable[[Client], Awaitable[Any]], options: Mapping[str, Any]
) -> _Outcome:
    found = _Outcome()
    heard = {name: _heard(name, value, found.asked) if name in _CALLBACKS else value for name, value in options.items()}
    async with Client(target, **{**heard, "era": era}) as client:
        try:
            found.result = await use(client)
        except Exception as exc:
            found.error = exc
    found.asked.sort(key=lambda one: msgspec.json.encode(one))
    return found


def _heard(name: str, callback: Any, asked: list[Any]) -> Any:
    """The same callable, which also notes what it was asked."""
    if not callable(callback):
        return callback

    def noting(*arguments: Any) -> Any:
        asked.append([name, *(msgspec.to_builtins(one) for one in arguments)])
        return callback(*arguments)

    return noting


def _judged(outcome: _Outcome) -> dict[str, Any]:
    """An outcome as values that can be compared and shown; of an error its kind and words."""
    error = outcome.error
    if error is None:
        return {"result": _values(outcome.result)}
    said: dict[str, Any] = {"raised": type(error).__name__, "words": str(error)}
    if isinstance(error, ToolCallError):
        said["result"] = _values(error.result)
    elif isinstance(error, CallError):
        said["outcome"] = error.outcome.value
    return said


def _values(result: Any) -> Any:
    """A result in values of JSON where it has such a form; what belongs to one era alone is left out."""
    try:
        found = msgspec.to_builtins(result)
    except (TypeError, ValueError):
        return result
    return _of_both(found)


def _of_both(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _of_both(item) for name, item in value.items() if name not in _ONE_ERA}
    return [_of_both(item) for item in value] if isinstance(value, list) else value


#: Members that only results of the stateless era have.
_ONE_ERA = frozenset({"resultType", "ttlMs", "cacheScope", "_meta"})
