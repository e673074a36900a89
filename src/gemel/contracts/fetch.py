"""Ask a server for everything that its contract holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gemel.contracts.contract import SECTIONS, Contract, definitions, identity
from gemel.errors import PeerError
from gemel.schema.methods import LISTS, ItemList, Section

if TYPE_CHECKING:
    from gemel.client.methods import ClientMethods

METHOD_NOT_FOUND = -32601


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
        of.field: definitions(of.member, await _listed(client, of), revision)
        for of in LISTS.values()
        if of.member in names
    }
    server = identity(client.server_info, revision)
    return Contract(revision=revision, server=server, instructions=client.instructions, **fetched)


async def _listed(client: ClientMethods, of: ItemList) -> Sequence[Any]:
    if getattr(client.server_capabilities, of.feature) is None:
        return []
    try:
        pages = await client.request_pages(of.method, of.result, cache="refresh")
    except PeerError as exc:
        if exc.code == METHOD_NOT_FOUND:
            return []  # many servers that have resources do not implement templates, some declare what they do not have
        raise
    return [item for page in pages for item in getattr(page, of.field)]
