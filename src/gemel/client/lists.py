"""What all lists of a server have in common, for callers that treat them alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gemel.client.cache import CacheMode
from gemel.errors import MethodNotFound, PeerError
from gemel.schema.methods import ItemList

if TYPE_CHECKING:
    from gemel.client.methods import ClientMethods


async def list_items(client: ClientMethods, of: ItemList, *, cache: CacheMode = "use") -> list[Any]:
    """The items of a list, over all pages.

    Args:
        client: A connected client.
        of: The list.
        cache: How its cache is used.

    Returns:
        The items, in the order of the server.

    Raises:
        CallError: The list could not be fetched.
    """
    if of.name == "tools":
        return await client.list_tools(cache=cache)  # which also learns how to call them
    pages = await client.request_pages(of.method, of.result, cache=cache)
    return [item for page in pages for item in getattr(page, of.field)]


async def list_offered(client: ClientMethods, of: ItemList, *, cache: CacheMode = "use") -> list[Any] | None:
    """The items of a list, or None if the server doesn't have it.

    Many servers have resources and no templates, and some declare what they do not have.

    Args:
        client: A connected client.
        of: The list.
        cache: How its cache is used.

    Returns:
        The items, in the order of the server; None without the capability or the method.

    Raises:
        CallError: The list could not be fetched.
    """
    if getattr(client.server_capabilities, of.feature) is None:
        return None
    try:
        return await list_items(client, of, cache=cache)
    except PeerError as exc:
        if exc.code != MethodNotFound.code:
            raise
        return None
