"""Annotations: text made real, `Annotated` taken apart, and what a type is built of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NewType, TypedDict, TypeVar

import annotated_types
import msgspec
import pydantic
import pytest

from gemel.server.functions.annotations import (
    Traits,
    described_by,
    literals_in,
    members,
    peel,
    place_of,
    resolve,
    shown,
    traits_of,
)


def function() -> None: ...


class Point(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    x: int


@pydantic.dataclasses.dataclass
class PydanticRow:
    x: int


@dataclass
class Holder:
    model: Model


class HolderDict(TypedDict):
    models: list[Model]


class HolderTuple(NamedTuple):
    model: Model


def test_text_is_resolved_by_the_names_of_the_module() -> None:
    assert resolve("Point | None", function) == Point | None
    assert resolve(list["Point"], function) == list[Point]


def test_text_is_resolved_by_the_names_of_a_closure() -> None:
    def outer() -> tuple[type, Callable[[], Any]]:
        class Local: ...

        def inner() -> type:
            return Local

        return Local, inner

    local, inner = outer()
    assert resolve("list[Local]", inner) == list[local]  # type: ignore[valid-type]  # a class made in a function


def test_text_is_resolved_by_the_names_beside_a_local_function() -> None:
    class Local: ...

    def inner() -> None: ...

    assert resolve("Local", inner) is Local


def test_a_name_that_nobody_knows_is_a_name_error() -> None:
    with pytest.raises(NameError, match="Nowhere"):
        resolve("list[Nowhere]", function)


class Doc(NamedTuple):
    documentation: str


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[int, "how many"],
        Annotated[int, Doc("how many")],
        Annotated[int, msgspec.Meta(description="how many")],
        Annotated[int, pydantic.Field(description="how many")],
        Annotated[int, "older", msgspec.Meta(ge=1), "how many"],
        Annotated[int, "how many"] | None,  # pyright: ignore[reportOperatorIssue]  # typing has this operator
        Annotated[Annotated[int, "older"] | None, "how many"],
    ],
)
def test_annotated_describes_in_four_ways_and_the_last_one_counts(annotation: Any) -> None:
    assert described_by(annotation) == "how many"


def test_annotated_without_words_describes_nothing() -> None:
    assert described_by(Annotated[int, msgspec.Meta(ge=1)]) is None
    assert described_by(int) is None
    union: Any = Annotated[int, "how many"] | Annotated[str, "its name"]  # pyright: ignore[reportOperatorIssue]  # as above
    assert described_by(union | None) is None


def test_members_of_a_union_are_without_annotated() -> None:
    assert members(Annotated[int | None, "x"]) == (int, type(None))


Distance = NewType("Distance", Annotated[int, "in metres"])  # pyright: ignore[reportGeneralTypeIssues]  # Python takes it
Bound = TypeVar("Bound", bound=Point)


@pytest.mark.parametrize(
    ("annotation", "peeled"),
    [
        (Point, (Point, (), False)),
        (Point | None, (Point, (), True)),
        (Annotated[Point | None, "x"], (Point, ("x",), True)),
        (Annotated[Annotated[Point, "inner"] | None, "outer"], (Point, ("inner", "outer"), True)),
        (int | str | None, (int | str, (), True)),
        (Distance, (int, ("in metres",), False)),
        (Bound | None, (Point, (), True)),
        (list[Annotated[int, "x"]], (list[Annotated[int, "x"]], (), False)),
    ],
)
def test_an_annotation_is_peeled_to_its_type(annotation: Any, peeled: Any) -> None:
    assert peel(annotation) == peeled


@pytest.mark.parametrize(
    ("annotation", "text"),
    [
        (int, "int"),
        (None, "None"),
        ("Text", "Text"),
        (list[Point], "list[Point]"),
        (dict[str, Point | None], "dict[str, Point | None]"),
        (Annotated[Point, "x"], "Point"),
        (Literal["a", 1], "Literal['a', 1]"),
        (tuple[int, ...], "tuple[int, ...]"),
        (Callable[[int], str], "Callable[[int], str]"),
        (Any, "Any"),
    ],
)
def test_a_type_is_shown_as_its_author_wrote_it(annotation: Any, text: str) -> None:
    assert shown(annotation) == text


@pytest.mark.parametrize(
    "annotation",
    [
        Model,
        list[Model],
        Annotated[dict[str, Model], "x"],
        PydanticRow,
        Holder,
        HolderDict,
        HolderTuple,
        Annotated[int, pydantic.Field(gt=1)],
        list[Annotated[int, annotated_types.Gt(1)]],
        pydantic.PositiveInt,
        Annotated[str, pydantic.AfterValidator(str.strip)],
        pydantic.AnyUrl,
    ],
)
def test_pydantic_is_seen_at_any_depth(annotation: Any) -> None:
    assert traits_of(annotation).pydantic


@pytest.mark.parametrize("annotation", [int, list[str], Point, Literal["a"], Annotated[int, msgspec.Meta(ge=1)], Any])
def test_plain_types_are_not_pydantics(annotation: Any) -> None:
    assert not traits_of(annotation).pydantic


def test_structs_and_limits_of_msgspec_are_seen() -> None:
    assert traits_of(list[Point]) == Traits(pydantic=False, struct=True, msgspec_limits=False)
    assert traits_of(list[Annotated[int, msgspec.Meta(ge=0)]]).msgspec_limits
    assert not traits_of(Annotated[int, msgspec.Meta(description="x")]).msgspec_limits


def test_a_type_that_contains_itself_ends() -> None:
    assert not traits_of(Tree).pydantic


class Tree(msgspec.Struct):
    kids: "list[Tree]"


def test_literals_keep_their_order() -> None:
    assert list(literals_in(dict[str, Literal["low", "high"]] | None)) == [("low", "high")]


def test_a_place_names_file_and_line() -> None:
    place = place_of(function, "function")
    text = str(place.mistake("is wrong", "x"))
    assert text == f"function() at {__file__}:{function.__code__.co_firstlineno}: parameter `x`: is wrong"
    assert place_of(len, "len").line == 0
