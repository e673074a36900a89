"""Returned values: what is promised, what is sent, and what the author hears when the two differ."""

import datetime
import enum
import ipaddress
import pathlib
import typing
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, TypedDict

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from gemel import CallToolResult, ContentBlock, DefinitionError, EmbeddedResource, TextContent
from gemel.server.functions.annotations import Place
from gemel.server.functions.results import Output, inspect_output, is_content

PLACE = Place("forecast", "app.py", 12)


def output(annotation: Any, description: str | None = None) -> Output:
    return inspect_output(annotation, PLACE, is_content, description)


def mistake(found: Output, value: Any) -> str:
    with pytest.raises(DefinitionError) as caught:
        found.encode(value)
    text = str(caught.value)
    assert text.startswith("forecast() at app.py:12: ")
    return text.removeprefix("forecast() at app.py:12: ")


class Colour(enum.Enum):
    RED = "red"


class Shade(enum.StrEnum):
    DARK = "dark"


@dataclass
class Day:
    city: str
    temp: float
    tags: list[str] = field(default_factory=list)


class DayStruct(msgspec.Struct, rename="camel", omit_defaults=True):
    city_name: str
    temp: float = 0.5


class DayModel(pydantic.BaseModel):
    city: str = pydantic.Field(serialization_alias="cityName")
    temp: float = 0.5


class DayDict(TypedDict):
    city: str


class Pair(NamedTuple):
    x: int
    y: int


class Plain: ...


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        (int, 3, "3"),
        (float, 3, "3"),
        (bool, True, "true"),
        (int | None, None, "null"),
        (list[int], [1, 2], "[1,2]"),
        (list[int], (1, 2), "[1,2]"),
        (dict[str, int], {"a": 1}, '{"a":1}'),
        (dict[int, str], {1: "a"}, '{"1":"a"}'),
        (Day, Day("Oslo", 1.5), '{"city":"Oslo","temp":1.5,"tags":[]}'),
        (list[Day], [Day("Oslo", 1.5)], '[{"city":"Oslo","temp":1.5,"tags":[]}]'),
        (Day, {"city": "Oslo", "temp": 1}, '{"city":"Oslo","temp":1}'),
        (DayStruct, DayStruct("Oslo"), '{"cityName":"Oslo"}'),
        (DayModel, DayModel(city="Oslo"), '{"cityName":"Oslo","temp":0.5}'),
        (DayDict, {"city": "Åre", "more": 1}, '{"city":"Åre","more":1}'),
        (Pair, Pair(1, 2), "[1,2]"),
        (Colour, Colour.RED, '"red"'),
        (Shade | None, Shade.DARK, '"dark"'),
        (datetime.date, datetime.date(2026, 1, 31), '"2026-01-31"'),
        (bytes, b"hi", '"aGk="'),
        (pathlib.PurePosixPath, pathlib.PurePosixPath("/a"), '"/a"'),
        (Iterable[int], iter([1, 2]), "[1,2]"),
        (Awaitable[int], 3, "3"),
        (str | int, 3, "3"),
    ],
)
def test_a_value_is_encoded_once_as_structure_and_as_text(annotation: Any, value: Any, text: str) -> None:
    """TOOL-14, TOOL-17."""
    found = output(annotation)
    structured, encoded = found.encode(value)
    assert isinstance(structured, Raw)
    assert (encoded, bytes(structured)) == (text, text.encode())
    assert found.schema is not None
    assert jsonschema_rs.is_valid(found.schema, msgspec.json.decode(text))


@pytest.mark.parametrize("annotation", [str, None, str | None, Annotated[str, "the text"], NoReturn])
def test_text_and_nothing_promise_nothing(annotation: Any) -> None:
    assert output(annotation).schema is None


@pytest.mark.parametrize(
    "annotation",
    [
        TextContent,
        ContentBlock,
        list[ContentBlock],
        list[str | EmbeddedResource],
        tuple[TextContent, ...],
        CallToolResult,
        CallToolResult | None,
        str | TextContent,
    ],
)
def test_content_promises_nothing(annotation: Any) -> None:
    assert output(annotation).schema is None


def test_other_types_can_be_named_as_content() -> None:
    found = inspect_output(list[Plain], PLACE, lambda annotation: annotation is Plain)
    assert found.schema is None


def test_a_result_made_by_hand_may_promise_its_structure() -> None:
    found = output(Annotated[CallToolResult, Day])
    assert found.schema is not None
    assert found.schema["required"] == ["city", "temp"]


@pytest.mark.parametrize("annotation", [UNSET, Any, object, int | Any, typing.TypeVar("T")])
def test_without_a_promise_anything_goes_out(annotation: Any) -> None:
    found = output(annotation)
    assert found.schema is None
    assert found.encode("text") == (UNSET, "text")
    assert found.encode(None) == (UNSET, "")
    assert found.encode(Day("Oslo", 1))[1] == '{"city":"Oslo","temp":1,"tags":[]}'
    assert found.encode(Shade.DARK)[1] == '"dark"'


def test_text_goes_out_as_it_is() -> None:
    assert output(str).encode("a") == (UNSET, "a")
    assert output(str | None).encode(None) == (UNSET, "")
    assert output(None).encode(None) == (UNSET, "")


def test_the_root_of_a_class_is_an_object_and_nested_classes_are_definitions() -> None:
    """TOOL-13: older revisions want `type: object` at the root."""
    schema = output(Day).schema
    assert schema is not None
    assert (schema["type"], "$defs" in schema) == ("object", False)
    assert output(list[Day]).schema == {
        "type": "array",
        "items": {"$ref": "#/$defs/Day"},
        "$defs": {"Day": schema},
    }


def test_the_docstring_describes_the_result() -> None:
    assert output(int, "the sum").schema == {"type": "integer", "description": "the sum"}
    assert output(str, "the text").schema is None
    assert output(int).schema == {"type": "integer"}


ADVICE = "return what the annotation says, or change the annotation"


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (int, "x", f'returned a value that doesn\'t fit `-> int`: expected integer, got string "x"; {ADVICE}'),
        (int, None, f"returned a value that doesn't fit `-> int`: expected integer, got null; {ADVICE}"),
        (
            list[Day],
            [Day("Oslo", 1), Day("Oslo", "warm"), {"temp": 1}],  # type: ignore[arg-type]  # the wrong type is the point
            'returned a value that doesn\'t fit `-> list[Day]`: [1].temp: expected number, got string "warm"; '
            f"[2].city: missing (required string); {ADVICE}",
        ),
        (
            float,
            float("nan"),
            "returned NaN, which has no JSON form: use None for a missing value",
        ),
        (
            DayModel,
            DayModel.model_construct(city=3),
            f"returned a value that doesn't fit `-> DayModel`: cityName: expected string, got integer 3; {ADVICE}",
        ),
        (DayModel, 3, f"returned a value that doesn't fit `-> DayModel`: expected object, got integer 3; {ADVICE}"),
        (str, 3, f"returned int, but is annotated `-> str`; {ADVICE}"),
        (str, None, f"returned NoneType, but is annotated `-> str`; {ADVICE}"),
        (None, 3, f"returned int, but is annotated `-> None`; {ADVICE}"),
    ],
)
def test_a_value_that_breaks_the_promise_is_told_to_the_author_and_not_sent(
    annotation: Any, value: Any, message: str
) -> None:
    """TOOL-15."""
    assert mistake(output(annotation), value) == message


@pytest.mark.parametrize("annotation", [UNSET, dict[str, Any]])
def test_a_value_without_json_form_is_told_with_its_type(annotation: Any) -> None:
    assert mistake(output(annotation), {"a": Plain()}) == (
        "returned Plain at `a`, which has no JSON form: convert it to a str, number, list, dict, dataclass or pydantic model"
    )


def test_a_value_that_contains_itself_is_told() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert mistake(output(list), endless).startswith("returned list (contains itself, or is nested too deeply), which")


def test_text_that_is_not_unicode_is_replaced() -> None:
    _, text = output(list[str]).encode(["caf\udce9", "\ud83d\ude00"])
    assert text == '["caf\ufffd","😀"]'


@pytest.mark.parametrize("annotation", [Plain, list[Plain]])
def test_a_type_without_json_form_is_refused_when_registering(annotation: Any) -> None:
    with pytest.raises(DefinitionError) as caught:
        output(annotation)
    name = "Plain" if annotation is Plain else "list[Plain]"
    assert str(caught.value) == (
        f"forecast() at app.py:12: the return annotation `{name}` can't become JSON: Plain has no JSON form; return a "
        "dataclass, TypedDict, msgspec.Struct, pydantic model, dict, list, number or str, or remove the annotation "
        "to send text"
    )


def test_pydantic_serves_types_that_msgspec_lacks() -> None:
    found = output(list[ipaddress.IPv4Address])
    assert found.encode([ipaddress.IPv4Address("127.0.0.1")])[1] == '["127.0.0.1"]'


_TYPES: list[Any] = [
    int,
    float | None,
    list[int],
    dict[str, float],
    Day,
    DayStruct,
    DayDict,
    Pair,
    Colour,
    Literal["a"],
]
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(list(Colour)),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["city", "temp"]) | st.text(max_size=3), inner, max_size=3)
        | st.builds(Day, inner, inner)
        | st.builds(DayStruct, inner, inner)
    ),
    max_leaves=5,
)
_OUTPUTS = [output(annotation) for annotation in _TYPES]


@given(st.sampled_from(_OUTPUTS), _VALUES)
def test_what_is_sent_always_fits_what_was_promised(found: Output, value: Any) -> None:
    """TOOL-15."""
    try:
        _, text = found.encode(value)
    except DefinitionError:
        return
    assert found.schema is not None
    assert jsonschema_rs.is_valid(found.schema, msgspec.json.decode(text))
