"""An output schema that results are held to by its own words: one that the author wrote, and results made by hand (TOOL-15).

What an annotation makes fit needs none of this. Knows nothing of tools or eras.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET, Raw

from hinge.errors import DefinitionError
from hinge.protocol.validation import compile_schema, first_problem
from hinge.schema.base import Result
from hinge.schema.tools import CallToolResult
from hinge.server.functions.results import Encoded
from hinge.server.functions.values import Unwritable, encode
from hinge.server.registration import as_blocks

if TYPE_CHECKING:
    import jsonschema_rs

_BY_HAND = "return a CallToolResult with structured_content, or say output_schema=None"


class Promise:
    """One output schema. `own` for the author's: no type makes values fit it, so it is compiled now, and all are checked.

    Raises ValueError for an `own` schema that can't be used.
    """

    __slots__ = ("_schema", "_validator", "own")

    def __init__(self, schema: Any, *, own: bool) -> None:
        if not isinstance(schema, Mapping):
            raise ValueError("no usable JSON Schema: write it as a dict")
        self.own = own
        self._schema = schema
        self._validator: jsonschema_rs.Validator | None = compile_schema(schema) if own else None

    def kept(self, result: Result) -> Result:
        """A result made by hand, as it is, unless it fails. Raises DefinitionError for one without what was promised."""
        if isinstance(result, CallToolResult) and not result.is_error:
            if result.structured_content is UNSET:
                raise DefinitionError(f"it has an output schema, but returned a result without structure: {_BY_HAND}")
            self._check(_written(result.structured_content))
        return result

    def structured(self, value: Any, encoded: Encoded) -> Raw:
        """The structured content of a returned value. Raises DefinitionError if it doesn't fit."""
        if not isinstance(value, str) and value is not None and as_blocks(value) is not None:
            raise DefinitionError(f"it has an output schema, but returned content: {_BY_HAND}")
        text = _written(value) if encoded.structured is UNSET else bytes(encoded.structured)
        self._check(text)
        return Raw(text)

    def _check(self, text: bytes) -> None:
        if self._validator is None:
            self._validator = compile_schema(self._schema)
        problem = first_problem(self._validator, msgspec.json.decode(text))
        if problem is not None:
            raise DefinitionError(f"what it returned doesn't fit its output schema: {problem}")


def _written(value: Any) -> bytes:
    try:
        return encode(value)
    except Unwritable as error:
        raise DefinitionError(f"it returned {error}, which can't become JSON") from None
