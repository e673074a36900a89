"""The options of a login in an entry of a configuration, under the names of Gemel and of other hosts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Literal

from gemel.errors import StartError, shorten

logger = logging.getLogger("gemel")

#: The options of `gemel.auth.OAuth`, and what else an entry has, by their names in lower case without `_` and `-`.
_NAMES = {
    "clientid": "client_id",
    "clientsecret": "client_secret",
    "clientsecretenv": "client_secret_env",
    "authmethod": "auth_method",
    "tokenendpointauthmethod": "auth_method",
    "clientname": "client_name",
    "clientmetadataurl": "client_metadata_url",
    "scope": "scopes",
    "scopes": "scopes",
    "scopeseparator": "scope_separator",
    "issuer": "issuer",
    "authservermetadataurl": "metadata",
    "acceptissuer": "accept_issuers",
    "acceptissuers": "accept_issuers",
    "resource": "resource",
    "assumepkce": "assume_pkce",
    "parameters": "authorization_parameters",
    "authorizationparameters": "authorization_parameters",
    "privatenetworks": "private_networks",
    "port": "callback_port",
    "callbackport": "callback_port",
    "redirectport": "callback_port",
    "callbackurl": "redirect_uri",
    "redirecturi": "redirect_uri",
    "enabled": "enabled",
    "type": "type",
}
_FLAGS = frozenset({"assume_pkce", "private_networks", "enabled"})
#: Where the metadata of an authorization server are (RFC 8414, section 3.1; OpenID Connect Discovery 1.0, section 4).
_WELL_KNOWN = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")


class OAuthReader:
    """Reads the options of one login.

    Args:
        place: The entry, for errors.
        key: The key of the options in the entry.
        table: The options.
        text: Replaces variables in a text and raises StartError if it is none; called with the key and the value.
    """

    def __init__(self, place: str, key: str, table: Mapping[str, Any], text: Callable[[str, Any], str]) -> None:
        self._place = place
        self._key = key
        self._table = table
        self._text = text

    def read(self) -> dict[str, Any] | Literal[False]:
        """Read the options.

        Returns:
            Options of `gemel.auth.OAuth`, with `redirect_uri` or `callback_port` besides; False if they say that there is none.

        Raises:
            StartError: An option is not possible.
        """
        options: dict[str, Any] = {}
        for written, value in self._table.items():
            name = _NAMES.get(written.lower().replace("_", "").replace("-", ""))
            if name is None:
                logger.warning("%s: %s.%s is not an option of a login; it is ignored", self._place, self._key, written)
            elif value is not None and name in options:
                raise self._wrong(written, f"there is another name of {name!r}, too: write one of them")
            elif value is not None:
                options[name] = self._value(name, written, value)
        if options.pop("type", "oauth") not in ("oauth", "oauth2"):
            raise self._wrong("type", 'must be "oauth"')
        if not options.pop("enabled", True):
            return False
        if (secret := options.pop("client_secret_env", None)) is not None:
            options.setdefault("client_secret", secret)
        if (metadata := options.pop("metadata", None)) is not None:
            options.setdefault("issuer", metadata)
        return options

    def _value(self, name: str, key: str, value: object) -> Any:
        if name in _FLAGS:
            return self._flag(key, value)
        if name == "callback_port":
            if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
                raise self._wrong(key, "must be a number from 1 to 65535")
            return value
        if name in ("scopes", "accept_issuers"):
            values = value.replace(",", " ").split() if isinstance(value, str) else value
            if not isinstance(values, list):
                raise self._wrong(key, "must be a list of strings")
            return [self._text(f"{self._key}.{key}[{place}]", one) for place, one in enumerate(values)]
        if name == "authorization_parameters":
            if not isinstance(value, Mapping):
                raise self._wrong(key, "must be an object that maps names to strings")
            return {one: self._text(f"{self._key}.{key}.{one}", text) for one, text in value.items()}
        if name == "resource" and isinstance(value, bool):
            return value
        if name == "client_secret" and not isinstance(value, str):
            raise self._wrong(key, "must be a string, in quotes")
        if name == "client_secret_env":
            return self._text(f"{self._key}.{key}", f"${{{value}}}")
        text = self._text(f"{self._key}.{key}", value)
        if name == "resource" and text == "none":
            return False
        return self._issuer(key, text) if name == "metadata" else text

    def _flag(self, key: str, value: object) -> bool:
        if not isinstance(value, bool):
            raise self._wrong(key, "must be true or false")
        return value

    def _issuer(self, key: str, url: str) -> str:
        """The issuer whose metadata are at a URL."""
        for well_known in _WELL_KNOWN:
            before, found, path = url.partition(well_known)
            if found:
                return before + path
        raise self._wrong(key, f"{shorten(url)!r} is not the place of metadata: write `issuer`, the name of the server")

    def _wrong(self, key: str, what: str) -> StartError:
        return StartError(f"{self._place}: {self._key}.{key}: {what}")
