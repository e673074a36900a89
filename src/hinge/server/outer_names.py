"""What a caller calls the tools, prompts and arguments of a server that stands behind others: for words that go back to them.

Between a caller and a server may stand prefixes and changes of tools; a context knows which, the outermost first. Must not
know who serves what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
from msgspec import Raw

from hinge.errors import InvalidParams, shorten

Named: TypeAlias = Literal["tools", "prompts", "resources"]
#: From an inner name of an argument to the outer one; None for one that the caller doesn't give.
Rename: TypeAlias = Callable[[str], str | None]

_WORDS: dict[Named, str] = {"tools": "tool", "prompts": "prompt", "resources": "resource template"}


class Layer(Protocol):
    """One step outwards."""

    def outer(self, kind: Named, inner: str) -> str | None:
        """The name, or URI, before it; None for what isn't shown there."""
        ...

    def outer_argument(self, tool: str, inner: str) -> str | None:
        """The same for an argument of a tool, by its inner name."""
        ...


def outer_name(ctx: Any, kind: Named, inner: str) -> str | None:
    """What the caller calls it; None for what he isn't shown."""
    name: str | None = inner
    for layer in reversed(ctx.layers):
        name = None if name is None else layer.outer(kind, name)
    return name


def called(ctx: Any, kind: Named, inner: str) -> str:
    """The same for words about what the caller has asked for."""
    return (outer_name(ctx, kind, inner) or inner) if ctx.layers else inner


def argument_names(ctx: Any, tool: str) -> Rename | None:
    """What the caller calls the arguments of a tool; None if nothing stands in between."""
    steps: list[tuple[Layer, str]] = []
    for layer in reversed(ctx.layers):
        steps.append((layer, tool))
        tool = layer.outer("tools", tool) or tool

    def rename(name: str) -> str | None:
        outer: str | None = name
        for layer, inner_tool in steps:
            outer = None if outer is None else layer.outer_argument(inner_tool, outer)
        return outer

    return rename if steps else None


def renamed(arguments: Raw | bytes, rename: Rename) -> Raw:
    """The JSON text of arguments by their outer names, without those that the caller doesn't give."""
    given = msgspec.json.decode(arguments or b"{}", type=dict[str, Raw])
    found = {outer: value for name, value in given.items() if (outer := rename(name)) is not None}
    return Raw(msgspec.json.encode(found))


def unknown(ctx: Any, kind: Named, name: str, known: Iterable[str] = ()) -> InvalidParams:
    """The error for a name that nobody has, with the one that was meant, if there is one like it; all as the caller says them."""
    import difflib

    prefix = outer_name(ctx, kind, "") or ""
    asked = called(ctx, kind, name)
    shown = {outer.removeprefix(prefix): outer for one in known if (outer := outer_name(ctx, kind, one)) is not None}
    near = difflib.get_close_matches(asked.removeprefix(prefix)[:128], shown, n=1)
    hint = f". Did you mean {shown[near[0]]!r}?" if near else ""
    return InvalidParams(f"Unknown {_WORDS[kind]}: {shorten(asked)}{hint}")
