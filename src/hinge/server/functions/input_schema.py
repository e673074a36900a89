"""A tool with a JSON Schema of its author's own: its arguments are checked against that, and handed over as one dict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from hinge.errors import DefinitionError, InvalidArguments, shorten
from hinge.protocol.validation import compile_schema
from hinge.server.composition.namespace import Rename, renamed
from hinge.server.functions.signature import Signature

if TYPE_CHECKING:
    import jsonschema_rs


class SchemaArguments:
    """Reads arguments by a schema: the function has one parameter for them all, or takes them by name."""

    def __init__(self, signature: Signature, schema: Any, tool: str) -> None:
        self._schema: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
        self._validator: jsonschema_rs.Validator | None = None
        if self._schema.get("type") != "object":
            raise DefinitionError(f'Tool {tool!r}: its input_schema must say "type": "object" at the root')
        if len(signature.parameters) != 1:
            raise DefinitionError(
                f"Tool {tool!r} has an input_schema: give its function one parameter for all arguments, a dict"
            )
        self._parameter = signature.parameters[0].name
        self._check(tool)

    def _check(self, tool: str) -> None:
        try:
            self._validator = compile_schema(self._schema)
        except ValueError as exc:
            raise DefinitionError(f"Tool {tool!r}: its input_schema is {exc}") from exc

    def arguments(self, raw: Raw | bytes) -> dict[str, Any]:
        """The arguments, checked. Raises InvalidArguments with every problem."""
        found = msgspec.json.decode(raw)
        problems = self._problems(found)
        if problems:
            raise InvalidArguments(problems)
        return {self._parameter: found}

    def refusal(self, text: bytes | Raw, rename: Rename) -> InvalidArguments:
        """The error for arguments that break the schema, in the names of a caller who has others for them.

        Raises DefinitionError when only what isn't the caller's is wrong.
        """
        properties = self._schema.get("properties", {})
        outer = {rename(name): schema for name, schema in properties.items()}
        required = [name for one in self._schema.get("required", ()) if (name := rename(one)) is not None]
        validator = compile_schema(
            {
                **self._schema,
                "properties": {name: schema for name, schema in outer.items() if name is not None},
                "required": required,
            }
        )
        found = msgspec.json.decode(renamed(text, rename))
        problems = [_problem(error) for error in validator.iter_errors(found)]
        if not problems:
            fixed = "; ".join(self._problems(msgspec.json.decode(text)))
            raise DefinitionError(f"an argument that is always sent doesn't fit: {fixed}")
        return InvalidArguments(problems)

    def _problems(self, given: Any) -> list[str]:
        assert self._validator is not None
        return [_problem(error) for error in self._validator.iter_errors(given)]


def _problem(error: jsonschema_rs.ValidationError) -> str:
    place = ".".join(map(str, error.instance_path))
    return shorten(f"{place}: {error.message}" if place else error.message)
