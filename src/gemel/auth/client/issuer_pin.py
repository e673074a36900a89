"""Which authorization server gets the credentials of an object that several connections use."""

from __future__ import annotations

from gemel.auth.url_rules import describe
from gemel.errors import AuthorizationFailed


class IssuerPin:
    """The first authorization server that credentials are used at. No other one gets them: a server names its own as it likes."""

    def __init__(self) -> None:
        self._issuer = ""
        self._url = ""

    def check(self, issuer: str, url: str, *, again: bool = False) -> None:
        """Take an authorization server, the first time.

        Args:
            issuer: The issuer.
            url: The MCP server that named it.
            again: Whether a person wants a new login to this MCP server, even if that has another authorization server now.

        Raises:
            AuthorizationFailed: The credentials were used at another one.
        """
        if not self._issuer or (again and url == self._url):
            self._issuer, self._url = issuer, url
        elif issuer != self._issuer:
            raise AuthorizationFailed(
                f"{url} is authorized by {describe(issuer)}, and these credentials were used at {describe(self._issuer)} for "
                f"{self._url}: make others for each server, or name their authorization server with issuer=…"
            )
