"""Schemas: plain words for plain types, alike from msgspec and pydantic, nested types in `$defs`."""

import datetime
import decimal
import enum
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from gemel.server.functions.json_schema import Schema, SchemaWriter, object_schema, root_schema
from gemel.server.functions.values import value_type


def schema_of(annotation: Any, *, reading: bool = True) -> Schema:
    writer = SchemaWriter(reading=reading)
    schema = value_type(annotation, writer).schema
    return {**schema, "$defs": writer.definitions} if writer.definitions else schema


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (Any, {}),
        (None, {"type": "null"}),
        (bool, {"type": "boolean"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (str, {"type": "string"}),
        (bytes, {"type": "string", "contentEncoding": "base64"}),
        (datetime.date, {"type": "string", "format": "date"}),
        (datetime.datetime, {"type": "string", "format": "date-time"}),
        (datetime.time, {"type": "string", "format": "time"}),
        (datetime.timedelta, {"type": "string", "format": "duration"}),
        (uuid.UUID, {"type": "string", "format": "uuid"}),
        (decimal.Decimal, {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}),
        (list, {"type": "array"}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (Sequence[int], {"type": "array", "items": {"type": "integer"}}),
        (set[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (
            tuple[int, str],
            {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2},
        ),
        (dict, {"type": "object"}),
        (dict[str, Any], {"type": "object"}),
        (Mapping[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (None | int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]}),
        (Literal["low", "high"], {"type": "string", "enum": ["low", "high"]}),
        (Literal["only"], {"type": "string", "const": "only"}),
        (Literal[2, 1], {"type": "integer", "enum": [2, 1]}),
        (Literal["b", "a", None], {"anyOf": [{"type": "string", "enum": ["b", "a"]}, {"type": "null"}]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
    ],
)
def test_plain_types_become_plain_schemas(annotation: Any, schema: Schema) -> None:
    assert schema_of(annotation) == schema


@pytest.mark.parametrize(
    ("meta", "base", "words"),
    [
        (msgspec.Meta(ge=1, lt=5), int, {"type": "integer", "minimum": 1, "exclusiveMaximum": 5}),
        (msgspec.Meta(gt=0, le=1, multiple_of=0.5), float, {"exclusiveMinimum": 0, "maximum": 1, "multipleOf": 0.5}),
        (
            msgspec.Meta(min_length=1, max_length=3, pattern="^a"),
            str,
            {"minLength": 1, "maxLength": 3, "pattern": "^a"},
        ),
        (msgspec.Meta(min_length=1, max_length=4), bytes, {"minLength": 4, "maxLength": 8}),
        (msgspec.Meta(min_length=1), list[int], {"minItems": 1}),
        (msgspec.Meta(max_length=2), dict[str, int], {"maxProperties": 2}),
        (msgspec.Meta(description="d", examples=["x"]), str, {"description": "d", "examples": ["x"]}),
        (msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"}), str, {"x-mcp-header": "Region"}),
        (msgspec.Meta(title="T"), str, {"title": "T"}),
    ],
)
def test_what_meta_says_passes_through(meta: msgspec.Meta, base: Any, words: Schema) -> None:
    """HDR-09."""
    annotation: Any = Annotated[base, meta]
    assert schema_of(annotation) == {**schema_of(base), **words}


def test_limits_on_keys_become_property_names() -> None:
    annotation = dict[Annotated[str, msgspec.Meta(min_length=2)], int]
    assert schema_of(annotation)["propertyNames"] == {"minLength": 2}


def test_enums_keep_the_order_of_their_author() -> None:
    assert schema_of(Colour) == {
        "$ref": "#/$defs/Colour",
        "$defs": {"Colour": {"type": "string", "enum": ["red", "blue"]}},
    }
    assert schema_of(Level)["$defs"]["Level"] == {"type": "integer", "enum": [1, 2]}


def test_what_is_sent_promises_a_time_zone_only_if_the_type_does() -> None:
    aware = Annotated[datetime.datetime, msgspec.Meta(tz=True)]
    assert schema_of(datetime.datetime, reading=False) == {"type": "string"}
    assert schema_of(aware, reading=False) == {"type": "string", "format": "date-time"}


def test_what_is_sent_is_narrower_than_what_is_taken() -> None:
    assert schema_of(decimal.Decimal, reading=False) == {"type": "string", "format": "decimal"}
    assert schema_of(set[int], reading=False)["uniqueItems"] is True


@dataclass
class Row:
    """A row.

    Attributes:
        size: how big
    """

    size: int
    colour: Colour = Colour.RED
    level: Literal["low", "high"] = "low"
    note: Annotated[str, "a note"] = ""
    tags: list[str] = field(default_factory=list)
    stamp: float = field(default_factory=lambda: 0.5)


class RowStruct(msgspec.Struct):
    """A row.

    Attributes:
        size: how big
    """

    size: int
    colour: Colour = Colour.RED
    level: Literal["low", "high"] = "low"
    note: Annotated[str, "a note"] = ""
    tags: list[str] = []
    stamp: float = msgspec.field(default_factory=lambda: 0.5)


class RowModel(pydantic.BaseModel):
    """A row.

    Attributes:
        size: how big
    """

    size: int
    colour: Colour = Colour.RED
    level: Literal["low", "high"] = "low"
    note: Annotated[str, pydantic.Field(description="a note")] = ""
    tags: list[str] = []
    stamp: float = pydantic.Field(default_factory=lambda: 0.5)


ROW: Schema = {
    "type": "object",
    "description": "A row.",
    "properties": {
        "size": {"type": "integer", "description": "how big"},
        "colour": {"$ref": "#/$defs/Colour", "default": "red"},
        "level": {"type": "string", "enum": ["low", "high"], "default": "low"},
        "note": {"type": "string", "description": "a note", "default": ""},
        "tags": {"type": "array", "items": {"type": "string"}, "default": []},
        "stamp": {"type": "number"},
    },
    "required": ["size"],
}


@pytest.mark.parametrize("cls", [Row, RowStruct, RowModel])
def test_classes_come_out_alike_whichever_library_reads_them(cls: type) -> None:
    name = cls.__name__
    assert schema_of(cls) == {
        "$ref": f"#/$defs/{name}",
        "$defs": {name: ROW, "Colour": {"type": "string", "enum": ["red", "blue"]}},
    }


def test_typed_dicts_know_what_may_be_missing() -> None:
    class Options(TypedDict):
        a: int
        b: NotRequired[Annotated[str, "the b"]]

    assert schema_of(Options)["$defs"]["Options"] == {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string", "description": "the b"}},
        "required": ["a"],
    }


def test_a_named_tuple_is_an_array_whose_places_are_described() -> None:
    class Pair(NamedTuple):
        x: int
        y: str = "z"

    assert schema_of(Pair)["$defs"]["Pair"] == {
        "type": "array",
        "prefixItems": [
            {"type": "integer", "description": "x"},
            {"type": "string", "default": "z", "description": "y"},
        ],
        "minItems": 1,
        "maxItems": 2,
    }


def test_structs_tell_their_tag_their_names_and_whether_they_are_closed() -> None:
    class Cat(msgspec.Struct, tag=True, rename="camel", forbid_unknown_fields=True):
        nine_lives: bool

    assert schema_of(Cat)["$defs"]["Cat"] == {
        "type": "object",
        "properties": {"type": {"type": "string", "const": "Cat"}, "nineLives": {"type": "boolean"}},
        "required": ["type", "nineLives"],
        "additionalProperties": False,
    }


def test_docstrings_that_python_made_describe_nothing() -> None:
    @dataclass
    class Bare:
        x: int

    class Sub(Row):
        pass

    assert "description" not in schema_of(Bare)["$defs"]["Bare"]
    assert "description" not in schema_of(Sub)["$defs"]["Sub"]


class Tree(msgspec.Struct):
    kids: "list[Tree]" = []


class TreeModel(pydantic.BaseModel):
    kids: "list[TreeModel]" = []


@pytest.mark.parametrize("cls", [Tree, TreeModel])
def test_a_type_that_contains_itself_refers_to_itself(cls: type) -> None:
    schema = schema_of(cls)
    name = cls.__name__
    assert schema["$defs"][name]["properties"]["kids"]["items"] == {"$ref": f"#/$defs/{name}"}
    assert root_schema({"$ref": f"#/$defs/{name}"}, schema["$defs"])["$defs"].keys() == {name}


def test_two_classes_of_one_name_get_two_definitions() -> None:
    def make(kind: Any, base: type) -> type:
        namespace = {"__annotations__": {"x": kind}, "__module__": __name__}
        return type("Same", (base,), namespace)

    writer = SchemaWriter(reading=True)
    types = [make(int, msgspec.Struct), make(str, msgspec.Struct), make(float, pydantic.BaseModel)]
    names = [value_type(list[cls], writer).schema["items"]["$ref"] for cls in types]  # type: ignore[valid-type]  # a class held in a variable
    assert names == ["#/$defs/Same", "#/$defs/Same_2", "#/$defs/Same_3"]
    kinds = [writer.definitions[name.rpartition("/")[2]]["properties"]["x"]["type"] for name in names]
    assert kinds == ["integer", "string", "number"]


def test_a_model_used_twice_is_defined_once() -> None:
    writer = SchemaWriter(reading=True)
    for annotation in (RowModel, list[RowModel], TreeModel, TreeModel | None):
        value_type(annotation, writer)
    assert writer.definitions.keys() == {"RowModel", "Colour", "TreeModel"}


def test_tagged_models_need_no_foreign_words() -> None:
    """`discriminator` is OpenAPI's, and its references would go stale."""

    class Cat(pydantic.BaseModel):
        kind: Literal["cat"]

    class Dog(pydantic.BaseModel):
        kind: Literal["dog"]

    schema = schema_of(Annotated[Cat | Dog, pydantic.Field(discriminator="kind")])
    assert schema["oneOf"] == [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}]
    assert "discriminator" not in schema


def test_arguments_without_parameters_are_an_empty_closed_object() -> None:
    """TOOL-04, TOOL-08."""
    assert object_schema({}, [], {}) == {"type": "object", "properties": {}, "additionalProperties": False}


def test_a_root_that_is_a_reference_becomes_what_it_names() -> None:
    definitions: dict[str, Schema] = {
        "A": {"type": "object", "additionalProperties": {"$ref": "#/$defs/B"}},
        "B": {"type": "string"},
        "C": {"type": "null"},
    }
    schema = root_schema({"$ref": "#/$defs/A", "description": "d"}, definitions)
    assert schema == {**definitions["A"], "description": "d", "$defs": {"B": {"type": "string"}}}
    assert root_schema({"type": "integer"}, {}) == {"type": "integer"}
