"""One annotation: which library serves it, that both read and write alike, and what they say when they refuse."""

import datetime
import ipaddress
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from msgspec import UNSET, Raw

from gemel.server.functions.json_schema import SchemaWriter, UnsupportedType
from gemel.server.functions.validation_errors import Rejection, rejection_of
from gemel.server.functions.values import (
    MsgspecType,
    PydanticType,
    ValueRejected,
    value_type,
)
from gemel.values.encoding import NotSerializable


def made(annotation: Any) -> Any:
    return value_type(annotation, SchemaWriter(reading=True))


class Struct(msgspec.Struct):
    n: int


class Model(pydantic.BaseModel):
    n: int


class Config(pydantic.BaseModel):
    data: bytes


@pytest.mark.parametrize("annotation", [int, list[Struct], Annotated[int, msgspec.Meta(ge=1)], Any])
def test_msgspec_serves_what_it_can(annotation: Any) -> None:
    assert isinstance(made(annotation), MsgspecType)


@pytest.mark.parametrize("annotation", [Model, list[Model | None], Annotated[int, pydantic.Field()], Path, int | Model])
def test_pydantic_serves_its_own_and_what_msgspec_lacks(annotation: Any) -> None:
    assert isinstance(made(annotation), PydanticType)


def test_without_pydantic_the_author_is_told_that_it_might_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(
        TypeError, match=r"^Path has no JSON form, unless pydantic is installed: pip install 'gemel\[pydantic\]'$"
    ):
        made(Path)


def test_what_neither_library_knows_is_unsupported() -> None:
    class Nobodys: ...

    writer = SchemaWriter(reading=True)
    with pytest.raises(UnsupportedType, match="Nobodys has no JSON form"):
        value_type(dict[str, Struct | list[Nobodys]], writer)
    assert writer.definitions == {}


@pytest.mark.parametrize("annotation", [list[int], Annotated[list[int], pydantic.Field()]])
def test_both_read_and_write_alike(annotation: Any) -> None:
    kind = made(annotation)
    assert kind.read(Raw(b"[1,2]")) == kind.read(b"[1,2]") == [1, 2]
    assert kind.write([1, 2]) == kind.write_default([1, 2]) == b"[1,2]"
    with pytest.raises(ValueRejected) as caught:
        kind.read(b'[1,"2"]')
    refused = caught.value
    assert (refused.value, refused.rejections[0].path, refused.rejections[0].reason) == ([1, "2"], (1,), None)


def test_bytes_are_base64_but_a_models_own_configuration_counts() -> None:
    assert made(Annotated[bytes, pydantic.Field(max_length=9)]).read(b'"aGk="') == b"hi"
    assert made(Config).read(b'{"data":"aGk="}').data == b"aGk="
    assert made(Config).write(Config(data=b"hi")) == b'{"data":"hi"}'


@pytest.mark.parametrize(
    ("annotation", "text", "refusal"),
    [
        (list[dict[str, int]], b'[{"a":"x"}]', Rejection((0,), fallback="must be integer")),
        (dict[str, list[int]], b'{"a":["x"]}', Rejection((), fallback="must be integer")),
        (Struct, b'{"n":"x"}', Rejection(("n",), fallback="must be integer")),
        (dict[int, int], b'{"a":1}', Rejection((), fallback="each key must be integer")),
        (list[datetime.date], b'["x"]', Rejection((0,), fallback="must be a valid RFC3339 encoded date", form=True)),
    ],
)
def test_msgspecs_words_are_read_for_the_place_and_the_check(annotation: Any, text: bytes, refusal: Rejection) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=annotation)
    assert rejection_of(caught.value) == refusal


def test_pydantics_places_leave_out_the_names_of_union_members() -> None:
    with pytest.raises(ValueRejected) as caught:
        made(dict[str, int | Model]).read(b'{"a":{"n":"x"}}')
    assert [(refusal.path, refusal.member) for refusal in caught.value.rejections] == [
        (("a",), True),
        (("a", "n"), True),
    ]


def test_a_number_that_python_cannot_hold_leaves_the_value_unset() -> None:
    for annotation in (int, Annotated[int, pydantic.Field()]):
        with pytest.raises(ValueRejected) as caught:
            made(annotation).read(b"1e999")
        assert caught.value.value is UNSET


def test_an_error_of_the_authors_own_code_is_not_hidden() -> None:
    def broken(value: int) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        made(Annotated[int, pydantic.AfterValidator(broken)]).read(b"1")


def test_a_model_is_also_written_from_what_it_could_be_made_of() -> None:
    assert made(list[Model]).write([{"n": 1}, Model(n=2)]) == b'[{"n":1},{"n":2}]'


def test_what_a_serializer_cannot_write_is_unwritable() -> None:
    def broken(value: Any) -> str:
        raise ValueError("no")

    with pytest.raises(NotSerializable, match="int"):
        made(Annotated[int, pydantic.PlainSerializer(broken)]).write(1)


def test_a_default_is_held_to_the_limits_of_its_type() -> None:
    kind = made(Annotated[int, pydantic.Field(gt=0)])
    assert kind.write_default(1) == b"1"
    with pytest.raises(ValueRejected):
        kind.write_default(0)


def test_types_of_pydantic_stand_beside_pydantics_models() -> None:
    assert made(ipaddress.IPv4Address).read(b'"127.0.0.1"') == ipaddress.IPv4Address("127.0.0.1")


@pytest.mark.parametrize(
    ("annotation", "schema", "text", "value"),
    [
        (bytes | str, {"type": "string"}, b'"YWJj"', "YWJj"),
        (list[str | memoryview], {"type": "array", "items": {"type": "string"}}, b'["YWJj"]', ["YWJj"]),
        (
            bytes | bytearray | memoryview | str | int | float,
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "number"}]},
            b'"abc"',
            "abc",
        ),
        (bytes | bytearray, {"type": "string", "contentEncoding": "base64"}, b'"YWJj"', b"abc"),
        (
            Annotated[bytes | str, pydantic.Field(max_length=4)],
            {"type": "string", "maxLength": 4},
            b'"YWJj"',
            "YWJj",
        ),
    ],
)
def test_a_string_is_read_as_a_text_where_the_annotation_allows_one_beside_bytes(
    annotation: Any, schema: dict[str, Any], text: bytes, value: Any
) -> None:
    kind = made(annotation)
    assert kind.schema == schema
    assert kind.read(text) == value
