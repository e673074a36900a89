"""Decides by rules or by a function; whatever fails denies."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, get_args

from gemel.decisions import Effect
from gemel.errors import shorten
from gemel.policies.conditions import Glob
from gemel.policies.question import Approver
from gemel.policies.request import PolicyRequest
from gemel.policies.rules import Remember, Rules, Ruling

logger = logging.getLogger("gemel")

#: A function that decides: it gets one request, for a call or for a tool of a list.
Decide: TypeAlias = Callable[[PolicyRequest], Effect | Awaitable[Effect]]
_EFFECTS = get_args(Effect)


class Decider:
    """What a policy says, in whatever place it stands.

    Args:
        source: Rules, or a function.
        ask: Asks a person, in place of an elicitation.
        remember: How long an approval counts that a function asks for.
        trust_hints: Servers whose hints are believed besides those that the rules name.
    """

    def __init__(
        self, source: Rules | Decide, *, ask: Approver | None, remember: Remember, trust_hints: Sequence[str]
    ) -> None:
        self.ask = ask
        self._rules = source if isinstance(source, Rules) else None
        self._function = None if isinstance(source, Rules) else source
        self._remember = remember
        self._trusted = Glob(trust_hints)

    @property
    def by_caller(self) -> bool:
        """Whether lists may depend on the caller."""
        return self._rules is None or self._rules.by_caller

    def trusts(self, server: str | None) -> bool:
        """Return whether hints of a server are believed.

        Args:
            server: Its name; None if it isn't known.

        Returns:
            True if the policy trusts it.
        """
        if server is None:
            return False
        return self._trusted.matches(server) or (self._rules is not None and self._rules.trusts(server))

    async def decide(self, request: PolicyRequest) -> Ruling:
        """Decide about one call.

        Args:
            request: The call.

        Returns:
            The effect and the rule. Whatever fails denies, with a line in the log.
        """
        try:
            return await self._called(request) if self._rules is None else self._rules.decide(request)
        except Exception:
            logger.exception("%s is denied: its policy raised", request.tool)
            return Ruling("deny", None)

    async def possible(self, request: PolicyRequest) -> list[Ruling]:
        """Return what can happen with calls of a tool.

        Args:
            request: The tool and its caller; arguments and client are not looked at.

        Returns:
            The rulings, in the order in which they are decided; the last one holds where none before does.
        """
        listed = request.listed()
        if self._rules is None:
            return [await self.decide(listed)]
        try:
            return self._rules.possible(listed)
        except Exception:
            logger.exception("%s is not listed: its policy raised", request.tool)
            return [Ruling("deny", None)]

    def not_about(self, request: PolicyRequest) -> list[tuple[str, str]]:
        """Return the rules that deny or ask by an argument that a tool doesn't take.

        Args:
            request: The tool and its caller.

        Returns:
            The name of each rule, and the argument.
        """
        return [] if self._rules is None else self._rules.not_about(request.listed())

    def about_none(self, requests: Sequence[PolicyRequest]) -> list[str]:
        """Return the rules whose names of tools and servers fit none of some tools.

        Args:
            requests: The tools.

        Returns:
            The names of the rules.
        """
        return [] if self._rules is None else self._rules.about_none([request.listed() for request in requests])

    async def hides(self, request: PolicyRequest) -> bool:
        """Return whether no call of a tool is allowed, so that it isn't listed.

        Args:
            request: The tool and its caller.

        Returns:
            True if each possible ruling is "deny".
        """
        return all(ruling.effect == "deny" for ruling in await self.possible(request))

    async def _called(self, request: PolicyRequest) -> Ruling:
        assert self._function is not None
        name = getattr(self._function, "__qualname__", type(self._function).__qualname__)
        effect: Any = self._function(request)
        if inspect.isawaitable(effect):
            effect = await effect
        if effect not in _EFFECTS:
            logger.error(
                '%s is denied: %s() returned %s, not "allow", "deny" or "ask"',
                request.tool,
                name,
                shorten(repr(effect)),
            )
            effect = "deny"
        return Ruling(effect, name, name, self._remember)
