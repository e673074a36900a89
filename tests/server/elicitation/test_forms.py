"""Forms: every kind of field that a question may have, for each revision, and what users send back."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest
from msgspec import Meta
from pydantic import BaseModel, Field, WithJsonSchema, field_validator

from gemel import DefinitionError, ElicitFormParams, Titled
from gemel.protocol.revisions.adapt import TooNew, shape
from gemel.server.elicitation.forms import form_of
from tests.wire_table import REVISIONS


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


Flavour = Literal["sweet", "sour"]
Titles = Titled(sweet="Sweet", sour="Sour")

#: By annotation: the field that a client is shown.
FIELDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": (str, {"type": "string"}),
    "bounded text": (
        Annotated[str, Meta(min_length=2, max_length=5)],
        {"type": "string", "minLength": 2, "maxLength": 5},
    ),
    "titled text": (
        Annotated[str, Meta(title="Name", description="in full")],
        {"type": "string", "title": "Name", "description": "in full"},
    ),
    "mail": (
        Annotated[str, Meta(extra_json_schema={"format": "email"})],
        {"type": "string", "format": "email"},
    ),
    "address": (Annotated[str, Meta(extra_json_schema={"format": "uri"})], {"type": "string", "format": "uri"}),
    "another format": (Annotated[str, Meta(extra_json_schema={"format": "ipv4"})], {"type": "string"}),
    "a pattern, which is checked here": (Annotated[str, Meta(pattern="^a")], {"type": "string"}),
    "a day": (date, {"type": "string", "format": "date"}),
    "a moment": (datetime, {"type": "string", "format": "date-time"}),
    "integer": (int, {"type": "integer"}),
    "bounded integer": (Annotated[int, Meta(ge=1, le=9)], {"type": "integer", "minimum": 1, "maximum": 9}),
    "number": (float, {"type": "number"}),
    "yes or no": (bool, {"type": "boolean"}),
    "a choice": (Flavour, {"type": "string", "enum": ["sweet", "sour"]}),
    "text of either format": (
        Annotated[str, Meta(extra_json_schema={"anyOf": [{"format": "email"}, {"format": "uri"}]})],
        {"type": "string"},
    ),
    "yes or no, written out": (Literal[True, False], {"type": "boolean"}),
    "a choice with titles of values that are no names": (
        Annotated[Literal["1st", "second"], Titled({"1st": "First"}, second="Second")],
        {"type": "string", "oneOf": [{"const": "1st", "title": "First"}, {"const": "second", "title": "Second"}]},
    ),
    "a described enum": (
        Annotated[Size, Meta(description="of the cup")],
        {"type": "string", "enum": ["small", "large"], "description": "of the cup"},
    ),
    "choices of one": (list[Literal["ok"]], {"type": "array", "items": {"type": "string", "enum": ["ok"]}}),
    "a choice of one": (Literal["ok"], {"type": "string", "enum": ["ok"]}),
    "an enum": (Size, {"type": "string", "enum": ["small", "large"]}),
    "a titled choice": (
        Annotated[Flavour, Titles],
        {"type": "string", "oneOf": [{"const": "sweet", "title": "Sweet"}, {"const": "sour", "title": "Sour"}]},
    ),
    "a titled choice in the old form": (
        Annotated[Flavour, Titled(sweet="Sweet", sour="Sour", old_form=True)],
        {"type": "string", "enum": ["sweet", "sour"], "enumNames": ["Sweet", "Sour"]},
    ),
    "choices": (list[Flavour], {"type": "array", "items": {"type": "string", "enum": ["sweet", "sour"]}}),
    "so many choices": (
        Annotated[list[Flavour], Meta(min_length=1, max_length=2)],
        {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "string", "enum": ["sweet", "sour"]}},
    ),
    "titled choices": (
        Annotated[list[Flavour], Titles],
        {
            "type": "array",
            "items": {"anyOf": [{"const": "sweet", "title": "Sweet"}, {"const": "sour", "title": "Sour"}]},
        },
    ),
    "choices of an enum": (list[Size], {"type": "array", "items": {"type": "string", "enum": ["small", "large"]}}),
}


@pytest.mark.parametrize("what", FIELDS)
def test_a_field_says_what_clients_understand_and_nothing_else(what: str) -> None:
    """ELIC-05, ELIC-06, ELIC-08: alone, and as a member."""
    annotation, field = FIELDS[what]
    alone = form_of(annotation).schema
    assert alone == {"type": "object", "properties": {"value": field}, "required": ["value"]}
    fields: Any = [("one", annotation), ("other", str, "x")]
    inside = form_of(msgspec.defstruct("Inside", fields)).schema
    assert inside == {
        "type": "object",
        "properties": {"one": field, "other": {"type": "string", "default": "x"}},
        "required": ["one"],
    }


@pytest.mark.parametrize("what", FIELDS)
@pytest.mark.parametrize("revision", REVISIONS[2:])
def test_a_field_is_said_in_the_words_of_the_revision(what: str, revision: str) -> None:
    """ELIC-03, ELIC-07: 2025-06-18 knows neither mode nor titles by oneOf; of lists it can say nothing."""
    params = ElicitFormParams(message="?", requested_schema=form_of(FIELDS[what][0]).schema)
    if revision == REVISIONS[2] and FIELDS[what][1]["type"] == "array":
        with pytest.raises(TooNew, match="has no choice of several: ask for one, or text"):
            shape(params, revision)
        return
    said = msgspec.json.decode(msgspec.json.encode(shape(params, revision)))
    (field,) = said["requestedSchema"]["properties"].values()
    if revision == REVISIONS[2]:
        assert "mode" not in said
        assert not field.keys() & {"oneOf", "anyOf", "items", "minItems", "maxItems"}
        assert field["type"] in ("string", "integer", "number", "boolean")
    else:
        assert field == FIELDS[what][1]


@dataclass
class Booking:
    """A form made of a dataclass."""

    name: str
    seats: int = 1
    window: bool | None = None
    meal: Annotated[Flavour, Titles] | None = None


class Wish(TypedDict, total=False):
    what: str


def test_defaults_and_members_that_may_be_left_out() -> None:
    """ELIC-05: what may be None isn't demanded, and no null is shown, which clients don't know."""
    schema = form_of(Booking).schema
    assert schema["required"] == ["name"]
    assert schema["properties"]["seats"] == {"type": "integer", "default": 1}
    assert schema["properties"]["window"] == {"type": "boolean"}
    assert schema["properties"]["meal"]["oneOf"][0] == {"const": "sweet", "title": "Sweet"}
    assert "required" not in form_of(Wish).schema
    assert form_of(Booking).read({"name": "Ada"}) == Booking("Ada")
    assert form_of(Booking).read({"name": "Ada", "seats": 2, "meal": "sour"}) == Booking("Ada", 2, None, "sour")
    assert form_of(Wish).read(None) == {}


class Trip(msgspec.Struct, rename="camel"):
    """Fields that may be None, with and without a default, and such that are named otherwise in JSON."""

    meal_kind: Annotated[Flavour, Titles]
    window_seat: bool | None
    bags: Annotated[int | None, Meta(title="Bags", description="in the hold")] = 1
    cup: Size | None = None


@pytest.mark.parametrize(
    "annotation", [Trip, Annotated[Trip, Meta(description="by train")]], ids=["plain", "described"]
)
def test_what_may_be_none_may_be_left_out(annotation: Any) -> None:
    """ELIC-05: a form has no null, so what the user leaves empty is missing in the answer."""
    form = form_of(annotation)
    assert form.schema == {
        "type": "object",
        "properties": {
            "mealKind": FIELDS["a titled choice"][1],
            "windowSeat": {"type": "boolean"},
            "bags": {"type": "integer", "title": "Bags", "description": "in the hold", "default": 1},
            "cup": {"type": "string", "enum": ["small", "large"]},
        },
        "required": ["mealKind"],
    }
    assert form.read({"mealKind": "sour"}) == Trip("sour", None, 1, None)
    assert form.read({"mealKind": "sour", "windowSeat": True, "bags": 2, "cup": "small"}) == Trip(
        "sour", True, 2, Size.SMALL
    )
    with pytest.raises(ValueError, match=r"^mealKind: missing"):
        form.read({"windowSeat": True})


class Order(BaseModel):
    main: Annotated[Flavour, Titles]
    dessert: Annotated[Flavour, Titles] | None = Field(alias="afterwards")


def test_a_field_of_a_pydantic_model_has_its_titles() -> None:
    form = form_of(Order)
    titled = FIELDS["a titled choice"][1]
    assert form.schema["properties"] == {"main": titled, "afterwards": titled}
    assert form.schema["required"] == ["main"]
    assert form.read({"main": "sweet"}) == Order(main="sweet", afterwards=None)


def test_a_choice_of_texts_by_a_schema_of_its_own() -> None:
    form = form_of(Annotated[str, WithJsonSchema({"enum": ["sweet", "sour"]})])
    assert form.schema["properties"] == {"value": {"type": "string", "enum": ["sweet", "sour"]}}


@pytest.mark.parametrize("content", [None, {}, {"value": None}])
def test_one_value_that_may_be_none_may_be_left_out(content: Any) -> None:
    form = form_of(int | None)
    assert form.schema == {"type": "object", "properties": {"value": {"type": "integer"}}}
    assert form.read(content) is None
    assert form.read({"value": 3}) == 3


READ: dict[str, tuple[Any, Any]] = {
    "text": ("hi", "hi"),
    "a day": ("2026-07-28", date(2026, 7, 28)),
    "integer": (7, 7),
    "number": (7, 7.0),
    "yes or no": (True, True),
    "a choice": ("sour", "sour"),
    "an enum": ("large", Size.LARGE),
    "choices": (["sour", "sweet"], ["sour", "sweet"]),
    "choices of an enum": (["small"], [Size.SMALL]),
}


@pytest.mark.parametrize("what", READ)
def test_what_users_send_becomes_a_value_of_the_type(what: str) -> None:
    sent, value = READ[what]
    found = form_of(FIELDS[what][0]).read({"value": sent})
    assert (found, type(found)) == (value, type(value))


class Guest(BaseModel):
    name: str = Field(min_length=2)
    age: int

    @field_validator("age")
    @classmethod
    def grown_up(cls, age: int) -> int:
        if age < 18:
            raise ValueError("only for grown-ups")
        return age


@pytest.mark.parametrize(
    ("annotation", "content", "words"),
    [
        (int, {"value": "7"}, "value: expected integer$"),
        (int, {}, r"value: missing \(required integer\)"),
        (int, None, "value: missing"),
        (FIELDS["bounded integer"][0], {"value": 10}, "value: expected integer from 1 to 9$"),
        (FIELDS["a pattern, which is checked here"][0], {"value": "b"}, "value: expected string matching"),
        (Flavour, {"value": "bitter"}, 'value: expected one of "sweet", "sour"$'),
        (list[Flavour], {"value": ["sweet", "bitter"]}, r'value\[1\]: expected one of "sweet", "sour"$'),
        (Booking, {"seats": 2}, r"name: missing \(required string\)$"),
        (Booking, {"name": 5}, "name: expected string$"),
        (Guest, {}, r"^name: missing \(required string of at least 2 characters\); age: missing \(required integer\)$"),
        (
            Guest,
            {"name": "a", "age": "secret"},
            "^name: expected string of at least 2 characters; age: expected integer$",
        ),
        (Guest, {"name": "Ada", "age": 3}, "^age: only for grown-ups$"),
    ],
)
def test_what_does_not_fit_is_told_by_its_place(annotation: Any, content: Any, words: str) -> None:
    """Without the value, which is a person's."""
    with pytest.raises(ValueError, match=words):
        form_of(annotation).read(content)


class Inner(msgspec.Struct):
    x: int


class Deep(msgspec.Struct):
    inner: Inner


class Numbers(msgspec.Struct):
    sizes: list[int]


class Levels(msgspec.Struct):
    level: Literal[1, 2]


class MixedKinds(msgspec.Struct):
    guest: Guest


class Mixed(msgspec.Struct):
    one: Literal["a", 1]


class Either(msgspec.Struct):
    one: int | str | None


@pytest.mark.parametrize(
    ("annotation", "words"),
    [
        (Deep, "Deep.inner can't stand in a form: use str, int, float, bool, a choice of strings, or a list of one"),
        (Numbers, "Numbers.sizes: a list in a form must be a list of choices, such as list[Literal[…]]"),
        (list[str], "list[str].value: a list in a form must be a list of choices, such as list[Literal[…]]"),
        (
            Levels,
            "Levels.level can't stand in a form: use str, int, float, bool, a choice of strings, or a list of one",
        ),
        (
            Mixed,
            "Mixed.one can't stand in a form: use str, int, float, bool, a choice of strings, or a list of one",
        ),
        (
            Either,
            "Either.one can't stand in a form: use str, int, float, bool, a choice of strings, or a list of one",
        ),
        (
            dict[str, int],
            "dict[str, int].value can't stand in a form: use str, int, float, bool, a choice of strings, or a list of one",
        ),
    ],
)
def test_what_no_form_can_carry_is_told_with_what_can(annotation: Any, words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        form_of(annotation)
    assert str(caught.value) == words


def test_a_type_of_which_there_is_no_schema_is_told() -> None:
    with pytest.raises(DefinitionError, match=r"object.* can't"):
        form_of(object)
    with pytest.raises(DefinitionError, match=r"MixedKinds can't be a form: it mixes msgspec structs and pydantic"):
        form_of(MixedKinds)
