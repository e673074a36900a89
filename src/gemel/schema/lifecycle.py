"""Lifecycle: `initialize` in the handshake era, `server/discover` in the stateless era, and capabilities."""

from __future__ import annotations

from typing import Any

from gemel.schema.base import CacheableResult, Implementation, Model, Result


class ListChanged(Model, kw_only=True):
    """A feature whose list may change."""

    list_changed: bool | None = None


class ResourcesCapability(Model, kw_only=True):
    """Resources: whether the list may change, and whether clients may subscribe."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ServerCapabilities(Model, kw_only=True):
    """What a server offers. A feature that isn't offered is None.

    `tasks` is the experimental form of revision 2025-11-25, not decoded.
    """

    tools: ListChanged | None = None
    resources: ResourcesCapability | None = None
    prompts: ListChanged | None = None
    completions: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, dict[str, Any]] | None = None
    tasks: dict[str, Any] | None = None


#: All lists, with changes.
ALL_LISTS = ServerCapabilities(
    tools=ListChanged(list_changed=True),
    resources=ResourcesCapability(subscribe=True, list_changed=True),
    prompts=ListChanged(list_changed=True),
)


class RootsCapability(ListChanged, kw_only=True):
    """Roots; only clients of the handshake era announce changes."""


class Elicitation(Model, kw_only=True):
    """The modes of elicitation that a client supports; form mode only if neither is set."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class Sampling(Model, kw_only=True):
    """What a client supports in sampling besides plain messages."""

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ClientCapabilities(Model, kw_only=True):
    """What a client offers; `tasks` as in ServerCapabilities."""

    roots: RootsCapability | None = None
    sampling: Sampling | None = None
    elicitation: Elicitation | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, dict[str, Any]] | None = None
    tasks: dict[str, Any] | None = None


class InitializeParams(Model, kw_only=True):
    """Params of `initialize`."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """Result of `initialize`."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    """Result of `server/discover`; the server's identity is in `_meta`."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class InitializedParams(Model, kw_only=True):
    """Params of `notifications/initialized`."""
