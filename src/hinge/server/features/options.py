"""The options of tools, prompts and of servers made from something else, as type checkers see them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypedDict

from hinge.errors import DefinitionError
from hinge.schema.base import Icon
from hinge.schema.tools import ToolAnnotations
from hinge.server.features.visibility import Caller


class PromptOptions(TypedDict, total=False):
    """What can be said of a prompt, and of a tool."""

    #: In place of the function's; the same as the first argument of the decorator.
    name: str | None
    #: For people; the name stays what it is.
    title: str | None
    #: In place of the docstring's.
    description: str | None
    icons: Sequence[Icon | str] | None
    #: The `_meta` of the listing.
    meta: Mapping[str, Any] | None
    #: Words by which `server.disable` and `server.visibility` find it; clients don't see them.
    tags: Collection[str]
    #: Who sees it; for everybody else it doesn't exist.
    visible: Callable[[Caller], bool] | None
    #: Whether a sync function runs in a worker thread (the default) or, being trivial, at once on the event loop.
    blocking: bool


class ToolOptions(PromptOptions, total=False):
    """What can be said of a tool."""

    annotations: ToolAnnotations | Mapping[str, Any] | None
    #: In place of what the parameters say; the function then takes all arguments as one dict.
    input_schema: Mapping[str, Any] | None
    #: In place of what the return annotation says, and results are held to it; None for no structured content.
    output_schema: Mapping[str, Any] | None
    #: Seconds that one call may take. The time in which a person is asked doesn't count, and each round of questions
    #: of a stateless client begins anew. Then the function is cancelled and the call fails. A sync function in a thread
    #: can't be stopped: the call fails all the same, the thread goes on until the function returns, and its
    #: next use of `ctx.sync` raises.
    timeout: float | None
    #: How many calls of this tool run at once, in this process.
    concurrency: int | None
    #: How many more wait for their turn, at most `Limits.turn` seconds; what comes on top is refused (Overloaded).
    waiting: int


def check_options(what: str, given: Mapping[str, Any], kind: type) -> None:
    """Raises DefinitionError for an option that doesn't exist: names the one that was meant."""
    known = kind.__annotations__
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
            raise DefinitionError(f"{what} has no option {name!r}: {hint}")


def with_name(what: str, name: str | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with the name that was given before them. Raises DefinitionError for a second name."""
    if name is None:
        return options
    if options.get("name") is not None:
        raise DefinitionError(f"{what} has two names, {name!r} and {options['name']!r}: give one")
    return {**options, "name": name}


def check_text(given: Any, advice: str) -> None:
    """Raises DefinitionError with the advice for a decorator that was used without its parentheses."""
    if not isinstance(given, str):
        raise DefinitionError(advice)
