"""The base class of extensions of a server. The client's side is `gemel.client.extensions`."""

from __future__ import annotations

from typing import Any

from gemel.server.extensions import BaseExtension
from gemel.server.server import Server


class Extension(BaseExtension[Server[Any]]):
    """The base class of extensions: override what the extension provides. One object can be added to one server.

    Attributes:
        id: The id with its prefix, such as "com.example/search".
        eras: The eras in which it exists; in others its methods are unknown and it is not announced.
        result_types: The `resultType`s that it adds. Such results reach only clients that declared the extension.

    Specification: https://modelcontextprotocol.io/extensions/overview
    """
