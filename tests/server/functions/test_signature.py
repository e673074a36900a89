"""Signatures: what is made of each kind of callable, what is hidden, and what is refused."""

import functools
import inspect
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import gemel.errors
from gemel import DefinitionError
from gemel.server.functions.annotations import Place, peel
from gemel.server.functions.signature import Signature, inspect_function


class Context: ...


def inspected(function: Any, **options: Any) -> Signature:
    return inspect_function(function, injected=is_context, **options)


def is_context(parameter: inspect.Parameter, annotation: Any, place: Place) -> str | None:
    return "the context" if peel(annotation).type is Context else None


def forecast(city: str, days: Annotated[int, msgspec.Meta(ge=1)] = 3) -> list[int]:
    """Forecast for a city.

    Args:
        city: name of the city
        days: how many days ahead

    Returns:
        the temperatures
    """
    return [len(city)] * days


def test_a_function_is_described_by_its_annotations_and_its_docstring() -> None:
    """TOOL-04."""
    signature = inspected(forecast)
    assert (signature.name, signature.is_async, signature.injected) == ("forecast", False, {})
    assert signature.description == "Forecast for a city."
    assert signature.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "name of the city"},
            "days": {"type": "integer", "minimum": 1, "description": "how many days ahead", "default": 3},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert signature.output_schema == {
        "type": "array",
        "items": {"type": "integer"},
        "description": "the temperatures",
    }


def test_arguments_go_in_and_values_come_out() -> None:
    signature = inspected(forecast)
    arguments = signature.arguments.from_json(b'{"city":"Oslo"}')
    assert arguments == {"city": "Oslo", "days": 3}
    assert signature.encode(forecast(**arguments))[1] == "[4,4,4]"


def test_a_function_without_parameters_takes_an_empty_closed_object() -> None:
    """TOOL-08."""

    def now() -> str:
        return "now"

    signature = inspected(now)
    assert signature.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}
    assert (signature.arguments.from_json(b"{}"), signature.description, signature.output_schema) == ({}, None, None)


def test_names_stay_as_they_are_written() -> None:
    def function(class_: int, _x: int, schema: int, model_config: int, camelCase: int, ß: int) -> None: ...

    names = ["class_", "_x", "schema", "model_config", "camelCase", "ß"]
    signature = inspected(function)
    assert signature.input_schema["required"] == names
    assert signature.arguments.from_json(msgspec.json.encode(dict.fromkeys(names, 1))) == dict.fromkeys(names, 1)


def test_annotated_words_win_over_the_docstring() -> None:
    def function(a: Annotated[int, "from the annotation"], b: int) -> None:
        """Do.

        Args:
            a: from the docstring
            b: from the docstring
        """

    properties = inspected(function).input_schema["properties"]
    assert [schema["description"] for schema in properties.values()] == ["from the annotation", "from the docstring"]


def test_what_the_server_fills_is_hidden() -> None:
    def function(ctx: Context, a: int, other: Context | None = None, *, third: Annotated[Context, "x"]) -> None:
        """Do.

        Args:
            ctx: not for the caller
            a: for the caller
        """

    signature = inspected(function)
    assert list(signature.injected) == ["ctx", "other", "third"]
    assert list(signature.input_schema["properties"]) == ["a"]
    assert signature.arguments.from_json(b'{"a":1}') == {"a": 1}


class Weather:
    """Serves as an object with `__call__`."""

    def method(self, city: str) -> str:
        """The method."""
        return city

    @classmethod
    def of_class(cls, city: str) -> str:
        """Of the class."""
        return city

    @staticmethod
    def static(city: str) -> str:
        """Static."""
        return city

    async def __call__(self, city: str) -> str:
        return city


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize(
    ("function", "name", "description"),
    [
        (Weather().method, "method", "The method."),
        (Weather.of_class, "of_class", "Of the class."),
        (Weather.static, "static", "Static."),
        (Weather.__dict__["static"], "static", "Static."),
        (Weather(), "Weather", "Serves as an object with `__call__`."),
        (functools.partial(Weather().method), "method", "The method."),
        (decorated(Weather.static), "static", "Static."),
    ],
)
def test_all_that_can_be_called_is_taken(function: Any, name: str, description: str) -> None:
    signature = inspected(function)
    assert (signature.name, signature.description) == (name, description)
    assert signature.arguments.from_json(b'{"city":"Oslo"}') == {"city": "Oslo"}


async def asynchronous(city: str) -> None: ...


class Methods:
    async def method(self, city: str) -> None: ...


@pytest.mark.parametrize(
    "function",
    [
        asynchronous,
        Weather(),
        Methods().method,
        functools.partial(asynchronous),
        functools.partial(functools.partial(Weather())),
    ],
)
def test_what_gives_an_awaitable_is_known(function: Callable[..., Coroutine[Any, Any, None]]) -> None:
    assert inspected(function).is_async
    assert not inspected(forecast).is_async


def test_what_a_partial_fills_is_neither_seen_nor_set_by_a_caller() -> None:
    def function(a: int, key: str, b: int = 2) -> None: ...

    signature = inspected(functools.partial(functools.partial(function, 1), key="secret"))
    assert list(signature.input_schema["properties"]) == ["b"]
    with pytest.raises(gemel.errors.InvalidArguments, match="key: unknown argument"):
        signature.arguments.from_json(b'{"key":"stolen"}')


def test_local_classes_are_found_although_annotations_are_text() -> None:
    class Local(msgspec.Struct):
        x: int

    def function(a: "Local", b: "list[Local] | None" = None) -> "Local":
        return a

    signature = inspected(function)
    assert signature.arguments.from_json(b'{"a":{"x":1}}') == {"a": Local(1), "b": None}
    assert signature.output_schema is not None


def generator() -> Iterator[int]:
    yield 1


async def async_generator() -> AsyncIterator[int]:
    yield 1


def unresolved() -> "Nowhere": ...  # type: ignore[name-defined]  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (Weather, "is a class; register a function, a bound method, or an object with `__call__`"),
        (3, "3 is not callable; register a function"),
        (
            Weather.__dict__["of_class"],
            "is a classmethod that isn't bound to its class yet; register it after the class, as `Class.of_class`",
        ),
        (generator, "is a generator, but a call has one result; return a list, report progress by the context"),
        (async_generator, "is a generator, but a call has one result; return a list, report progress by the context"),
        (
            unresolved,
            "the return annotation `Nowhere` can't be resolved: name 'Nowhere' is not defined; import the name at "
            "runtime (not only under TYPE_CHECKING) or define it at module level",
        ),
    ],
)
def test_what_cannot_be_called_for_one_result_is_refused(function: Any, message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        inspected(function)
    place, _, told = str(caught.value).partition(": ")
    assert told == message or str(caught.value) == message
    if callable(function) or isinstance(function, classmethod):
        assert re.fullmatch(rf"{function.__name__}\(\) at {re.escape(__file__)}:\d+", place)


def test_what_has_no_signature_is_refused() -> None:
    with pytest.raises(DefinitionError, match=r"has no signature that Python can read .*; wrap it in a function"):
        inspected(min)


def test_messages_can_carry_the_name_of_the_registration() -> None:
    def function(*cities: str) -> None: ...

    with pytest.raises(DefinitionError, match=r"^search\(\) at "):
        inspected(function, name="search")


def test_plain_functions_load_no_pydantic() -> None:
    """Cold start: only what is used is imported."""
    code = (
        "import sys\n"
        "from gemel.server.functions.signature import inspect_function\n"
        "def f(a: int, b: list[str] | None = None) -> dict[str, int]: 'Do.'\n"
        "s = inspect_function(f)\n"
        "s.arguments.from_json(b'{\"a\":1}'), s.encode({'a': 1})\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('pydantic', 'difflib')])\n"
    )
    source = str(Path(gemel.errors.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.strip() == "[]"
