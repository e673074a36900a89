"""`Policy`: decides about calls of tools, wherever it stands as middleware."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, get_args

from gemel.decisions import Effect
from gemel.errors import DefinitionError, shorten
from gemel.options import is_function
from gemel.policies.conditions import Glob
from gemel.policies.question import Approver
from gemel.policies.reading import parse_remember, read_policy
from gemel.policies.request import PolicyRequest
from gemel.policies.rules import Outcome, Remember, Rules

logger = logging.getLogger("gemel")

#: A function that decides: it gets one request, for a call or for a tool of a list.
Decide: TypeAlias = Callable[[PolicyRequest], Effect | Awaitable[Effect]]
_EFFECTS = get_args(Effect)


class Policy:
    """Rules that allow, deny or ask a person about each call of a tool: `server.add_middleware(Policy("policy.toml"))`.

    It is middleware of a server, also one that is mounted, a proxy or a gateway, and of a client or a client group:
    `ClientGroup(…, middleware=[Policy("policy.toml")])`. The first rule that fits decides; where none fits, the policy's
    `default`, which is "deny". A tool that is never allowed for a caller is not listed. What is in doubt counts against the call:
    a rule that denies or asks is met by it, one that allows is not.

    Args:
        source: The path of a TOML file, its content as a mapping, or a function, sync or async, that gets a `PolicyRequest` and
            returns "allow", "deny" or "ask". Anything else that it returns or raises denies.
        ask: Asks a person in another way: gets the `PolicyRequest`, and returns True or the name of who approved the call. By
            default the caller of a server is asked by elicitation, and the user of a client by its `on_elicit`.
        remember: How long an approval counts that a function asked for: "call", "session", or a time such as "10m". Rules of a
            file have their own `remember`.
        trust_hints: Further servers whose hints are believed, as globs: prefixes of mounts, names in a client group. Tools that
            are registered in this process are always believed.
        server: The name of the server that a client is connected to, for rules about it. In a client group it has one already.

    Raises:
        DefinitionError: The file has a mistake, which the error names with its line; or an argument is not allowed.

    Example:
        >>> server.add_middleware(Policy("policy.toml"))
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Decide,
        *,
        ask: Approver | None = None,
        remember: str = "call",
        trust_hints: Sequence[str] = (),
        server: str | None = None,
    ) -> None:
        if isinstance(trust_hints, str):
            raise DefinitionError(f"trust_hints={trust_hints!r} is one text: write trust_hints=[{trust_hints!r}]")
        if ask is not None and not is_function(ask, 1):
            raise DefinitionError("ask= is a function of the request: `async def ask(request) -> bool`")
        lasts = parse_remember(remember)
        if lasts is None:
            raise DefinitionError(f'remember={shorten(repr(remember))}: use "call", "session" or a time such as "10m"')
        self.ask = ask
        self.server = server
        self._trusted = Glob(trust_hints)
        self._remember: Remember = lasts
        self._rules: Rules | None = None
        self._function: Decide | None = None
        if isinstance(source, str | Path | Mapping):
            if remember != "call":
                raise DefinitionError("remember= is for functions: in a file each rule says it")
            self._rules = read_policy(source)
        elif is_function(source, 1):
            self._function = source
        else:
            raise DefinitionError(f"{shorten(repr(source))} is no policy: give a path, a mapping or a function")

    def placed_in(self, owner: Any, name: str | None = None, /) -> Callable[[Any, Any], Awaitable[Any]]:
        """Return what runs around one server or client, which calls this.

        Args:
            owner: The server or client.
            name: The name of the server in a client group.

        Returns:
            The middleware.
        """
        from gemel.client.methods import ClientMethods

        if isinstance(owner, ClientMethods):
            from gemel.policies.of_client import PolicyOfClient

            return PolicyOfClient(self, owner, name or self.server)
        from gemel.policies.of_server import PolicyOfServer

        return PolicyOfServer(self, owner)

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Raise DefinitionError: what runs is made for the server or client that the policy is added to.

        Args:
            ctx: The context of a message.
            call_next: The rest of the chain.
        """
        raise DefinitionError("A Policy has to be added to a server or client: server.add_middleware(policy)")

    # ---------------------------------------------------------------- decisions

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

    async def decide(self, request: PolicyRequest) -> Outcome:
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
            return Outcome("deny", None)

    async def possible(self, request: PolicyRequest) -> list[Outcome]:
        """Return what can happen with calls of a tool.

        Args:
            request: The tool and its caller; arguments and client are not looked at.

        Returns:
            The outcomes, in the order in which they are decided; the last one holds where none before does.
        """
        listed = request.listed()
        if self._rules is None:
            return [await self.decide(listed)]
        try:
            return self._rules.possible(listed)
        except Exception:
            logger.exception("%s is not listed: its policy raised", request.tool)
            return [Outcome("deny", None)]

    async def hides(self, request: PolicyRequest) -> bool:
        """Return whether no call of a tool is allowed, so that it isn't listed.

        Args:
            request: The tool and its caller.

        Returns:
            True if each possible outcome is "deny".
        """
        return all(outcome.effect == "deny" for outcome in await self.possible(request))

    async def _called(self, request: PolicyRequest) -> Outcome:
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
        return Outcome(effect, name, name, self._remember)
