"""Arguments: strict reading, every problem in one answer, the same words from both libraries, a bounded echo."""

import datetime
import decimal
import enum
import gc
import sys
import tracemalloc
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemel import InvalidArguments, InvalidParams
from gemel.errors import ECHO_LIMIT
from gemel.server.functions.signature import Signature, inspect_function


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Filter:
    tags: list[str]
    colour: Colour = Colour.RED


class FilterModel(pydantic.BaseModel):
    tags: list[str]
    colour: Colour = Colour.RED


class Options(TypedDict):
    a: int
    b: NotRequired[str]


class Pair(NamedTuple):
    x: int
    y: int


class Even(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("must be even")


class EvenModel(pydantic.BaseModel):
    n: int

    @pydantic.field_validator("n")
    @classmethod
    def check(cls, n: int) -> int:
        if n % 2:
            raise ValueError("must be even")
        return n


def taking(annotation: Any, **defaults: Any) -> Signature:
    """The signature of a function with one parameter `x`, and integers with the given defaults."""
    names = ", ".join(["x", *(f"{name}={value!r}" for name, value in defaults.items())])
    space: dict[str, Any] = {}
    exec(f"def function({names}): ...", space)
    function: Callable[..., Any] = space["function"]
    function.__annotations__.update({"x": annotation, **dict.fromkeys(defaults, int)})
    return inspect_function(function)


def refused(signature: Signature, value: Any) -> list[str] | None:
    """The problems of arguments, or None if they are taken."""
    try:
        signature.arguments.from_json(msgspec.json.encode(value))
    except InvalidArguments as error:
        return error.errors
    return None


def problems(signature: Signature, text: bytes) -> list[str]:
    with pytest.raises(InvalidArguments) as caught:
        signature.arguments.from_json(text)
    return caught.value.errors


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, b"3", 3),
        (int, b"123456789012345678901234567890", 123456789012345678901234567890),
        (float, b"3", 3.0),
        (str, '"ß"'.encode(), "ß"),
        (bool, b"true", True),
        (bytes, b'"aGk="', b"hi"),
        (Colour, b'"blue"', Colour.BLUE),
        (Literal["a", 1], b"1", 1),
        (int | None, b"null", None),
        (int | str, b'"1"', "1"),
        (list[int], b"[1]", [1]),
        (set[int], b"[1,1]", {1}),
        (tuple[int, str], b'[1,"x"]', (1, "x")),
        (dict[str, int], b'{"a":1}', {"a": 1}),
        (datetime.date, b'"2026-01-31"', datetime.date(2026, 1, 31)),
        (datetime.datetime, b'"2026-01-31T12:00:00"', datetime.datetime(2026, 1, 31, 12)),
        (uuid.UUID, b'"12345678-1234-5678-1234-567812345678"', uuid.UUID("12345678-1234-5678-1234-567812345678")),
        (decimal.Decimal, b"1.50", decimal.Decimal("1.50")),
        (decimal.Decimal, b'"1.50"', decimal.Decimal("1.50")),
        (Filter, b'{"tags":["a"],"colour":"blue"}', Filter(["a"], Colour.BLUE)),
        (FilterModel, b'{"tags":["a"],"colour":"blue"}', FilterModel(tags=["a"], colour=Colour.BLUE)),
        (Options, b'{"a":1}', {"a": 1}),
        (Pair, b"[1,2]", Pair(1, 2)),
        (Even, b'{"n":2}', Even(2)),
        (Annotated[bytes, pydantic.Field(max_length=2)], b'"aGk="', b"hi"),
        (Any, b'{"a":[1]}', {"a": [1]}),
    ],
)
def test_json_becomes_typed_values(annotation: Any, text: bytes, value: Any) -> None:
    found = taking(annotation).arguments.from_json(b'{"x":' + text + b"}")["x"]
    assert found == value
    assert type(found) is type(value)


def test_a_decimal_keeps_its_digits_beside_an_integer_with_a_point() -> None:
    def function(count: int, price: decimal.Decimal) -> None: ...

    text = b'{"count": 2.0, "price": 12345678901234567.89}'
    assert inspect_function(function).arguments.from_json(text) == {
        "count": 2,
        "price": decimal.Decimal("12345678901234567.89"),
    }


@pytest.mark.parametrize("text", [b"", b" ", b"{}", b"null"])
def test_no_arguments_are_an_empty_object(text: bytes) -> None:
    def function(a: int = 1) -> None: ...

    assert inspect_function(function).arguments.from_json(text) == {"a": 1}
    assert inspect_function(function).arguments.from_json(msgspec.Raw(text)) == {"a": 1}


@pytest.mark.parametrize(
    ("annotation", "text", "line"),
    [
        (int, b'"3"', 'x: expected integer, got string "3"'),
        (int, b"true", "x: expected integer, got boolean true"),
        (int, b"1.5", "x: expected integer, got number 1.5"),
        (float, b"true", "x: expected number, got boolean true"),
        (bool, b"1", "x: expected boolean, got integer 1"),
        (bool, b'"true"', 'x: expected boolean, got string "true"'),
        (str, b"1", "x: expected string, got integer 1"),
        (Annotated[int, pydantic.Field()], b'"3"', 'x: expected integer, got string "3"'),
        (Annotated[int, pydantic.Field()], b"true", "x: expected integer, got boolean true"),
        (Annotated[bool, pydantic.Field()], b"1", "x: expected boolean, got integer 1"),
    ],
)
def test_no_value_is_bent_to_the_type_that_was_wanted(annotation: Any, text: bytes, line: str) -> None:
    """Lax types are the author's choice, never a default."""
    assert problems(taking(annotation), b'{"x":' + text + b"}") == [line]


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, b"2.0", 2),
        (int, b"2e1", 20),
        (int, b"1e30", 10**30),
        (list[int] | None, b"[1.0, 2]", [1, 2]),
        (dict[str, int], b'{"a": -3.0}', {"a": -3}),
        (Literal[1, "a"], b"1.0", 1),
        (Annotated[int, pydantic.Field(ge=1)], b"2.0", 2),
        (Annotated[list[int], pydantic.Field()], b"[2.0]", [2]),
        (float, b"2.0", 2.0),
        (float, b"2", 2.0),
    ],
)
def test_a_whole_number_is_an_integer_however_it_is_written(annotation: Any, text: bytes, value: Any) -> None:
    """JSON Schema knows no difference between 2 and 2.0, and the listed schema is one."""
    (found,) = taking(annotation).arguments.from_json(b'{"x":' + text + b"}").values()
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", [b"1.5", b'"2.0"', b"NaN", b"1e999"])
def test_what_is_no_whole_number_is_no_integer(text: bytes) -> None:
    with pytest.raises(InvalidParams):
        taking(int).arguments.from_json(b'{"x":' + text + b"}")


def search(
    city: str,
    filter: Filter,
    days: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3,
    unit: Literal["c", "f"] = "c",
    since: datetime.date | None = None,
) -> None: ...


def search_pydantic(
    city: Annotated[str, pydantic.Field()],
    filter: FilterModel,
    days: Annotated[int, pydantic.Field(ge=1, le=10)] = 3,
    unit: Annotated[Literal["c", "f"], pydantic.Field()] = "c",
    since: Annotated[datetime.date | None, pydantic.Field()] = None,
) -> None: ...


BOTH = pytest.mark.parametrize("function", [search, search_pydantic])


@BOTH
def test_all_problems_are_listed_in_the_order_of_the_parameters(function: Callable[..., Any]) -> None:
    text = b'{"zzz":1,"dayz":2,"since":"soon","unit":"k","days":11,"filter":{"tags":["a",2,null],"colour":"green"}}'
    assert problems(inspect_function(function), text) == [
        "city: missing (required string)",
        "filter.tags[1]: expected string, got integer 2",
        "filter.tags[2]: expected string, got null",
        'filter.colour: expected one of "red", "blue", got string "green"',
        "days: expected integer from 1 to 10, got integer 11",
        'unit: expected one of "c", "f", got string "k"',
        'since: expected date string like "2026-01-31", got string "soon"',
        "zzz: unknown argument; known: city, filter, days, unit, since",
        'dayz: unknown argument; did you mean "days"?',
    ]


@BOTH
def test_a_missing_member_deep_inside_is_named(function: Callable[..., Any]) -> None:
    lines = problems(inspect_function(function), b'{"city":"Oslo","filter":{}}')
    assert lines == ["filter.tags: missing (required array)"]


@BOTH
def test_json_written_into_a_string_gets_a_hint(function: Callable[..., Any]) -> None:
    lines = problems(inspect_function(function), b'{"city":"Oslo","filter":"{\\"tags\\":[]}"}')
    assert lines == [
        'filter: expected object, got string "{\\"tags\\":[]}" (pass the JSON itself, not a string that holds JSON)'
    ]


@BOTH
def test_the_schemas_of_both_libraries_are_alike(function: Callable[..., Any]) -> None:
    schema = inspect_function(function).input_schema
    text = msgspec.json.encode(schema, order="sorted").replace(b"FilterModel", b"Filter")
    assert text == msgspec.json.encode(inspect_function(search).input_schema, order="sorted")


@dataclass
class DatedPoint:
    x: int
    day: datetime.date


@dataclass
class NamedPoint:
    name: str
    x: str


class DatedModel(pydantic.BaseModel):
    x: int
    day: datetime.date


class NamedModel(pydantic.BaseModel):
    name: str
    x: str


@pytest.mark.parametrize("annotation", [list[Even], list[EvenModel]])
def test_an_authors_check_speaks_for_itself(annotation: Any) -> None:
    where = "x[1]" if annotation == list[Even] else "x[1].n"
    assert problems(taking(annotation), b'{"x":[{"n":2},{"n":3}]}') == [f"{where}: must be even"]


DAY, HOUR = datetime.date(2020, 1, 1), datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("annotation", "text", "line"),
    [
        (pydantic.PastDate, '"2999-01-01"', 'x: must be in the past, got string "2999-01-01"'),
        (pydantic.PastDate | None, '"2999-01-01"', 'x: must be in the past, got string "2999-01-01"'),
        (list[pydantic.FutureDate], '["2000-01-01"]', 'x[0]: must be in the future, got string "2000-01-01"'),
        (pydantic.PastDate, '"x"', 'x: expected date string like "2026-01-31", got string "x"'),
        (
            Annotated[datetime.date, pydantic.Field(ge=DAY)],
            '"2019-01-01"',
            "x: must be greater than or equal to 2020-01-01, got",
        ),
        (
            Annotated[datetime.timedelta, pydantic.Field(gt=HOUR)],
            '"PT5M"',
            'x: must be greater than 1 hour, got string "PT5M"',
        ),
        (pydantic.AwareDatetime, '"2020-01-01T00:00:00"', "x: must have timezone info, got"),
        (
            Annotated[datetime.datetime, msgspec.Meta(tz=True)],
            '"2020-01-01T00:00:00"',
            "x: must be datetime with a timezone",
        ),
        (
            Annotated[datetime.datetime, msgspec.Meta(tz=False)],
            '"2020-01-01T00:00:00Z"',
            'x: expected date-time string without a time zone like "2026-01-31T12:00:00", got string',
        ),
        (Annotated[int, pydantic.Field(gt=0, lt=10)], "10", "x: expected integer > 0 and < 10, got integer 10"),
        (Annotated[decimal.Decimal, pydantic.Field(gt=0)], '"0"', 'x: must be greater than 0, got string "0"'),
        (pydantic.HttpUrl, '"ftp://a.b/c"', "x: URL scheme must be 'http' or 'https', got string \"ftp://a.b/c\""),
        (pydantic.HttpUrl, '"nowhere"', 'x: expected uri string like "https://example.org/"'),
        (
            pydantic.DirectoryPath,
            '"/there/is/none"',
            'x: path does not point to a directory, got string "/there/is/none"',
        ),
        (pydantic.NewPath, '"/"', 'x: path already exists, got string "/"'),
        (pydantic.UUID4, '"12345678-1234-1234-1234-123456789012"', "x: UUID version 4 expected, got"),
        (Annotated[bytes, msgspec.Meta(min_length=3)], '"aGk="', 'x: must be bytes of length >= 3, got string "aGk="'),
        (
            Annotated[bytes, pydantic.Field(min_length=3)],
            '"aGk="',
            'x: data must have at least 3 bytes, got string "aGk="',
        ),
        (dict[int, int], '{"a":1}', "x.a: the key must be integer"),
        (dict[int, pydantic.PastDate], '{"a":"2000-01-01"}', "x.a: the key must be a valid integer"),
        (dict[Literal["a", "b"], int], '{"c":1}', 'x.c: the key must be one of "a", "b"'),
        (dict[Annotated[str, pydantic.Field(pattern="^a")], int], '{"b":1}', "x.b: the key must match pattern '^a'"),
        (
            dict[Annotated[str, msgspec.Meta(min_length=2)], int],
            '{"b":1}',
            "x.b: the key must be string of at least 2 characters",
        ),
    ],
)
def test_the_check_that_failed_is_told(annotation: Any, text: str, line: str) -> None:
    (found,) = problems(taking(annotation), f'{{"x":{text}}}'.encode())
    assert found.startswith(line)


def test_the_key_of_a_large_argument_is_told() -> None:
    text = msgspec.json.encode({"x": {**{str(number): number for number in range(20_000)}, "a": 1}})
    assert problems(taking(dict[int, int]), text) == ["x: each key must be integer"]


@pytest.mark.parametrize("alternatives", [DatedPoint | NamedPoint, DatedModel | NamedModel])
def test_alternatives_are_named_with_the_reason_of_each(alternatives: Any) -> None:
    first, second = (kind.__name__ for kind in alternatives.__args__)
    assert problems(taking(list[alternatives]), b'{"x":[{"x":1,"day":"x"}]}') == [
        f'x[0]: fits none of 2 alternatives: {first} (day: expected date string like "2026-01-31", got string "x"), '
        f"{second} (name: missing (required string); x: expected string, got integer 1)"
    ]


@pytest.mark.parametrize(
    ("annotation", "text", "line"),
    [
        (pydantic.AnyUrl, b'"x"', "x: expected uri string like"),
        (Annotated[str, pydantic.Field(pattern="^a")], b'"b"', 'x: expected string matching ^a, got string "b"'),
        (Annotated[bytes, pydantic.Field(max_length=2)], b'"*"', 'x: expected base64 string, got string "*"'),
        (int | FilterModel, b'{"tags":1}', "x.tags: expected array, got integer 1"),
        (dict[str, EvenModel], b'{"a b":{"n":1}}', 'x["a b"].n: must be even'),
    ],
)
def test_what_pydantic_refuses_is_told_in_our_words(annotation: Any, text: bytes, line: str) -> None:
    """No library's dump, no address of a manual, no class path."""
    (found,) = problems(taking(annotation), b'{"x":' + text + b"}")
    assert found.startswith(line)
    assert "pydantic" not in found
    assert "http" not in found.replace('like "https://example.org/"', "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"[1]", "arguments: expected object, got array [1]"),
        (b'"{}"', 'arguments: expected object, got string "{}" (pass the JSON itself, not a string that holds JSON)'),
        (b"3", "arguments: expected object, got integer 3"),
        (b"{", "arguments: not valid JSON"),
        (b'{"x":1}}', "arguments: not valid JSON"),
    ],
)
def test_what_is_no_object_breaks_the_request_and_not_the_schema(text: bytes, message: str) -> None:
    """TOOL-21: InvalidParams, but not InvalidArguments."""
    with pytest.raises(InvalidParams) as caught:
        taking(int).arguments.from_json(text)
    assert (type(caught.value), str(caught.value)) == (InvalidParams, message)


def test_values_that_python_cannot_hold_are_told() -> None:
    assert problems(taking(float), b'{"x":1e999}') == ["x: expected number, got a number out of range"]
    assert problems(taking(int, y=1), b'{"x":"a","x":1,"y":2}') == ["arguments: not accepted; is a name given twice?"]
    assert problems(taking(str), b'{"x":"\xff"}') == ["x: not valid JSON"]


class Tree(msgspec.Struct):
    kids: "list[Tree]"


def test_nesting_without_end_is_an_answer_and_no_crash() -> None:
    for depth in (400, 100_000):
        text = b'{"x":' + b'{"kids":[' * depth + b"1" + b"]}" * depth + b"}"
        (line,) = problems(taking(Tree), text)
        assert line.endswith("nested too deeply")


@pytest.mark.parametrize("text", ["1 ", " 1", "1\n", "\t1", " 1 "])
def test_the_text_of_a_number_has_no_blanks(text: str) -> None:
    def function(number: int, place: str, numbers: list[int]) -> None: ...

    arguments = inspect_function(function).arguments
    assert arguments.from_text({"number": "1", "place": text, "numbers": " [1]"})["place"] == text
    with pytest.raises(InvalidArguments) as caught:
        arguments.from_text({"number": text, "place": "", "numbers": "[]"})
    assert caught.value.errors[0].startswith("number: expected integer, got string")


def test_texts_become_what_is_wanted() -> None:
    """Prompts and URI templates carry only strings."""

    def function(
        city: str,
        days: int = 3,
        exact: bool = False,
        filter: Filter | None = None,
        on: datetime.date | None = None,
    ) -> None: ...

    signature = inspect_function(function)
    given_texts = {"city": "3", "days": "3", "exact": "true", "filter": '{"tags":[]}', "on": "2026-01-31"}
    assert signature.arguments.from_text(given_texts) == {
        "city": "3",
        "days": 3,
        "exact": True,
        "filter": Filter([]),
        "on": datetime.date(2026, 1, 31),
    }
    with pytest.raises(InvalidArguments) as caught:
        signature.arguments.from_text({"days": "many", "filter": '{"tags":1}', "on": "{", "town": "Oslo"})
    assert caught.value.errors == [
        "city: missing (required string)",
        'days: expected integer, got string "many"',
        "filter.tags: expected array, got integer 1",
        'on: expected date string like "2026-01-31", got string "{"',
        "town: unknown argument; known: city, days, exact, filter, on",
    ]


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([0.5, 1.0, 2.0, -3.0, 1e2, 1e300, "a", "red", "c", "2026-01-31"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tags", "a", "n"]), inner, max_size=3),
    max_leaves=6,
)
_TYPES: list[Any] = [
    int | None,
    float,
    list[int] | str,
    Colour,
    Literal["a", 1, None],
    Filter | None,
    list[Filter],
    dict[str, list[int]],
    tuple[int, str],
    Options,
    Pair | None,
    Annotated[int, msgspec.Meta(ge=1, multiple_of=2)],
    Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)],
    FilterModel | None,
    Annotated[dict[str, Annotated[int, pydantic.Field(gt=0)]], pydantic.Field(min_length=1)],
    Annotated[Literal["a", "c"] | int, pydantic.Field()],
]
_SIGNATURES = [taking(annotation) for annotation in _TYPES]


@settings(deadline=None)
@given(st.sampled_from(_SIGNATURES), st.fixed_dictionaries({}, optional={"x": _JSON, "y": _JSON}))
def test_what_is_refused_is_what_the_schema_refuses_and_the_problems_say_why(
    signature: Signature, value: dict[str, Any]
) -> None:
    """TOOL-23: the schema that is listed and the reader that decides never disagree."""
    lines = refused(signature, value)
    assert (lines is None) == jsonschema_rs.Draft202012Validator(signature.input_schema).is_valid(value)
    assert lines is None or (lines and not any("refused" in line for line in lines))


@settings(deadline=None)
@given(
    st.sampled_from(_SIGNATURES), st.dictionaries(st.text("§", max_size=60), st.text("§", max_size=300), max_size=30)
)
def test_no_more_than_a_little_of_the_callers_text_comes_back(signature: Signature, value: dict[str, str]) -> None:
    """At most 200 bytes of it, in all lines together."""
    lines = refused(signature, value) or []
    assert "".join(lines).count("§") * len("§".encode()) <= ECHO_LIMIT


# ---------------------------------------------------------------- large bodies


class LargeItem(msgspec.Struct):
    number: int


def takes_much(
    values: list[int],
    numbers: dict[str, int] | None = None,
    items: list[LargeItem] | None = None,
    anything: Any = None,
) -> None: ...


LARGE = 100_000
WRONG_BODIES: dict[str, tuple[Any, str]] = {
    "each item": ({"values": ["x"] * LARGE}, "values[0]: expected integer, got string"),
    "the last item": ({"values": [*[1] * LARGE, "x"]}, f"values[{LARGE}]: expected integer, got string"),
    "unknown names": (
        {"values": [], **{f"name {n}": 1 for n in range(LARGE)}},
        '["name 0"]: unknown argument; known: ',
    ),
    "a member": (
        {"values": [], "numbers": {f"n{n}": "x" for n in range(LARGE)}},
        'numbers["…"]: expected integer, got ',
    ),
    "a field": (
        {"values": [], "items": [{"number": n} for n in range(LARGE)] + [{}]},
        f"items[{LARGE}].number: missing",
    ),
    "a missing argument": ({"anything": [[1]] * LARGE}, "values: missing (required array)"),
    "numbers with a point": ({"values": [1.0] * LARGE}, "values[0]: expected integer, got number"),
    "an array": ([1] * LARGE, "arguments: expected object, got array"),
    "a long name": ({"values": [], "x" * LARGE: 1}, '["xxxxxxxxxxxxxxxxxxxx'),
}


def refusal_of(arguments: Any, text: bytes) -> tuple[InvalidParams, int]:
    """How arguments are refused, and how many functions that takes."""
    calls = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        with pytest.raises(InvalidParams) as caught:
            arguments.from_json(text)
    finally:
        sys.setprofile(None)
    return caught.value, calls


@pytest.mark.parametrize("shape", WRONG_BODIES)
def test_a_large_wrong_body_is_decoded_once_and_given_back(shape: str) -> None:
    """The number of function calls does not depend on the size: nothing of the value is looked at by Python code."""
    body, line = WRONG_BODIES[shape]
    text = msgspec.json.encode(body)
    arguments = inspect_function(takes_much).arguments
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    try:
        refusal, calls = refusal_of(arguments, text)
    finally:
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
    assert line in str(refusal)
    assert len(str(refusal)) < 500
    assert calls < 400
    assert kept < 200_000


def test_a_large_body_that_fits_is_read() -> None:
    body = {"values": [1] * LARGE, "items": [{"number": 1}] * 10}
    assert len(inspect_function(takes_much).arguments.from_json(msgspec.json.encode(body))["values"]) == LARGE
    assert gc.isenabled()


def test_large_wrong_arguments_of_pydantic_are_counted() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", number=(int, ...))

    def takes_models(models: list[model]) -> None: ...  # type: ignore[valid-type]  # made at runtime

    takes_models.__annotations__["models"] = list[model]  # type: ignore[valid-type]  # as above
    arguments = inspect_function(takes_models).arguments
    with pytest.raises(InvalidArguments, match="models: has 5000 errors"):
        arguments.from_json(msgspec.json.encode({"models": [{"number": "x" * 20}] * 5000}))
    with pytest.raises(InvalidArguments, match="models: expected"):
        arguments.from_json(msgspec.json.encode({"models": [{"number": 1}] * 20_000 + [{"number": "x"}]}))


def test_only_so_many_unknown_arguments_are_named() -> None:
    """What is not named is looked at once."""
    arguments = inspect_function(takes_much).arguments
    few, calls_of_few = refusal_of(arguments, msgspec.json.encode({f"n{n}": "" for n in range(40)}))
    many, calls_of_many = refusal_of(arguments, msgspec.json.encode({f"n{n}": "" for n in range(4000)}))
    most, calls_of_most = refusal_of(arguments, msgspec.json.encode({f"n{n}": "" for n in range(90_000)}))
    for refusal in (few, many):
        assert isinstance(refusal, InvalidArguments)
        assert len(refusal.errors) == 21
    assert calls_of_many < calls_of_few + 2 * 4000
    assert isinstance(most, InvalidArguments)
    assert calls_of_most < 400
