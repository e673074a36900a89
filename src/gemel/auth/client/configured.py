"""OAuth as an entry of a configuration asks for it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from gemel.auth.client.oauth import OAuth
from gemel.auth.client.user import BrowserLogin
from gemel.errors import DefinitionError

#: Options that have no part in where secrets are sent.
_HARMLESS = frozenset({"scopes", "client_name", "redirect_uri", "callback_port"})


def configured_oauth(options: Mapping[str, Any], given: object = None) -> OAuth:
    """Make the login of one server.

    Args:
        options: The options of the entry: those of OAuth, and `redirect_uri` or `callback_port` of a login with the browser.
        given: What the application has for all servers. If it is an OAuth, the entry has its authorizer and store. Its client and
            what it says about the authorization server belong together: they are used if the entry has nothing of that.

    Returns:
        The login.

    Raises:
        DefinitionError: The options contradict each other.
    """
    base = given if isinstance(given, OAuth) else OAuth()
    own = dict(options)
    redirect_uri, port = own.pop("redirect_uri", None), own.pop("callback_port", None)
    if options.keys() <= _HARMLESS:
        made = copy.copy(base)
        made.scopes = tuple(own.get("scopes", base.scopes))
        made.client_name = own.get("client_name", base.client_name)
    else:
        shared = {"client_name": base.client_name, "store": base.store, "proof": base.proof}
        made = OAuth(**{**shared, **own}, keep_client=base.keep_client, authorizer=base.authorizer)
    if made.authorizer is None and (redirect_uri or port):
        made.authorizer = _browser(redirect_uri, port or 0)
    return made


def _browser(redirect_uri: str | None, port: int) -> BrowserLogin:
    """A login with the browser that ends at a fixed place."""
    if redirect_uri is None:
        return BrowserLogin(port=port)
    try:
        parts = urlsplit(redirect_uri)
        own_port = parts.port
    except ValueError:
        raise DefinitionError(f"redirect_uri {redirect_uri!r} is not a URL") from None
    if parts.scheme != "http" or not parts.hostname:
        raise DefinitionError(
            f"redirect_uri {redirect_uri!r} is not on this machine: write http://localhost:PORT/callback"
        )
    return BrowserLogin(host=parts.hostname, port=own_port or port, path=parts.path or "/")
