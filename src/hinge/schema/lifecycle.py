"""How a conversation opens: `initialize` in the handshake revisions, `server/discover` in the stateless one."""

from __future__ import annotations

from typing import Any

from hinge.schema.base import CacheableResult, Implementation, Model, Result


class ListChanged(Model, kw_only=True):
    """A feature whose list may change under way."""

    list_changed: bool | None = None


class ResourcesCapability(Model, kw_only=True):
    """Resources: may the list change, may single ones be watched."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ServerCapabilities(Model, kw_only=True):
    """What a server offers (LIFE-12, DISC-04). A feature that isn't offered is None.

    `tasks` is the experimental form of the last handshake revision (TSK-01), kept as it came.
    """

    tools: ListChanged | None = None
    resources: ResourcesCapability | None = None
    prompts: ListChanged | None = None
    completions: dict[str, Any] | None = None
    logging: dict[str, Any] | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, dict[str, Any]] | None = None
    tasks: dict[str, Any] | None = None


class RootsCapability(ListChanged, kw_only=True):
    """Roots; only a handshake client tells of their changes (ROOT-01)."""


class Elicitation(Model, kw_only=True):
    """Which ways of asking the user a client has; neither set means form only (ELIC-01)."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class Sampling(Model, kw_only=True):
    """What a client's model access can do besides plain messages."""

    tools: dict[str, Any] | None = None
    context: dict[str, Any] | None = None


class ClientCapabilities(Model, kw_only=True):
    """What a client offers (LIFE-11, REQM-09); `tasks` as in ServerCapabilities."""

    roots: RootsCapability | None = None
    sampling: Sampling | None = None
    elicitation: Elicitation | None = None
    experimental: dict[str, Any] | None = None
    extensions: dict[str, dict[str, Any]] | None = None
    tasks: dict[str, Any] | None = None


class InitializeParams(Model, kw_only=True):
    """What a client says first in a handshake (LIFE-02)."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """What a server answers to it (LIFE-06)."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    """What a server says of itself in the stateless revision (DISC-02); its identity stands in `_meta`."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


class InitializedParams(Model, kw_only=True):
    """`notifications/initialized` says nothing more."""
