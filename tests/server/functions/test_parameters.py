"""Parameters: the mistakes of their author, each in one line that says where it is and what to do."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from gemel import DefinitionError
from gemel.server.functions.signature import inspect_function

CONSTANT = ("a", 1)


class Plain:
    """A class that no library can read."""


class Struct(msgspec.Struct):
    x: int


class Model(pydantic.BaseModel):
    x: int


class Unfinished(pydantic.BaseModel):
    x: "Nowhere"  # type: ignore[name-defined]  # noqa: F821


@dataclasses.dataclass
class A:
    x: int


@dataclasses.dataclass
class B:
    x: int


def unannotated(city): ...  # type: ignore[no-untyped-def]  # the author's mistake is the point
def unannotated_default(days=3): ...  # type: ignore[no-untyped-def]  # the author's mistake is the point
def unannotated_none(days=None): ...  # type: ignore[no-untyped-def]  # the author's mistake is the point
def unannotated_context(ctx): ...  # type: ignore[no-untyped-def]  # the author's mistake is the point
def unbound(self, city: str): ...  # type: ignore[no-untyped-def]  # the author's mistake is the point
def starred(*cities: str) -> None: ...
def double_starred(**options: str) -> None: ...
def positional(city: str, /) -> None: ...
def unresolved(day: "list[Nowhere]") -> None: ...  # type: ignore[name-defined]  # noqa: F821
def no_json(job: Callable[[int], int]) -> None: ...
def no_class(jobs: list[Plain]) -> None: ...
def mixed(x: dict[str, Model | Struct]) -> None: ...
def mixed_limits(x: list[Model | Annotated[int, msgspec.Meta(ge=1)]]) -> None: ...
def unfinished(x: Unfinished) -> None: ...
def wrong_default(days: int = "3") -> None: ...  # type: ignore[assignment]  # the author's mistake is the point
def low_default(days: Annotated[int, msgspec.Meta(ge=1)] = 0) -> None: ...
def low_field(days: int = pydantic.Field(0, ge=1)) -> None: ...
def object_default(x: Any = object()) -> None: ...  # noqa: B008
def taken(a: int, b: int = pydantic.Field(alias="a")) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (unannotated, "`city`: has no annotation, so there is no schema for it; write e.g. `city: str`"),
        (unannotated_default, "`days`: has no annotation, so there is no schema for it; write e.g. `days: int = 3`"),
        (unannotated_none, "`days`: has no annotation, so there is no schema for it; write e.g. `days: str`"),
        (unannotated_context, "`ctx`: has no annotation; write `ctx: Context`"),
        (
            unbound,
            "`self`: belongs to a method; register the bound method, `instance.method`, not the function in its class",
        ),
        (starred, "`cities`: `*cities` has no schema; name each parameter, or take a `cities: list[str]`"),
        (
            double_starred,
            "`options`: `**options` has no schema; name each parameter, or take a `options: dict[str, Any]`",
        ),
        (positional, "`city`: is positional-only, but arguments are passed by name; remove the `/`"),
        (
            unresolved,
            "`day`: annotation `list[Nowhere]` can't be resolved: name 'Nowhere' is not defined; import the name at "
            "runtime (not only under TYPE_CHECKING) or define it at module level",
        ),
        (
            no_json,
            "`job`: annotation `Callable[[int], int]` can't be read from JSON: Callable has no JSON form; use str, "
            "int, float, bool, list, dict, Literal, Enum, date, a dataclass, TypedDict, msgspec.Struct or pydantic "
            "model",
        ),
        (
            no_class,
            "`jobs`: annotation `list[Plain]` can't be read from JSON: Plain has no JSON form; use str, int, float, "
            "bool, list, dict, Literal, Enum, date, a dataclass, TypedDict, msgspec.Struct or pydantic model",
        ),
        (
            mixed,
            "`x`: annotation `dict[str, Model | Struct]` can't be read from JSON: it mixes msgspec structs and "
            "pydantic types; use one of the two in one annotation",
        ),
        (
            mixed_limits,
            "`x`: annotation `list[Model | int]` can't be read from JSON: it limits pydantic's types by msgspec.Meta; "
            "use pydantic's Field for that",
        ),
        (
            unfinished,
            "`x`: annotation `Unfinished` can't be read from JSON: a model in it is not fully defined yet",
        ),
        (wrong_default, '`days`: its default doesn\'t fit its annotation: expected integer, got string "3"'),
        (low_default, "`days`: its default doesn't fit its annotation: expected integer >= 1, got integer 0"),
        (low_field, "`days`: its default doesn't fit its annotation: expected integer >= 1, got integer 0"),
        (object_default, "`x`: its default, of type object, can't be shown in the schema; use None or a JSON value"),
        (taken, "`b`: the name `a` is taken by another parameter"),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_what_to_do(function: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        inspect_function(function)
    place = f"{function.__name__}() at {__file__}:{function.__code__.co_firstlineno}"
    assert str(caught.value) == f"{place}: parameter {message}"


def test_defaults_are_shown_in_the_schema_as_json() -> None:
    row, models = A(1), [Model(x=1)]

    def function(a: int = 3, b: A = row, c: bytes = b"hi", d: list[Model] = models, e: int | None = None) -> None: ...

    properties = inspect_function(function).input_schema["properties"]
    assert {name: schema["default"] for name, schema in properties.items()} == {
        "a": 3,
        "b": {"x": 1},
        "c": "aGk=",
        "d": [{"x": 1}],
        "e": None,
    }


def test_a_default_that_can_change_is_copied_for_each_call() -> None:
    def function(
        a: list[int] = [1],  # noqa: B006  # what is tested
        b: dict[str, list[int]] = pydantic.Field({"x": []}),  # noqa: B008
        c: Any = CONSTANT,
    ) -> None: ...

    arguments = inspect_function(function).arguments
    first = arguments.from_json(b"{}")
    first["a"].append(2)
    first["b"]["x"].append(2)
    second = arguments.from_json(b"{}")
    assert (second["a"], second["b"]) == ([1], {"x": []})
    assert second["c"] is CONSTANT


def test_a_default_that_hides_what_it_holds_is_not_listed() -> None:
    class Login(pydantic.BaseModel):
        password: pydantic.SecretStr

    login = Login(password=pydantic.SecretStr("hidden"))

    def function(
        a: pydantic.SecretStr = pydantic.SecretStr("hidden"),  # noqa: B008
        b: Login = login,
        c: Sequence[int] = (1, 2),
        d: pydantic.SecretStr = "hidden",  # type: ignore[assignment]  # pydantic reads it
    ) -> None: ...

    signature = inspect_function(function)
    listed = {name: item.get("default") for name, item in signature.input_schema["properties"].items()}
    assert listed == {"a": None, "b": None, "c": [1, 2], "d": None}
    assert signature.arguments.from_json(b"{}")["a"].get_secret_value() == "hidden"


def test_pydantics_field_works_as_default_and_in_annotated() -> None:
    def function(
        a: int = pydantic.Field(3, ge=1, description="the a", json_schema_extra={"x-mcp-header": "A"}),
        b: list[int] = pydantic.Field(default_factory=list),  # noqa: B008
        c: Annotated[int, pydantic.Field(default=4)] = 5,
        d: Annotated[int, pydantic.Field(default=6)] = pydantic.Field(7),
        e: str = pydantic.Field(alias="from"),
        f: str = pydantic.Field(),
    ) -> None: ...

    signature = inspect_function(function)
    assert signature.input_schema["properties"]["a"] == {
        "type": "integer",
        "minimum": 1,
        "description": "the a",
        "x-mcp-header": "A",
        "default": 3,
    }
    assert signature.input_schema["required"] == ["from", "f"]
    found = signature.arguments.from_json(b'{"from":"x","f":"y"}')
    assert found == {"a": 3, "b": [], "c": 5, "d": 7, "e": "x", "f": "y"}
    assert signature.arguments.from_json(b'{"from":"x","f":"y"}')["b"] is not found["b"]


def test_a_field_in_annotated_may_bring_the_default() -> None:
    def function(a: Annotated[int, pydantic.Field(default=3)]) -> None: ...

    signature = inspect_function(function)
    assert signature.arguments.from_json(b"{}") == {"a": 3}
    assert signature.input_schema["properties"] == {"a": {"type": "integer", "default": 3}}


def test_types_that_msgspec_lacks_are_read_by_pydantic() -> None:
    def function(pet: A | B | None = None) -> None: ...

    assert inspect_function(function).arguments.from_json(b'{"pet":{"x":1}}') == {"pet": A(1)}


def test_unset_is_a_default_that_the_schema_does_not_show() -> None:
    def function(a: int | msgspec.UnsetType = msgspec.UNSET) -> None: ...

    signature = inspect_function(function)
    assert signature.input_schema["properties"] == {"a": {"type": "integer"}}
    assert signature.arguments.from_json(b"{}") == {"a": msgspec.UNSET}


def test_parameters_are_listed_with_what_a_prompt_needs() -> None:
    def function(city: Annotated[str, "which"], days: int = 3) -> None: ...

    found = inspect_function(function).parameters
    assert [(item.wire_name, item.description, item.required) for item in found] == [
        ("city", "which", True),
        ("days", None, False),
    ]


def test_the_class_in_a_union_or_a_model_that_has_no_json_form_is_named() -> None:
    class Plain: ...

    class Holder(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
        plain: Plain

    def union(x: int | Plain) -> None: ...

    def holder(x: Holder) -> None: ...

    for function in (union, holder):
        with pytest.raises(
            DefinitionError, match=r"parameter `x`: annotation .* can't be read from JSON: Plain.* has no JSON form"
        ):
            inspect_function(function)
