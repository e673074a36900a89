"""Arguments of a call: JSON or plain text becomes typed keyword arguments, or an error that lists everything wrong with it.

How the errors are worded is decided in validation_errors.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, DecimalException
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import DefinitionError, InvalidArguments, InvalidParams
from gemel.protocol.decoding import SMALL, check_values, collector_paused
from gemel.protocol.limits import DEFAULT_LIMITS
from gemel.protocol.validation import compile_schema
from gemel.server.functions.json_schema import Schema
from gemel.server.functions.validation_errors import (
    MAX_ERRORS,
    MAX_EXPLAINED,
    NOT_AN_OBJECT,
    NOT_JSON,
    REPEATED,
    TOO_DEEP,
    Key,
    Rejection,
    Violation,
    error_lines,
    explain,
    first_violation,
    from_rejection,
    missing,
    out_of_range,
    unknown_member,
)
from gemel.server.functions.values import PydanticType, ValueRejected, ValueType
from gemel.values.encoding import NotSerializable, plain_value

#: From a parameter's own name to the name that the caller uses for it; None for one that the caller doesn't pass.
Rename: TypeAlias = Callable[[str], str | None]

#: A number with a larger exponent is beyond a float, and is not made an integer.
_MOST_DIGITS = 308
#: What the readers raise for text that isn't JSON at all.
_NOT_JSON = (msgspec.MsgspecError, ValueError)

_asdict = msgspec.structs.asdict


class Parameter(NamedTuple):
    """A parameter that the caller fills: `wire_name` is its name in JSON, `default` makes its default, if any."""

    name: str
    wire_name: str
    type: ValueType
    schema: Schema
    default: Callable[[], Any] | None

    @property
    def required(self) -> bool:
        """Whether a call without it is an error."""
        return self.default is None

    @property
    def description(self) -> str | None:
        """The author's description."""
        return self.schema.get("description")


class Arguments:
    """Reads the arguments of a function by its annotations. `schema` is the JSON Schema of all arguments."""

    __slots__ = ("_decoder", "_parameters", "_schema", "_separate")

    def __init__(self, parameters: Sequence[Parameter], schema: Schema) -> None:
        self._parameters = parameters
        self._schema = schema
        #: Made at the first call: of many tools, few are called soon after the start.
        self._decoder: Callable[[bytes | Raw], Any] | None = None
        #: Parameters that msgspec leaves as JSON text, for another library to read.
        self._separate = tuple(parameter for parameter in parameters if parameter.type.field is Raw)

    def _make_decoder(self) -> Callable[[bytes | Raw], Any]:
        self._decoder = msgspec.json.Decoder(_struct(self._parameters)).decode
        return self._decoder

    def from_json(self, text: bytes | Raw) -> dict[str, Any]:
        """Read the JSON text of an object, with defaults; empty text and null count as `{}`.

        Raises InvalidArguments with every error, and InvalidParams if the text isn't a JSON object.
        """
        if len(text) > MAX_EXPLAINED:
            return self._read_large(text, str)
        try:
            values = _asdict((self._decoder or self._make_decoder())(text))
            if self._separate:
                self._read_separate(values)
            return values
        except (msgspec.MsgspecError, ValueRejected, UnicodeDecodeError, RecursionError, TypeError):
            again = b"{}" if bytes(text).strip() in (b"", b"null") else _with_integers(text)
            if again is not None:
                return self.from_json(again)
            raise self.errors(text) from None

    def plain_from_json(self, text: bytes | Raw) -> dict[str, Any]:
        """Read the arguments as the function gets them, with defaults, as plain JSON types by their names in JSON.

        Secrets have their contents. A value that has no JSON form is left out. Raises what `from_json` raises.
        """
        values = self.from_json(text)
        plain = {}
        for parameter in self._parameters:
            value = values[parameter.name]
            if isinstance(parameter.type, PydanticType):
                value = parameter.type.revealed(value)
            with suppress(NotSerializable):
                plain[parameter.wire_name] = plain_value(value)
        return plain

    def _read_separate(self, values: dict[str, Any]) -> None:
        for parameter in self._separate:
            value = values[parameter.name]
            if type(value) is Raw:
                values[parameter.name] = parameter.type.read(value)

    def _read_large(self, text: bytes | Raw, rename: Rename) -> dict[str, Any]:
        """Read text whose values are decoded once and never looked at: only the first error is reported."""
        with collector_paused():
            try:
                values = _asdict((self._decoder or self._make_decoder())(text))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError) as error:
                raise self._first_error(error, rename) from None
            for parameter in self._separate:
                value = values[parameter.name]
                if type(value) is Raw:
                    try:
                        values[parameter.name] = parameter.type.read(value)
                    except (ValueRejected, msgspec.MsgspecError, RecursionError) as error:
                        raise self._first_error(error, rename, parameter.wire_name) from None
            return values

    def from_text(self, values: Mapping[str, str]) -> dict[str, Any]:
        """Read plain strings (prompts, URI templates): each is taken as a string if that fits, else as JSON.

        Raises InvalidArguments with every error.
        """
        violations: list[Violation] = []
        arguments: dict[str, Any] = {}
        for parameter in self._parameters:
            text = values.get(parameter.wire_name)
            if text is not None:
                arguments[parameter.name] = self._from_one_text(parameter, text, violations)
            elif parameter.default is not None:
                arguments[parameter.name] = parameter.default()
            else:
                violations.append(missing((parameter.wire_name,), parameter.schema, self._schema))
        violations += self._unknown(values)
        if violations:
            raise InvalidArguments(error_lines(violations))
        return arguments

    def errors(self, text: bytes | Raw, rename: Rename = str) -> InvalidParams:
        """The error for arguments that don't fit: everything the caller can correct, in the names that the caller uses.

        InvalidArguments if they break the schema, plain InvalidParams if they aren't a JSON object, which breaks the
        shape of the request. Raises DefinitionError when only arguments that the caller doesn't pass are wrong.
        """
        if len(text) > MAX_EXPLAINED:
            try:
                self._read_large(text, rename)
            except InvalidParams as refused:
                return refused
        try:
            given = msgspec.json.decode(text, type=dict[str, Raw])
        except RecursionError:
            return InvalidArguments(error_lines([Violation(("arguments",), TOO_DEEP)]))
        except msgspec.ValidationError:
            error = Violation(("arguments",), NOT_AN_OBJECT, msgspec.json.decode(text))
            return InvalidParams(error_lines([error])[0])
        except _NOT_JSON:
            return InvalidParams(error_lines([Violation(("arguments",), NOT_JSON)])[0])
        violations: list[Violation] = []
        fixed: list[Violation] = []
        for parameter in self._parameters:
            name, outer = parameter.wire_name, rename(parameter.wire_name)
            if name in given:
                wrong = self._violations(parameter, given[name])
            else:
                wrong = [missing((name,), parameter.schema, self._schema)] if parameter.required else []
            if outer is None:
                fixed += wrong
            else:
                violations += [error._replace(path=(outer, *error.path[1:])) for error in wrong]
        violations += self._unknown(given, rename)
        if fixed and not violations:
            raise _wrong_fixed_argument(error_lines(fixed))
        return InvalidArguments(error_lines(violations or [Violation(("arguments",), REPEATED)]))

    def _first_error(self, error: Exception, rename: Rename, parameter: str | None = None) -> InvalidParams:
        """The first thing that is wrong with large arguments, or with one of them."""
        match error:
            case ValueRejected():
                violation = from_rejection(self._schema, UNSET, error.rejections[0])
            case msgspec.ValidationError():
                violation = first_violation(error, self._schema, "argument")
            case RecursionError():
                violation = Violation((), TOO_DEEP)
            case _:
                return InvalidParams(error_lines([Violation(("arguments",), NOT_JSON)])[0])
        path = violation.path if parameter is None else (parameter, *violation.path)
        if not path:
            lines = error_lines([violation._replace(path=("arguments",))])
            return InvalidArguments(lines) if violation.text == TOO_DEEP else InvalidParams(lines[0])
        name = rename(str(path[0]))
        if name is None:
            raise _wrong_fixed_argument(error_lines([violation._replace(path=path)]))
        step = Key(name) if isinstance(path[0], Key) else name
        return InvalidArguments(error_lines([violation._replace(path=(step, *path[1:]))]))

    def _from_one_text(self, parameter: Parameter, text: str, violations: list[Violation]) -> Any:
        try:
            return parameter.type.read(msgspec.json.encode(text))
        except ValueRejected as error:
            as_text = error
        try:
            if text != text.strip() and text.strip()[:1] not in "[{":
                raise as_text  # JSON allows blanks around a number; the text of a number has none
            encoded = text.encode()
            if len(encoded) > SMALL:
                check_values(encoded, DEFAULT_LIMITS.values)
            return parameter.type.read(encoded)
        except ValueRejected as error:
            nested = isinstance(error.value, list | dict)
            rejected, value = (error, error.value) if nested else (as_text, text)
        except (RecursionError, *_NOT_JSON):
            rejected, value = as_text, text
        violations += self._explained(parameter, value, rejected.rejections)
        return None

    def _violations(self, parameter: Parameter, given: Raw) -> list[Violation]:
        path = (parameter.wire_name,)
        try:
            parameter.type.read(given)
            return []
        except ValueRejected as error:
            if error.value is not msgspec.UNSET:
                return self._explained(parameter, error.value, error.rejections)
            return [out_of_range(path, parameter.schema, self._schema)]
        except RecursionError:
            return [Violation(path, TOO_DEEP)]
        except _NOT_JSON:
            return [Violation(path, NOT_JSON)]

    def _explained(self, parameter: Parameter, value: object, rejections: Sequence[Rejection]) -> list[Violation]:
        path = (parameter.wire_name,)
        try:
            whole = {**parameter.schema, "$defs": self._schema.get("$defs", {})}
            return explain(whole, value, rejections, path=path, exact=parameter.type.exact)
        except RecursionError:
            return [Violation(path, TOO_DEEP)]

    def _unknown(self, given: Mapping[str, Any], rename: Rename = str) -> list[Violation]:
        names = [parameter.wire_name for parameter in self._parameters]
        shown = [outer for name in names if (outer := rename(name)) is not None]
        unknown = islice((name for name in given if name not in names), MAX_ERRORS + 1)
        return [unknown_member(rename(name) or name, shown, what="argument") for name in unknown]


def _struct(parameters: Sequence[Parameter]) -> type[msgspec.Struct]:
    fields: list[Any] = [
        (item.name, item.type.field)
        if item.default is None
        else (item.name, item.type.field, msgspec.field(default_factory=item.default))
        for item in parameters
    ]
    names = {item.name: item.wire_name for item in parameters}
    return msgspec.defstruct("Arguments", fields, rename=names, kw_only=True, forbid_unknown_fields=True)


def _with_integers(text: bytes | Raw) -> bytes | None:
    """The same JSON with 2.0 written as 2, which is an integer in JSON Schema. None if nothing changes."""
    try:
        given = _decode_numbers(text)
        whole = _whole(given)
    except (RecursionError, DecimalException, *_NOT_JSON):
        return None
    return None if whole is given else _encode_numbers(whole)


#: Numbers that aren't integers as decimals, which keep all their digits.
_decode_numbers = msgspec.json.Decoder(float_hook=Decimal).decode
_encode_numbers = msgspec.json.Encoder(decimal_format="number").encode


def _whole(value: object) -> Any:
    """A copy with integers; the same object where there is nothing to change."""
    if type(value) is Decimal:
        return int(value) if value.adjusted() <= _MOST_DIGITS and value == value.to_integral_value() else value
    if isinstance(value, dict):
        changed = {name: new for name, old in value.items() if (new := _whole(old)) is not old}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [_whole(item) for item in value]
        return value if all(map(operator.is_, items, value)) else items
    return value


class SchemaArguments:
    """Checks arguments against a JSON Schema of the author's; the function takes them all as one dict.

    Raises DefinitionError for a schema that can't be used, and for a function with other parameters.
    """

    __slots__ = ("_parameter", "_schema", "_validator")

    def __init__(self, parameters: Sequence[Parameter], schema: object, tool: str) -> None:
        self._schema: dict[str, Any] = dict(schema) if isinstance(schema, Mapping) else {}
        if self._schema.get("type") != "object":
            raise DefinitionError(f'Tool {tool!r}: its input_schema must say "type": "object" at the root')
        if len(parameters) != 1:
            raise DefinitionError(
                f"Tool {tool!r} has an input_schema: give its function one parameter for all arguments, a dict"
            )
        self._parameter = parameters[0].name
        try:
            self._validator = compile_schema(self._schema)
        except ValueError as exc:
            raise DefinitionError(f"Tool {tool!r}: its input_schema is {exc}") from exc

    def from_json(self, text: Raw | bytes) -> dict[str, Any]:
        """Read and check the JSON text. Raises InvalidArguments with every error."""
        given = msgspec.json.decode(text)
        problems = self._validator.problems(given)
        if problems:
            raise InvalidArguments(problems)
        return {self._parameter: given}

    def plain_from_json(self, text: Raw | bytes) -> dict[str, Any]:
        """See `Arguments.plain_from_json`: what the function gets is JSON already."""
        given: dict[str, Any] = self.from_json(text)[self._parameter]
        return given

    def errors(self, text: bytes | Raw, rename: Rename) -> InvalidParams:
        """The error for arguments that don't fit, in the names that the caller uses; see `Arguments.errors`."""
        properties = self._schema.get("properties", {})
        outer = {name: schema for inner, schema in properties.items() if (name := rename(inner)) is not None}
        required = [name for one in self._schema.get("required", ()) if (name := rename(one)) is not None]
        given = msgspec.json.decode(text or b"{}")
        renamed = {name: value for inner, value in given.items() if (name := rename(inner)) is not None}
        validator = compile_schema({**self._schema, "properties": outer, "required": required})
        problems = validator.problems(renamed)
        if not problems:
            raise _wrong_fixed_argument(self._validator.problems(given))
        return InvalidArguments(problems)


def _wrong_fixed_argument(errors: Sequence[str]) -> DefinitionError:
    return DefinitionError(f"an argument that is always sent doesn't fit: {'; '.join(errors)}")
