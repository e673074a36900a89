"""Tokens that stand in a configuration: for tests, and for servers that few programs of one owner call."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Unpack

from gemel.auth.server.options import ProtectedOptions
from gemel.auth.server.resource import TOKEN_PATTERN, TokenAuth
from gemel.errors import DefinitionError
from gemel.http1.asgi import AsgiApp
from gemel.options import accepts, resolve
from gemel.protocol.http.request import Principal

logger = logging.getLogger("gemel")

_TOKEN = re.compile(TOKEN_PATTERN)


class StaticTokens(TokenAuth):
    """Protects a server with a fixed list of tokens, which never expire. The log says so.

    Args:
        tokens: Callers by their tokens: names, or `Principal`s with scopes.
        options: See `ProtectedOptions`.

    Raises:
        DefinitionError: A token or an option is not possible.

    Example:
        ```python
        server = Server("notes", auth=StaticTokens({os.environ["TOKEN"]: "backup-job"}))
        ```
    """

    @accepts(ProtectedOptions)
    def __init__(self, tokens: Mapping[str, str | Principal], **options: Unpack[ProtectedOptions]) -> None:
        resolve(ProtectedOptions, options, "StaticTokens")
        given: Any = tokens
        if not isinstance(given, Mapping) or not given:
            raise DefinitionError('StaticTokens needs callers by their tokens: StaticTokens({"a-secret": "ann"})')
        self._callers = {_digest(token): _principal(token, caller) for token, caller in tokens.items()}
        # A lookup by hash tells nothing by its time. It is as quick as remembering.
        super().__init__(self._find, remember=0, **options)

    def _find(self, token: str) -> Principal | None:
        return self._callers.get(_digest(token))

    def routes(self, endpoint_path: str = "/mcp", /) -> dict[str, AsgiApp]:
        """Return nothing: there is no metadata without an authorization server.

        Args:
            endpoint_path: The path of the endpoint.

        Returns:
            See `TokenAuth.routes`.
        """
        logger.warning("static tokens never expire: this server accepts %d", len(self._callers))
        return super().routes(endpoint_path)


def _digest(token: str) -> bytes:
    return sha256(token.encode()).digest()


def _principal(token: object, caller: object) -> Principal:
    if not isinstance(token, str) or _TOKEN.fullmatch(token) is None:
        raise DefinitionError("StaticTokens: a token is a text of A-Z a-z 0-9 - . _ ~ + / with = at its end only")
    if isinstance(caller, Principal):
        return caller
    if not isinstance(caller, str) or not caller:
        raise DefinitionError(f"StaticTokens: write a name or a Principal for a token, not {type(caller).__name__}")
    return Principal(caller)
