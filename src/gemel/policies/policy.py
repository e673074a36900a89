"""`Policy`: decides about calls of tools, wherever it stands as middleware."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemel.errors import DefinitionError, shorten
from gemel.options import is_function
from gemel.policies.decider import Decide, Decider
from gemel.policies.question import Approver
from gemel.policies.reading import parse_remember, read_policy
from gemel.policies.rules import Rules


class Policy:
    """Rules that allow, deny or ask a person about each call of a tool: `server.add_middleware(Policy("policy.toml"))`.

    It is middleware of a server, also one that is mounted, a proxy or a gateway, and of a client or a client group:
    `ClientGroup(…, middleware=[Policy("policy.toml")])`. The first rule that fits decides; where none fits, the policy's
    `default`, which is "deny". A tool that is never allowed for a caller is not listed. Where it is in
    doubt whether a rule fits, the stricter ruling holds, with the rule or without it.

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
        decides: Rules | Decide
        if isinstance(source, str | Path | Mapping):
            if remember != "call":
                raise DefinitionError("remember= is for functions: in a file each rule says it")
            decides = read_policy(source)
        elif is_function(source, 1):
            decides = source
        else:
            raise DefinitionError(f"{shorten(repr(source))} is not a policy: give a path, a mapping or a function")
        self._server = server
        #: What decides in every place.
        self.decider = Decider(decides, ask=ask, remember=lasts, trust_hints=trust_hints)

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

            return PolicyOfClient(self.decider, owner, name or self._server)
        from gemel.policies.of_server import PolicyOfServer

        return PolicyOfServer(self.decider, owner)

    async def __call__(self, ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        """Raise DefinitionError: what runs is made for the server or client that the policy is added to.

        Args:
            ctx: The context of a message.
            call_next: The rest of the chain.
        """
        raise DefinitionError("A Policy has to be added to a server or client: server.add_middleware(policy)")
