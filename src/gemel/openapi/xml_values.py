"""Values as XML, by the XML Object of their schemas: https://spec.openapis.org/oas/v3.1.1.html#xml-object."""

from __future__ import annotations

import re
from xml.sax.saxutils import escape, quoteattr

from gemel.errors import ToolError, shorten
from gemel.openapi.document import Document, Json
from gemel.openapi.styles import plain

_NAME = re.compile(r"[^\W\d][\w.-]*(:[^\W\d][\w.-]*)?")
#: What XML 1.0 can't hold.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class XmlWriter:
    """Writes the values of one document's schemas."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def write(self, schema: object, value: object) -> str:
        """Write a document. The root is named by the schema's `xml`, its component or its title.

        Raises:
            ToolError: XML can't hold the value.
        """
        reference = schema.get("$ref", "") if isinstance(schema, dict) else ""
        named = reference.rpartition("/")[2] or str(self._document.follow(schema).get("title") or "root")
        return '<?xml version="1.0" encoding="UTF-8"?>' + self._elements(named, schema, value)

    def _elements(self, name: str, schema: object, value: object) -> str:
        """The element of a value; of an array the elements of its items."""
        if value is None:
            return ""
        schema = self._document.follow(schema)
        if not isinstance(value, list):
            return self._element(name, schema, value)
        about = _about(schema)
        items = schema.get("items", {})
        wrapped = about.get("wrapped") is True
        # The name of an array that is not wrapped is ignored.
        inner = about.get("name", name) if wrapped else name
        text = "".join(self._elements(inner, items, one) for one in value)
        return self._tag(name, about, text) if wrapped else text

    def _element(self, name: str, schema: Json, value: object) -> str:
        about = _about(schema)
        if not isinstance(value, dict):
            return self._tag(name, about, escape(_checked(plain(value))))
        members = self._document.members(schema)
        attributes, children = "", ""
        for key, one in value.items():
            member = members.get(key, {})
            inner = _about(self._document.follow(member))
            if inner.get("attribute") is not True:
                children += self._elements(key, member, one)
            elif one is not None:
                qualified, namespace = _qualified(key, inner)
                attributes += f"{namespace} {qualified}={quoteattr(_checked(plain(one)))}"
        return self._tag(name, about, children, attributes)

    def _tag(self, name: str, about: Json, content: str, attributes: str = "") -> str:
        qualified, namespace = _qualified(name, about)
        return f"<{qualified}{namespace}{attributes}>{content}</{qualified}>"


def _about(schema: Json) -> Json:
    about = schema.get("xml")
    return about if isinstance(about, dict) else {}


def _qualified(name: str, about: Json) -> tuple[str, str]:
    """The name of an element or attribute with its prefix, and the declaration of its namespace."""
    prefix, namespace = str(about.get("prefix") or ""), str(about.get("namespace") or "")
    qualified = (f"{prefix}:" if prefix else "") + str(about.get("name") or name)
    if not _NAME.fullmatch(qualified):
        raise ToolError(f"{shorten(repr(qualified))} can't be the name of an element or attribute in XML")
    declared = f" xmlns{':' if prefix else ''}{prefix}={quoteattr(namespace)}" if namespace else ""
    return qualified, declared


def _checked(text: str) -> str:
    if found := _FORBIDDEN.search(text):
        raise ToolError(f"XML can't hold the character {found[0]!r}")
    return text
