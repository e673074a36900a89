"""Names of tools, prompts, resources and arguments as a caller knows them, for messages and results.

A mounted server's names get a prefix, and its tools may be renamed. A context holds these layers, the outermost first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from msgspec import Raw, Struct, structs

from gemel.errors import DefinitionError, shorten
from gemel.schema.content import EmbeddedResource, ResourceLink
from gemel.schema.methods import Feature, ItemList
from gemel.schema.prompts import GetPromptResult
from gemel.schema.resources import ReadResourceResult
from gemel.schema.tools import CallToolResult
from gemel.server.functions.arguments import Rename


class Layer(Protocol):
    """One translation of names from a server to the one that mounts it."""

    def outer(self, kind: Feature, inner: str) -> str | None:
        """The outer name or URI; None for an item that is hidden there."""
        ...

    def outer_argument(self, tool: str, inner: str) -> str | None:
        """The outer name of an argument of a tool; None for one that is hidden."""
        ...


def outer_name(layers: Sequence[Layer], kind: Feature, inner: str) -> str | None:
    """The name that the caller knows; None for an item that is hidden from the caller."""
    name: str | None = inner
    for layer in reversed(layers):
        name = None if name is None else layer.outer(kind, name)
    return name


def called(layers: Sequence[Layer], kind: Feature, inner: str) -> str:
    """The name that the caller knows, for messages about a request of the caller."""
    return (outer_name(layers, kind, inner) or inner) if layers else inner


def argument_names(layers: Sequence[Layer], tool: str) -> Rename | None:
    """A function from argument names of a tool to those that the caller knows; None if they are the same."""
    steps: list[tuple[Layer, str]] = []
    for layer in reversed(layers):
        steps.append((layer, tool))
        tool = layer.outer("tools", tool) or tool

    def rename(name: str) -> str | None:
        outer: str | None = name
        for layer, inner_tool in steps:
            outer = None if outer is None else layer.outer_argument(inner_tool, outer)
        return outer

    return rename if steps else None


#: How similar a suggested name is: a typing error away. Names such as `lend_game` and `return_game` have 0.7.
_TYPO = 0.75


def suggest(layers: Sequence[Layer], kind: Feature, name: str, known: Iterable[str] = ()) -> str:
    """An unknown name for an error text, with a similar one, if there is one; all as the caller knows them."""
    import difflib

    prefix = outer_name(layers, kind, "") or ""
    requested = called(layers, kind, name)
    shown = {
        outer.removeprefix(prefix): outer for inner in known if (outer := outer_name(layers, kind, inner)) is not None
    }
    near = difflib.get_close_matches(requested.removeprefix(prefix)[:128], shown, n=1, cutoff=_TYPO)
    hint = f". Did you mean {shown[near[0]]!r}?" if near else ""
    return f"{shorten(requested)}{hint}"


_PREFIX = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]{0,63}")
#: Links to the web stay as they are: clients follow them by themselves.
_WEB_SCHEMES = ("http:", "https:")
#: The scheme of pages (MCP Apps), which stays in front of a prefix.
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
        """Whether a name could belong to both."""
        if self.text is None or other.text is None:
            return False
        heads = self._head.startswith(other._head) or other._head.startswith(self._head)
        return heads or self._scheme == other._scheme

    # ---------------------------------------------------------------- names

    def name(self, inner: str) -> str:
        """A tool's or prompt's name as it is seen from outside."""
        return self._head + inner

    def outer(self, kind: Feature, inner: str) -> str | None:
        """A name or URI as it is seen from outside."""
        return self.uri(inner) if kind == "resources" else self.name(inner)

    def outer_argument(self, tool: str, inner: str) -> str | None:
        """Arguments have no prefix."""
        return inner

    def inner_name(self, outer: str) -> str | None:
        """The name without the prefix; None for a name that does not have it."""
        return outer[len(self._head) :] if outer.startswith(self._head) else None

    def uri(self, inner: str) -> str:
        """A URI or template as it is seen from outside."""
        if inner.startswith(_PAGE):
            return _PAGE + self._scheme + inner[len(_PAGE) :]
        return self._scheme + inner

    def inner_uri(self, outer: str) -> str | None:
        """The URI or template without the prefix; None for one that does not have it."""
        page = _PAGE if outer.startswith(_PAGE) else ""
        tail = outer[len(page) :]
        return page + tail[len(self._scheme) :] if tail[: len(self._scheme)].lower() == self._scheme else None

    # ---------------------------------------------------------------- what lists show

    def listed(self, of: ItemList, item: Any) -> Any:
        """An item of a list with its outer name or URI; the URI of a tool's page is the outer one."""
        item = self._with(item, of.key_field, of.key, _of_text(self.name if of.is_named else self.uri))
        return self._with(item, "meta", "_meta", self._meta) if of.name == "tools" else item

    def _meta(self, meta: object) -> Any:
        if not isinstance(meta, dict):
            return meta
        page, old = meta.get("ui"), meta.get("ui/resourceUri")
        if isinstance(page, dict) and isinstance(page.get("resourceUri"), str):
            meta = {**meta, "ui": {**page, "resourceUri": self.uri(page["resourceUri"])}}
        if isinstance(old, str):  # the deprecated way to say it
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
            return self._with(result, "contents", "contents", self._each(self._contents))
        return result

    @staticmethod
    def _each(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return lambda items: [change(item) for item in items] if isinstance(items, list) else items

    def _block(self, block: object) -> Any:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(block, ResourceLink) or kind == "resource_link":
            return self._with(block, "uri", "uri", _of_text(self._link))
        if isinstance(block, EmbeddedResource) or kind == "resource":
            return self._with(block, "resource", "resource", self._contents)
        return block

    def _contents(self, contents: object) -> Any:
        return self._with(contents, "uri", "uri", _of_text(self.uri))

    def _link(self, uri: str) -> str:
        return uri if uri.lower().startswith(_WEB_SCHEMES) else self.uri(uri)

    def _with(self, item: object, field: str, member: str, change: Callable[[Any], Any]) -> Any:
        """A struct, or a JSON object, with one member changed. Others are left alone, and so are members of another type."""
        if self.text is None:
            return item
        if isinstance(item, Struct):
            old = getattr(item, field)
            return item if old is None else structs.replace(item, **{field: change(old)})
        if isinstance(item, Mapping) and member in item:
            return {**item, member: change(plain(item[member]))}
        return item


def _of_text(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """A change of texts. What a remote server sends in their place is passed on."""
    return lambda value: change(value) if isinstance(value, str) else value


def plain(value: object) -> Any:
    """A value that may still be JSON text, decoded."""
    return msgspec.json.decode(value) if isinstance(value, Raw) else value
