"""What a policy decides about: one call of a tool, or its place in a list."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from gemel.schema.tools import ToolAnnotations
from gemel.values.encoding import ordered_text


@dataclass(frozen=True, slots=True)
class Hints:
    """What a trusted server says about a tool, with the defaults of the specification for what it doesn't say.

    https://modelcontextprotocol.io/specification/2025-11-25/schema#toolannotations

    Attributes:
        read_only: The tool changes nothing.
        destructive: The tool may overwrite or delete. False for a read-only tool that doesn't say otherwise.
        idempotent: Calling it again with the same arguments changes nothing more.
        open_world: The tool reaches beyond the server, such as the web.
    """

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


#: Of a tool without hints, and of one of a server that is not trusted.
NO_HINTS = Hints()


def hints_of(annotations: ToolAnnotations | Mapping[str, Any] | None) -> Hints:
    """The hints in the annotations of a listed tool; a member of another type than bool counts as missing."""
    if annotations is None:
        return NO_HINTS
    if isinstance(annotations, ToolAnnotations):
        given = {name: getattr(annotations, f"{name}_hint") for name in _MEMBERS}
    else:
        given = {name: annotations.get(member) for name, member in _MEMBERS.items()}
    said = {name: value for name, value in given.items() if isinstance(value, bool)}
    if said.get("read_only"):
        said.setdefault("destructive", False)  # destructiveHint means something for tools that change things only
    return replace(NO_HINTS, **said)


_MEMBERS = {
    "read_only": "readOnlyHint",
    "destructive": "destructiveHint",
    "idempotent": "idempotentHint",
    "open_world": "openWorldHint",
}
#: The names of the hints, as rules write them.
HINT_NAMES = tuple(_MEMBERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """One call of a tool, or one tool of a list, as rules and functions of a policy see it.

    Attributes:
        tool: The name of the tool, as the caller writes it.
        arguments: The arguments by the names of the tool's input schema, as plain JSON types, the way the function gets them:
            validated, with its defaults. Of a tool elsewhere, what is sent. None for a tool of a list.
        shown: The same for people, with stars in place of what the input schema marks as secret (`writeOnly`).
        hints: What a trusted server says about the tool; otherwise the defaults of the specification.
        principal: Who was authenticated; None for nobody.
        scopes: What the request was authorized for.
        claims: The further claims of the caller's token, such as its roles, read-only. Functions may look at them, rules don't.
        server: The server that has the tool: the prefix that it is mounted with, or its name in a client group. None if it isn't
            known.
        client: The id of the client that was authenticated, otherwise the name that it gives itself. None for a tool of a list,
            which must not depend on it, and if it isn't known.
        inexact: Whether the tool may get other arguments than these: some are not in its input schema.
        parameters: The names of all arguments that the tool takes by its input schema. None if it may take others: the schema isn't
            known, allows further ones, or is put together from others.
    """

    tool: str
    arguments: Mapping[str, Any] | None = None
    shown: Mapping[str, Any] | None = None
    hints: Hints = NO_HINTS
    principal: str | None = None
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    server: str | None = None
    client: str | None = None
    inexact: bool = False
    parameters: frozenset[str] | None = None

    @property
    def is_listing(self) -> bool:
        """Whether the tool is to be listed, and not called."""
        return self.arguments is None

    def listed(self) -> PolicyRequest:
        """Return the same for a list, which knows neither arguments nor client.

        Returns:
            The request with `is_listing`.
        """
        return replace(self, arguments=None, shown=None, client=None, inexact=False)

    def digest(self, rule: str) -> str:
        """Return what identifies an approval: by whom, of which tool and server, by which rule, with exactly which arguments.

        Args:
            rule: Identifies the rule that asks.

        Returns:
            A SHA-256 digest in hexadecimal.
        """
        whole = [self.server, self.tool, self.principal, self.client, rule, self.arguments]
        return hashlib.sha256(ordered_text(whole)).hexdigest()
