"""An OpenAPI document (3.0 or newer): operations, resolved references, schemas as JSON Schema 2020-12.

References must stay in the document: nothing is fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from gemel.errors import DefinitionError, shorten
from gemel.openapi.source import Source, read_document

Json = dict[str, Any]

METHODS = ("get", "put", "post", "delete", "options", "head", "patch")

_NAME = re.compile(r"[^A-Za-z0-9_.-]+")
#: Keywords of OpenAPI that JSON Schema does not have.
_DROPPED = frozenset({"discriminator", "xml", "externalDocs", "example"})
#: Keywords whose value is a schema, a list of schemas, or schemas by name.
_ONE = (
    *("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"),
    *("unevaluatedItems", "unevaluatedProperties", "contentSchema"),
)
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "dependentSchemas", "$defs")
#: Levels of `allOf` in `allOf`: schemas may refer to themselves.
_MAX_DEPTH = 8


class Document:
    """One document. Raises DefinitionError if it is not an OpenAPI 3 document.

    Args:
        source: The document; see `read_document`.
        timeout: Seconds that fetching it may take.

    Attributes:
        root: The OpenAPI Object.
        url: Where it was fetched from; empty for other sources.
        is_3_0: Whether it is one of OpenAPI 3.0, whose schemas are not JSON Schema.
        info: The Info Object.
    """

    def __init__(self, source: Source, timeout: float = 30.0) -> None:
        self.root, self.url = read_document(source, timeout)
        version = str(self.root.get("openapi") or "")  # in YAML, 3.1 is a number
        if not version.startswith("3."):
            if stated := version or str(self.root.get("swagger") or ""):
                raise DefinitionError(f"This is not an OpenAPI 3 document, but {stated!r}: convert it to 3.0 or newer")
            raise DefinitionError('This is not an OpenAPI 3 document: it has no "openapi": "3.…"')
        self.is_3_0 = version.startswith("3.0")
        self.info: Json = _object(self.root.get("info"))

    def paths(self) -> Iterator[tuple[str, str, Json, Json]]:
        """Yield path, HTTP method, operation object and path item of each operation."""
        for path, path_item in _object(self.root.get("paths")).items():
            item = self.follow(path_item)
            for method in METHODS:
                if isinstance(item.get(method), dict):
                    yield path, method, item[method], item

    def base_url(self, *places: Mapping[str, Any]) -> str:
        """Return the URL of the first server of the places or the document, with the defaults of its variables.

        It may be relative; "" if there is none. A variable without a default stays in it.
        """
        for place in (*places, self.root):
            servers = place.get("servers")
            if isinstance(servers, list) and servers and isinstance(servers[0], dict):
                url = str(servers[0].get("url", ""))
                for name, variable in _object(servers[0].get("variables")).items():
                    url = url.replace("{" + name + "}", str(_object(variable).get("default", "{" + name + "}")))
                return url
        return ""

    def follow(self, value: object) -> Json:
        """Return an object, or the target of a reference."""
        for _ in range(32):
            if not isinstance(value, dict) or not isinstance(value.get("$ref"), str):
                return _object(value)
            value = self._at(value["$ref"])
        raise DefinitionError("The references of the document are circular")

    def _at(self, reference: str) -> Any:
        if not reference.startswith("#/") and reference != "#":
            raise DefinitionError(
                f"The reference {shorten(reference)!r} points out of the document: bundle it into one document first"
            )
        place: Any = self.root
        for part in reference[2:].split("/") if reference != "#" else ():
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and name.isdecimal() and int(name) < len(place):
                place = place[int(name)]
            elif isinstance(place, dict) and name in place:
                place = place[name]
            else:
                raise DefinitionError(f"The reference {shorten(reference)!r} has no target")
        return place

    # ---------------------------------------------------------------- schemas

    def schema(self, schema: object, definitions: Json, *, request: bool) -> Any:
        """Return a schema as JSON Schema; referenced schemas are added to `definitions` by name.

        Members that are `readOnly` are not part of requests, and `writeOnly` ones need not be in responses.
        """
        if isinstance(schema, bool) or not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else {}
        merged: Json = {}
        for word, value in schema.items():
            if word == "$ref" and isinstance(value, str):
                merged[word] = self._defined(value, definitions, request)
            elif word in _ONE:
                is_schema = isinstance(value, dict | bool)
                merged[word] = self.schema(value, definitions, request=request) if is_schema else value
            elif word in _SEVERAL and isinstance(value, list):
                merged[word] = [self.schema(one, definitions, request=request) for one in value]
            elif word in _NAMED and isinstance(value, dict):
                left_out = self._absent(schema) if request and word == "properties" else ()
                merged[word] = {
                    name: self.schema(one, definitions, request=request)
                    for name, one in value.items()
                    if name not in left_out
                }
            elif word == "required" and isinstance(value, list):
                absent = self._absent(schema, "readOnly" if request else "writeOnly")
                if required := [name for name in value if name not in absent]:
                    merged[word] = required
            elif word not in _DROPPED and not word.startswith("x-"):
                merged[word] = value
        return _from_3_0(merged) if self.is_3_0 else merged

    def _absent(self, schema: Json, word: str = "readOnly") -> set[str]:
        """The names of members that only the other direction has."""
        return {
            name
            for name, member in _object(schema.get("properties")).items()
            if _object(member).get(word) is True
            or ("$ref" in _object(member) and self.follow(member).get(word) is True)
        }

    def members(self, schema: Any, depth: int = 0) -> Json:
        """Return the properties of a schema and of those that it combines with `allOf`."""
        found = self.follow(schema)
        members: Json = {}
        if depth <= _MAX_DEPTH and isinstance(found.get("allOf"), list):
            for one in found["allOf"]:
                members |= self.members(one, depth + 1)
        return members | _object(found.get("properties"))

    def _defined(self, reference: str, definitions: Json, request: bool) -> str:
        parts = [_NAME.sub("_", part) for part in reference.removeprefix("#/").split("/")]
        name = parts[-1] if reference.startswith("#/components/schemas/") and len(parts) == 3 else "_".join(parts)
        if name not in definitions:
            definitions[name] = {}  # it may reference itself
            definitions[name] = self.schema(self._at(reference), definitions, request=request)
        return f"#/$defs/{name}"


def _from_3_0(schema: Json) -> Json:
    """Convert keywords that OpenAPI 3.0 has: `nullable`, and boolean `exclusiveMinimum` and `exclusiveMaximum`."""
    nullable = schema.pop("nullable", False) is True
    for bound, word in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(schema.get(word), bool):
            excluded = schema.pop(word)
            if excluded and bound in schema:
                schema[word] = schema.pop(bound)
    if not nullable:
        return schema
    kind = schema.get("type")
    if isinstance(kind, str):
        schema["type"] = [kind, "null"]
        if isinstance(schema.get("enum"), list) and None not in schema["enum"]:
            schema["enum"] = [*schema["enum"], None]
        return schema
    return {"anyOf": [schema, {"type": "null"}]}


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}
