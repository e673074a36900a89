"""An OpenAPI document (3.0, 3.1, 3.2): operations, resolved references, schemas as JSON Schema 2020-12.

References must stay in the document: nothing is fetched.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec

from gemel.errors import DefinitionError, shorten

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


class Document:
    """One document. Raises DefinitionError if it is not an OpenAPI 3 document."""

    def __init__(self, source: Mapping[str, Any] | str | bytes | os.PathLike[str]) -> None:
        self.root = _read(source)
        version = self.root.get("openapi")
        if not isinstance(version, str) or not version.startswith("3."):
            if stated := version or self.root.get("swagger"):
                raise DefinitionError(f"This is not an OpenAPI 3 document, but {stated!r}: convert it to 3.0 or newer")
            raise DefinitionError('This is not an OpenAPI 3 document: it has no "openapi": "3.…"')
        self._is_3_0 = version.startswith("3.0")
        self.info: Json = _object(self.root.get("info"))

    def paths(self) -> Iterator[tuple[str, str, Json, Json]]:
        """Yield path, HTTP method, operation object and path item of each operation."""
        for path, path_item in _object(self.root.get("paths")).items():
            item = self.follow(path_item)
            for method in METHODS:
                if isinstance(item.get(method), dict):
                    yield path, method, item[method], item

    def base_url(self, *places: Mapping[str, Any]) -> str:
        """Return the URL of the first server of the places or the document, with default variables; "" if there is none."""
        for place in (*places, self.root):
            servers = place.get("servers")
            if isinstance(servers, list) and servers and isinstance(servers[0], dict):
                url = str(servers[0].get("url", ""))
                for name, variable in _object(servers[0].get("variables")).items():
                    url = url.replace("{" + name + "}", str(_object(variable).get("default", "")))
                return url
        return ""

    def follow(self, value: Any) -> Json:
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

    def schema(self, schema: Any, definitions: Json) -> Any:
        """Return a schema as JSON Schema; referenced schemas are added to `definitions` by name."""
        if isinstance(schema, bool) or not isinstance(schema, dict):
            return schema if isinstance(schema, bool) else {}
        merged: Json = {}
        for word, value in schema.items():
            if word == "$ref" and isinstance(value, str):
                merged[word] = self._defined(value, definitions)
            elif word in _ONE:
                merged[word] = self.schema(value, definitions) if isinstance(value, dict | bool) else value
            elif word in _SEVERAL and isinstance(value, list):
                merged[word] = [self.schema(one, definitions) for one in value]
            elif word in _NAMED and isinstance(value, dict):
                merged[word] = {name: self.schema(one, definitions) for name, one in value.items()}
            elif word not in _DROPPED and not word.startswith("x-"):
                merged[word] = value
        return _from_3_0(merged) if self._is_3_0 else merged

    def _defined(self, reference: str, definitions: Json) -> str:
        parts = [_NAME.sub("_", part) for part in reference.removeprefix("#/").split("/")]
        name = parts[-1] if reference.startswith("#/components/schemas/") and len(parts) == 3 else "_".join(parts)
        if name not in definitions:
            definitions[name] = {}  # it may reference itself
            definitions[name] = self.schema(self._at(reference), definitions)
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


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _read(source: Any) -> Json:
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, os.PathLike):
        try:
            source = Path(source).read_bytes()
        except OSError as exc:
            raise DefinitionError(f"The OpenAPI document can't be read: {exc}") from exc
    if isinstance(source, str) and re.fullmatch(r"[^\s{}\[\]]*[./][^\s{}\[\]]*", source):
        of = "fetch it first, and pass its text" if "://" in source else f"for a file write Path({shorten(source)!r})"
        raise DefinitionError(f"{shorten(source)!r} is not the text of an OpenAPI document: {of}")
    try:
        decoded = msgspec.json.decode(source)
    except (msgspec.MsgspecError, RecursionError, TypeError) as exc:
        raise DefinitionError(
            f"The OpenAPI document is not JSON: {exc}. Pass JSON text, a path of a JSON file, or a dict "
            "(`yaml.safe_load(text)` makes one from YAML)"
        ) from None
    if not isinstance(decoded, dict):
        raise DefinitionError("The OpenAPI document is not a JSON object")
    return decoded
