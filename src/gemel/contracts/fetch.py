"""Ask a server for everything that its contract holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gemel.contracts.contract import SECTIONS, Contract, Section, definitions, identity
from gemel.errors import PeerError
from gemel.schema.prompts import ListPromptsResult
from gemel.schema.resources import ListResourcesResult, ListResourceTemplatesResult
from gemel.schema.tools import ListToolsResult

if TYPE_CHECKING:
    from gemel.client.methods import ClientMethods

METHOD_NOT_FOUND = -32601
#: For each section: the capability that it needs, the method that lists it, the type and the member of its pages.
LISTS: dict[Section, tuple[str, str, Any, str]] = {
    "tools": ("tools", "tools/list", ListToolsResult, "tools"),
    "prompts": ("prompts", "prompts/list", ListPromptsResult, "prompts"),
    "resources": ("resources", "resources/list", ListResourcesResult, "resources"),
    "resourceTemplates": ("resources", "resources/templates/list", ListResourceTemplatesResult, "resource_templates"),
}


async def fetch_contract(client: ClientMethods, *, sections: Iterable[Section] = SECTIONS) -> Contract:
    """List what a server offers, as a contract.

    Args:
        client: A connected client. Its cache is not used.
        sections: What to list: "tools", "prompts", "resources" and "resourceTemplates", by default all of them.

    Returns:
        The contract. Sections that were not listed are None.

    Raises:
        InvalidResponse: Two different definitions have the same name, or one is nested too deep.
        CallError: A list could not be fetched.

    Example:
        >>> async with Client("weather.py") as client:
        ...     contract = await fetch_contract(client)
    """
    revision = client.protocol_version
    names = set(sections)
    fetched = {
        section: definitions(section, await _listed(client, section), revision)
        for section in SECTIONS
        if section in names
    }
    return Contract(
        revision=revision,
        server=identity(client.server_info, revision),
        instructions=client.instructions,
        tools=fetched.get("tools"),
        prompts=fetched.get("prompts"),
        resources=fetched.get("resources"),
        resource_templates=fetched.get("resourceTemplates"),
    )


async def _listed(client: ClientMethods, section: Section) -> Sequence[Any]:
    capability, method, kind, member = LISTS[section]
    if getattr(client.server_capabilities, capability) is None:
        return []
    try:
        pages = await client.request_pages(method, kind, cache="refresh")
    except PeerError as exc:
        if exc.code == METHOD_NOT_FOUND:
            return []  # many servers that have resources do not implement templates, some declare what they do not have
        raise
    return [item for page in pages for item in getattr(page, member)]
