"""The cold side of arguments: why JSON text is not what a function takes, and arguments that came as plain text.

Knows parameters and problems; the hot path, one typed decode, is in signature.py.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from hinge.errors import DefinitionError, InvalidArguments, InvalidParams
from hinge.server.composition.namespace import Rename
from hinge.server.functions.json_schema import Schema
from hinge.server.functions.parameters import Parameter
from hinge.server.functions.validation_errors import Problem, Refusal, expected, explain, lines, unknown
from hinge.server.functions.values import Refused

#: What the readers raise for text that is no JSON at all.
_BROKEN = (msgspec.MsgspecError, ValueError)


def refusal_of_arguments(
    text: bytes | Raw, parameters: Sequence[Parameter], schema: Schema, rename: Rename = str
) -> InvalidParams:
    """The error for arguments that were refused: every problem that the caller can act on, in his names.

    InvalidArguments when they break the schema; plain InvalidParams when they are no JSON object at all, which breaks
    the shape of the request itself (TOOL-21). Raises DefinitionError when only what isn't the caller's is wrong.
    """
    try:
        given = msgspec.json.decode(text, type=dict[str, Raw])
    except RecursionError:
        return InvalidArguments(["arguments: nested too deeply"])
    except msgspec.ValidationError:
        return InvalidParams(lines([Problem(("arguments",), "expected object", msgspec.json.decode(text))])[0])
    except _BROKEN:
        return InvalidParams("arguments: not valid JSON")
    found: list[Problem] = []
    fixed: list[Problem] = []
    for parameter in parameters:
        name, outer = parameter.wire_name, rename(parameter.wire_name)
        problems = _problems(parameter, given[name], schema) if name in given else _missing_of(parameter, schema)
        if outer is None:
            fixed += problems
        else:
            found += [problem._replace(path=(outer, *problem.path[1:])) for problem in problems]
    found += _unknown(given, parameters, rename)
    if fixed and not found:
        raise DefinitionError(f"an argument that is always sent doesn't fit: {'; '.join(lines(fixed))}")
    return InvalidArguments(lines(found) or ["arguments: refused; is a name given twice?"])


def whole_numbers(text: bytes | Raw) -> bytes | None:
    """The same JSON with 2.0 written as 2: to JSON Schema they are one number, and an integer. None if nothing changes."""
    try:
        given = msgspec.json.decode(text)
        whole = _whole(given)
    except (RecursionError, *_BROKEN):
        return None
    return None if whole is given else msgspec.json.encode(whole)


def _whole(value: Any) -> Any:
    """A copy with whole numbers; the same object where there is nothing to change."""
    if type(value) is float:
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        changed = {name: new for name, old in value.items() if (new := _whole(old)) is not old}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [_whole(item) for item in value]
        return value if all(map(operator.is_, items, value)) else items
    return value


def read_text(values: Mapping[str, str], parameters: Sequence[Parameter], schema: Schema) -> dict[str, Any]:
    """Typed arguments from plain texts (prompts, URI templates): each is taken as a string if that fits, else as JSON.

    Raises InvalidArguments.
    """
    found: list[Problem] = []
    arguments: dict[str, Any] = {}
    for parameter in parameters:
        text = values.get(parameter.wire_name)
        if text is not None:
            arguments[parameter.name] = _read_one(parameter, text, schema, found)
        elif parameter.default is not None:
            arguments[parameter.name] = parameter.default()
        else:
            found += _missing_of(parameter, schema)
    found += _unknown(values, parameters)
    if found:
        raise InvalidArguments(lines(found))
    return arguments


def _read_one(parameter: Parameter, text: str, schema: Schema, found: list[Problem]) -> Any:
    try:
        return parameter.type.read(msgspec.json.encode(text))
    except Refused as error:
        as_text = error
    try:
        return parameter.type.read(text.encode())
    except Refused as error:
        nested = isinstance(error.value, list | dict)
        refused, value = (error, error.value) if nested else (as_text, text)
    except (RecursionError, *_BROKEN):
        refused, value = as_text, text
    found += _explained(parameter, value, refused.refusals, schema)
    return None


def _problems(parameter: Parameter, given: Raw, schema: Schema) -> list[Problem]:
    try:
        parameter.type.read(given)
        return []
    except Refused as error:
        if error.value is not msgspec.UNSET:
            return _explained(parameter, error.value, error.refusals, schema)
        text = f"expected {expected(parameter.schema, schema)}, got a number out of range"
    except RecursionError:
        text = "nested too deeply"
    except _BROKEN:
        text = "not valid JSON"
    return [Problem((parameter.wire_name,), text)]


def _explained(parameter: Parameter, value: Any, refusals: Sequence[Refusal], schema: Schema) -> list[Problem]:
    path = (parameter.wire_name,)
    try:
        whole = {**parameter.schema, "$defs": schema.get("$defs", {})}
        return explain(whole, value, refusals, path=path, sure=parameter.type.exact)
    except RecursionError:
        return [Problem(path, "nested too deeply")]


def _missing_of(parameter: Parameter, schema: Schema) -> list[Problem]:
    if not parameter.required:
        return []
    return [Problem((parameter.wire_name,), f"missing (required {expected(parameter.schema, schema)})")]


def _unknown(given: Mapping[str, Any], parameters: Sequence[Parameter], rename: Rename = str) -> list[Problem]:
    known = [parameter.wire_name for parameter in parameters]
    shown = [name for one in known if (name := rename(one)) is not None]
    return [unknown(rename(name) or name, shown, what="argument") for name in given if name not in known]
