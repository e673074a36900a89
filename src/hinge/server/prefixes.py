"""How names and URIs of a server look inside another one: the rule of prefixes, both ways, and in results.

A tool or prompt `forecast` under the prefix `weather` is `weather_forecast`. A URI gets the prefix in front of its
scheme, `weather+city://oslo`, which works for every URI, keeps what is below what, and can be undone. In a scheme `_`
becomes `-` and letters are small. A page stays a page: `ui://card` is `ui://weather+card`. Must not know who serves what.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, structs

from hinge.errors import DefinitionError
from hinge.schema.content import EmbeddedResource, ResourceLink
from hinge.schema.prompts import GetPromptResult
from hinge.schema.resources import ReadResourceResult
from hinge.schema.tools import CallToolResult
from hinge.server.outer_names import Named

_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")
#: Links that clients follow by themselves stay as they are.
_FOR_CLIENTS = ("http:", "https:")
#: What the URI of a page begins with, wherever it is served (APP-03).
_PAGE = "ui://"


class Prefix:
    """One prefix; `Prefix(None)` changes nothing. Raises DefinitionError for a text that can't be one."""

    __slots__ = ("_head", "_scheme", "text")

    def __init__(self, text: str | None) -> None:
        if text is not None and _PREFIX.fullmatch(text) is None:
            raise DefinitionError(
                f"The prefix {text!r} is not possible: a letter, then letters, digits and _ - . (64 at most)"
            )
        self.text = text
        self._head = "" if text is None else f"{text}_"
        self._scheme = "" if text is None else f"{text.lower().replace('_', '-')}+"

    def clashes(self, other: Prefix) -> bool:
        """Whether a name could belong to both: then it couldn't be told whose it is."""
        if self.text is None or other.text is None:
            return False
        heads = self._head.startswith(other._head) or other._head.startswith(self._head)
        return heads or self._scheme == other._scheme

    # ---------------------------------------------------------------- names

    def name(self, inner: str) -> str:
        """A tool's or prompt's name as it is seen from outside."""
        return self._head + inner

    def outer(self, kind: Named, inner: str) -> str | None:
        """A name or URI as it is seen from outside."""
        return self.uri(inner) if kind == "resources" else self.name(inner)

    def outer_argument(self, tool: str, inner: str) -> str | None:
        """Arguments have no prefix."""
        return inner

    def inner_name(self, outer: str) -> str | None:
        """The name inside; None for one of somebody else."""
        return outer[len(self._head) :] if outer.startswith(self._head) else None

    def uri(self, inner: str) -> str:
        """A URI or template as it is seen from outside."""
        if inner.startswith(_PAGE):
            return _PAGE + self._scheme + inner[len(_PAGE) :]
        return self._scheme + inner

    def inner_uri(self, outer: str) -> str | None:
        """The URI or template inside; None for one of somebody else."""
        page = _PAGE if outer.startswith(_PAGE) else ""
        rest = outer[len(page) :]
        return page + rest[len(self._scheme) :] if rest[: len(self._scheme)].lower() == self._scheme else None

    # ---------------------------------------------------------------- what lists show

    def tool(self, item: Any) -> Any:
        """A listed tool with its outer name; the page that it shows as its user interface is found under the outer URI."""
        return self._with(self._renamed(item), "meta", "_meta", self._meta)

    def prompt(self, item: Any) -> Any:
        """A listed prompt with its outer name."""
        return self._renamed(item)

    def resource(self, item: Any) -> Any:
        """A listed resource with its outer URI."""
        return self._with(item, "uri", "uri", self.uri)

    def template(self, item: Any) -> Any:
        """A listed template with its outer URI."""
        return self._with(item, "uri_template", "uriTemplate", self.uri)

    def _renamed(self, item: Any) -> Any:
        return self._with(item, "name", "name", self.name)

    def _meta(self, meta: Any) -> Any:
        if not isinstance(meta, dict):
            return meta
        page, old = meta.get("ui"), meta.get("ui/resourceUri")
        if isinstance(page, dict) and isinstance(page.get("resourceUri"), str):
            meta = {**meta, "ui": {**page, "resourceUri": self.uri(page["resourceUri"])}}
        if isinstance(old, str):  # the deprecated way to say it (APP-04)
            meta = {**meta, "ui/resourceUri": self.uri(old)}
        return meta

    # ---------------------------------------------------------------- what results point to

    def result(self, result: Any) -> Any:
        """A result whose links and contents carry outer URIs, so that clients can read what they find there."""
        if self.text is None:
            return result
        if isinstance(result, CallToolResult) or (isinstance(result, dict) and "content" in result):
            return self._with(result, "content", "content", self._each(self._block))
        if isinstance(result, GetPromptResult) or (isinstance(result, dict) and "messages" in result):
            message: Callable[[Any], Any] = lambda item: self._with(item, "content", "content", self._block)  # noqa: E731
            return self._with(result, "messages", "messages", self._each(message))
        if isinstance(result, ReadResourceResult) or (isinstance(result, dict) and "contents" in result):
            return self._with(result, "contents", "contents", self._each(self.resource))
        return result

    @staticmethod
    def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda items: [change(item) for item in items] if isinstance(items, list) else items

    def _block(self, block: Any) -> Any:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, ResourceLink) or kind == "resource_link":
            return self._with(block, "uri", "uri", self._link)
        if isinstance(block, EmbeddedResource) or kind == "resource":
            return self._with(block, "resource", "resource", self.resource)
        return block

    def _link(self, uri: str) -> str:
        return uri if uri.lower().startswith(_FOR_CLIENTS) else self.uri(uri)

    def _with(self, item: Any, field: str, member: str, change: Callable[[Any], Any]) -> Any:
        """A struct, or a JSON object, with one member changed; others are left alone."""
        if self.text is None:
            return item
        if isinstance(item, Struct):
            old = getattr(item, field)
            return item if old is None else structs.replace(item, **{field: change(old)})
        if isinstance(item, Mapping) and member in item:
            return {**item, member: change(plain(item[member]))}
        return item


def plain(value: Any) -> Any:
    """A value that may still be JSON text, decoded."""
    return msgspec.json.decode(value) if isinstance(value, Raw) else value
