"""The middleware chain of a server: its order, outermost first.

1. telemetry, if the process has a tracer or meter provider
2. shaping results that middleware made itself for the caller's revision
3. the middleware that was added, in that order
4. leaving out repeated text, for `omit_repeated_text=True`
5. the handler, which enters the lifespan of the connection around a function of the user

Chains are built when serving starts and when middleware is added, never per call.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from gemel.errors import DefinitionError
from gemel.protocol.middleware import checked, compose
from gemel.protocol.records import RefusedMessage
from gemel.server.context import Context, StateT
from gemel.server.dispatch import CallNext, Chains, Dispatch, run_handler
from gemel.server.functions.annotations import behind_partials, place_of, unwrapped
from gemel.server.functions.foreign import foreign_class, library_of
from gemel.server.injection import without_markers

#: For a server with this type of state; without one, for any.
Middleware: TypeAlias = Callable[[Context[StateT], CallNext], Awaitable[Any]]


@runtime_checkable
class ResourceKeeper(Protocol):
    """A middleware that may serve resources of its own."""

    @property
    def keeps_resources(self) -> bool:
        """Whether it does."""
        ...

    @property
    def shared(self) -> bool:
        """Whether other processes of the server find them, too."""
        ...

    async def keeps(self, uri: str) -> bool:
        """Whether it has a resource of this URI, whoever may read it."""
        ...


@runtime_checkable
class RefusalObserver(Protocol):
    """A middleware that is told of messages that were refused before any middleware."""

    def refused(self, message: RefusedMessage, /) -> None:
        """Take note of a message. This must not block; what it raises is logged."""


#: What a middleware of FastMCP reads of its context, and a Context does not have.
_FOREIGN_FIELDS = frozenset({"fastmcp_context", "message", "source", "type"})
MiddlewareT = TypeVar("MiddlewareT", bound=Callable[..., Any])


def check_middleware(middleware: MiddlewareT) -> MiddlewareT:
    """The same middleware. Raises DefinitionError for what can't be one, and for one that is made for another library."""
    without_markers(checked(middleware))
    foreign = foreign_class(type(middleware))
    field = _foreign_field(middleware)
    if foreign is not None or field is not None:
        reason = (
            f"is middleware of {library_of(foreign)}" if foreign else f"reads `{field}`, which a Context does not have"
        )
        raise DefinitionError(
            f"{place_of(middleware).name}() {reason}: write `async def middleware(ctx, call_next)`, which finds the request at "
            "ctx.method and ctx.params"
        )
    return middleware


def _foreign_field(middleware: Callable[..., Any]) -> str | None:
    """The member of its context that only other libraries have, if its code reads one."""
    function = unwrapped(middleware)
    code = getattr(function, "__code__", None)
    if code is None or "hasattr" in code.co_names or _FOREIGN_FIELDS.isdisjoint(code.co_names):
        return None
    import dis

    names = code.co_varnames[: code.co_argcount]
    own = 0 if inspect.isfunction(behind_partials(middleware)) else 1  # `self`
    for variable, attribute in pairwise(dis.get_instructions(code)):
        reads_context = variable.opname.startswith("LOAD_FAST") and variable.argval in names[own : own + 1]
        if reads_context and attribute.opname == "LOAD_ATTR" and attribute.argval in _FOREIGN_FIELDS:
            return str(attribute.argval)
    return None


def build_chains(
    dispatch: Dispatch,
    middleware: Sequence[Middleware],
    *,
    observer: Middleware | None,
    nested_observer: Middleware | None,
    innermost: Middleware | None,
) -> Chains:
    """Compose the chains; what is None is left out. `innermost` sees only what the client requested, `nested_observer` only
    what handlers request.
    """
    inner = list(map(_suspendable, middleware))
    outer = [observer] if observer else []
    shaping = [innermost] if innermost else []
    return Chains(
        request=compose([*outer, *([dispatch.finish_results] if inner else []), *inner, *shaping], dispatch.request),
        notification=compose([*outer, *inner], dispatch.notification),
        mounted=compose(inner, dispatch.within),
        nested=compose([*([nested_observer] if nested_observer else []), *inner], dispatch.within),
    )


def _suspendable(middleware: Middleware) -> Middleware:
    """A middleware that may request input: if it has to wait, those around it get the result of the round."""

    async def run(ctx: Context[Any], call_next: CallNext) -> Any:
        return await run_handler(ctx, middleware, call_next)

    return run
