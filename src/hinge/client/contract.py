"""Asking a server for all that it offers, as a contract."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from hinge.errors import PeerError
from hinge.lock.contract import SECTIONS, Contract, Section, definitions, identity
from hinge.schema.prompts import ListPromptsResult
from hinge.schema.resources import ListResourcesResult, ListResourceTemplatesResult
from hinge.schema.tools import ListToolsResult

if TYPE_CHECKING:
    from hinge.client.client import Client

METHOD_NOT_FOUND = -32601
#: For each section: the capability that it needs, the method that lists it, and the type and member of its pages.
_LISTS: dict[Section, tuple[str, str, Any, str]] = {
    "tools": ("tools", "tools/list", ListToolsResult, "tools"),
    "prompts": ("prompts", "prompts/list", ListPromptsResult, "prompts"),
    "resources": ("resources", "resources/list", ListResourcesResult, "resources"),
    "resourceTemplates": ("resources", "resources/templates/list", ListResourceTemplatesResult, "resource_templates"),
}


async def contract_of(client: Client, *, sections: Iterable[Section] = SECTIONS) -> Contract:
    """What the server of a connected client offers, listed now. `sections` says what to look at, all by default.

    Raises a CallError, InvalidResponse among them for a server that lists two different things by one name.
    """
    revision = client.protocol_version
    wanted = set(sections)
    found = {
        section: definitions(section, await _listed(client, section), revision)
        for section in SECTIONS
        if section in wanted
    }
    return Contract(
        revision=revision,
        server=identity(client.server_info, revision),
        instructions=client.instructions,
        tools=found.get("tools"),
        prompts=found.get("prompts"),
        resources=found.get("resources"),
        resource_templates=found.get("resourceTemplates"),
    )


async def _listed(client: Client, section: Section) -> Sequence[Any]:
    capability, method, kind, member = _LISTS[section]
    if getattr(client.server_capabilities, capability) is None:
        return []
    try:
        pages = await client._pages(method, kind, "refresh")
    except PeerError as exc:
        if exc.code == METHOD_NOT_FOUND and section == "resourceTemplates":
            return []  # many servers that have resources know nothing of templates
        raise
    return [item for page in pages for item in getattr(page, member)]
