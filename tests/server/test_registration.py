"""What can be written as a function: each kind is registered and works, or is refused in one line with file, line and the fix."""

import contextlib
import datetime
import functools
import itertools
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal, NoReturn, ParamSpec, Self, TypedDict, TypeVar, Unpack, overload

import msgspec
import pydantic
import pytest

from gemel import Ask, CallToolResult, Client, DefinitionError, Depends, Server, Titled

P = ParamSpec("P")
T = TypeVar("T")


def plain(x: int) -> str:
    return f"got {x}"


class Options(TypedDict):
    x: int


class Unreadable:
    """No library reads it, and its author's own methods fail."""

    __hash__ = None  # type: ignore[assignment]  # what is tested

    def __repr__(self) -> str:
        raise RuntimeError("no text")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not comparable")


class Hooked:
    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        raise ZeroDivisionError("in the hook\nof its author")


class LooksAhead(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(regex_engine="python-re")
    x: Annotated[str, pydantic.Field(pattern="^(?=a)")]


class Kinds:
    """A class whose members are registered."""

    @functools.singledispatchmethod
    def dispatched(self, x: int) -> str:
        return "x"

    @property
    def value(self) -> int:
        return 1

    @classmethod
    def of_class(cls, x: int) -> str:
        return f"got {x}"

    @staticmethod
    def static(x: int) -> str:
        return f"got {x}"

    def method(self, x: int) -> str:
        return f"got {x}"

    async def __call__(self, x: int) -> str:
        return f"got {x}"


def without_wraps(function: Callable[..., Any]) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def typed_without_wraps(function: Callable[P, T]) -> Callable[P, T]:
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)

    return wrapper


def with_wraps(function: Any) -> Any:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


def joined(function: Callable[P, Iterator[str]]) -> Callable[P, str]:
    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> str:
        return "".join(function(*args, **kwargs))

    wrapper.__annotations__["return"] = str
    return wrapper


@joined
def generated(x: int) -> Iterator[str]:
    yield "got "
    yield str(x)


@functools.singledispatch
def dispatched(x: int) -> str:
    return "x"


@overload
def overloaded(x: int) -> str: ...
@overload
def overloaded(x: str) -> str: ...
def overloaded(x: Any) -> str:
    return f"got {x}"


def generator(x: int) -> Iterator[str]:
    yield "x"


async def async_generator(x: int) -> AsyncIterator[str]:
    yield "x"


def unpacked(**options: Unpack[Options]) -> str:
    return "x"


def starred(*x: int) -> str:
    return "x"


def positional(x: int, /) -> str:
    return "x"


def keyword(*, x: int) -> str:
    return f"got {x}"


def returns_later(x: int) -> "Later":  # type: ignore[name-defined]  # noqa: F821
    ...


def mangled(__x: int) -> str:
    return "x"


def with_annotation(annotation: Any, default: Any = None) -> Any:
    def function(x: Any = default) -> str:
        return f"got {x}"

    function.__annotations__["x"] = annotation
    if default is None:
        function.__defaults__ = ()
    return function


def with_result(annotation: Any) -> Any:
    def function(x: int) -> Any: ...

    function.__annotations__["return"] = annotation
    return function


#: The same for type checkers, which refuse what is refused here.
UNTYPED: Any = plain
UNTYPED_P: Any = P
ENDLESS: list[Any] = []
ENDLESS.append(ENDLESS)

WORKS: dict[str, Any] = {
    "function": plain,
    "async callable object": Kinds(),
    "bound method": Kinds().method,
    "bound classmethod": Kinds.of_class,
    "staticmethod object": Kinds.__dict__["static"],
    "partial": functools.partial(plain),
    "partial of a partial": functools.partial(functools.partial(Kinds().method)),
    "lru_cache": functools.lru_cache(plain),
    "decorator with wraps": with_wraps(plain),
    "a generator that a decorator collects": generated,
    "overloads with their function": overloaded,
    "keyword-only": keyword,
    "TypeVar": with_annotation(T),
    "TypedDict with Required": with_annotation(TypedDict("Total", {"x": typing.Required[int]}, total=False) | int),  # type: ignore[operator]  # it is possible
    "string": with_annotation("int"),
    "NoReturn": with_result(NoReturn),
    "alias": with_annotation(Annotated[int, pydantic.Field(validation_alias="y")]),
    "alias that names itself": with_annotation(pydantic.JsonValue),
    "look-ahead of msgspec": with_annotation(Annotated[str, msgspec.Meta(pattern="^(?=g)")] | int),
    "look-ahead in a model that says so": with_annotation(LooksAhead | int),
}

#: What is refused, and a part of the line that says why and what to do.
REFUSED: dict[str, tuple[Any, str]] = {
    "wraps is missing": (
        without_wraps(plain),
        "`*args, **kwargs` have no schema; if a decorator made it, write `@functools.wraps(function)`",
    ),
    "wraps is missing, typed": (
        typed_without_wraps(plain),
        "write `@functools.wraps(function)` above the function that the decorator returns",
    ),
    "singledispatch": (
        dispatched,
        "(singledispatch), but arguments are passed by name; write a function that calls it",
    ),
    "singledispatchmethod": (Kinds().dispatched, "(singledispatch), but arguments are passed by name"),
    "class": (Kinds, "is a class; register a function, a bound method, or an object with `__call__`"),
    "method of a class": (Kinds.method, "parameter `self`: belongs to a method; register the bound method"),
    "classmethod object": (Kinds.__dict__["of_class"], "is a classmethod that isn't bound to its class yet"),
    "property": (Kinds.value, "is not callable; register a function"),
    "None": (None, "None is not callable; register a function"),
    "generator": (generator, "is a generator, but a call has one result; return a list"),
    "async generator": (async_generator, "is a generator, but a call has one result; return a list"),
    "context manager": (
        contextlib.contextmanager(generator),
        "makes a context manager, but a call has one result; return what it yields",
    ),
    "builtin": (len, "parameter `obj`: is positional-only, but arguments are passed by name; wrap it in a function"),
    "builtin without signature": (min, "has no signature that Python can read"),
    "iterator class": (itertools.chain, "is a class; register a function"),
    "wrong partial": (functools.partial(UNTYPED, y=1), "has no signature that Python can read"),
    "*args": (starred, "parameter `x`: `*x` has no schema; name each parameter, or take a `x: list[str]`"),
    "Unpack": (unpacked, "`**options` has no schema; name each parameter, or take a `options: Options`"),
    "positional-only": (
        positional,
        "parameter `x`: is positional-only, but arguments are passed by name; remove the `/`",
    ),
    "two underscores": (mangled, "a caller can't pass an argument named `__x`; rename it"),
    "alias with a quote": (
        with_annotation(int, pydantic.Field(alias='a"b')),
        "a caller can't pass an argument named `a\"b`",
    ),
    "several aliases": (
        with_annotation(int, pydantic.Field(validation_alias=pydantic.AliasChoices("a", "b"))),
        "an argument has one name",
    ),
    "a default of the other arguments": (
        with_annotation(int, pydantic.Field(default_factory=lambda data: 1)),
        "which is possible only in a model",
    ),
    "forward reference": (with_annotation("Later"), "name 'Later' is not defined; import the name at runtime"),
    "forward reference inside": (with_annotation("list[Later] | None"), "name 'Later' is not defined"),
    "forward reference as result": (returns_later, "the return annotation `Later` can't be resolved"),
    "no expression": (with_annotation("int |"), "annotation `int |` can't be resolved"),
    "wrong subscript": (with_annotation("int[str]"), "can't be resolved: type 'int' is not subscriptable"),
    "list of types": (with_annotation([int]), "it is a value, not a type; write `list[…]`"),
    "tuple of types": (with_annotation((int, str)), "it is a value, not a type; write `tuple[…]`"),
    "dict of types": (with_annotation({"x": int}), "it is a value, not a type; write `dict[…]`"),
    "number": (with_annotation(3), "it is a value, not a type; write `Literal[3]`"),
    "any": (with_annotation(dict[str, any]), "`any` is a function, not a type; write `Any`, of typing"),  # type: ignore[valid-type]  # the mistake itself
    "function as type": (with_annotation(plain), "`plain` is a function, not a type"),
    "imaginary number": (with_annotation(3j), "it is a value, not a type"),
    "number with limits": (with_annotation(3, pydantic.Field(gt=1)), "it is a value, not a type; write `Literal[3]`"),
    "module with limits": (with_annotation(datetime, pydantic.Field(gt=1)), "`datetime` is a module, not a type"),
    "module": (with_annotation(datetime), "`datetime` is a module, not a type; write `datetime.datetime`"),
    "instance": (with_annotation(Unreadable()), "annotation `<Unreadable>` can't be read from JSON"),
    "class object": (with_annotation(type[int]), "a class can't be written in JSON"),
    "ParamSpec": (with_annotation(UNTYPED_P.args), "can't be read from JSON"),
    "Self": (with_annotation(Self), "can't be read from JSON"),
    "Callable": (with_annotation(Callable[[int], str]), "Callable has no JSON form"),
    "Awaitable": (with_annotation(Awaitable[int]), "Awaitable has no JSON form"),
    "hook of an author": (with_annotation(Hooked), "ZeroDivisionError: in the hook"),
    "look-ahead": (
        with_annotation(Annotated[str, pydantic.Field(pattern="^(?=a)")]),
        "write Annotated[str, msgspec.Meta(pattern=…)]",
    ),
    "invalid pattern": (
        with_annotation(Annotated[str, pydantic.Field(pattern="(")]),
        "pydantic can't compile its pattern",
    ),
    "limit of another type": (
        with_annotation(Annotated[int, pydantic.Field(min_length=1)]),
        "`min_length` can't limit a value of that type",
    ),
    "limit of another type in msgspec": (
        with_annotation(Annotated[int, msgspec.Meta(min_length=1)]),
        "msgspec.Meta sets `min_length` only on a str",
    ),
    "limit of a Decimal in msgspec": (
        with_annotation(Annotated[Decimal | None, msgspec.Meta(ge=0)]),
        "msgspec.Meta sets `ge` only on a numeric type; for a Decimal use pydantic's Field",
    ),
    "empty Literal": (with_annotation(Literal[()]), "can't be read from JSON"),
    "wrong default": (
        with_annotation(int, "a"),
        'its default doesn\'t fit its annotation: expected integer, got string "a"',
    ),
    "default without JSON": (
        with_annotation(str, plain),
        "its default, of type function, can't be shown in the schema",
    ),
    "default that contains itself": (
        with_annotation(list[Any], ENDLESS),
        "contains itself",
    ),
    "default with failing methods": (
        with_annotation(str, Unreadable()),
        "its default, of type Unreadable, can't be shown in the schema",
    ),
    "result: module": (with_result(datetime), "`datetime` is a module, not a type; write `datetime.datetime`"),
    "result: tuple of types": (with_result((int, str)), "it is a value, not a type; write `tuple[…]`"),
    "result: look-ahead": (
        with_result(list[Annotated[str, pydantic.Field(pattern="(?=a)")]]),
        "pydantic can't compile its pattern",
    ),
    "result: look-ahead in a model that says so": (
        with_result(LooksAhead),
        "results can't be validated against the return annotation `LooksAhead`: ",
    ),
    "result: look-ahead of a CallToolResult": (
        with_result(Annotated[CallToolResult, LooksAhead]),
        "results can't be validated against the return annotation `LooksAhead`: ",
    ),
    "result: look-ahead of msgspec": (
        with_result(Annotated[str, msgspec.Meta(pattern="^(?=g)")] | int),
        "results can't be validated against the return annotation `str | int`: ",
    ),
    "result: dependency": (
        with_result(Annotated[int, Depends(plain)]),
        "`Depends` stands in the return annotation `int`",
    ),
    "result: form": (with_result(list[Annotated[int, Ask("x")]]), "`Ask` stands in the return annotation `list[int]`"),
    "result: titles": (with_result(Annotated[str, Titled(a="A")]), "`Titled` stands in the return annotation `str`"),
    "result: Self": (with_result(Self), "the return annotation `Self` can't become JSON"),
}
#: Those without a line of their own.
NOWHERE = {"property", "None"}


@pytest.mark.parametrize("kind", WORKS)
async def test_what_can_be_called_by_name_works(kind: str) -> None:
    server: Server[Any] = Server("kinds")
    server.tool("kind")(WORKS[kind])
    async with Client(server) as client:
        (tool,) = await client.list_tools()
        (name,) = tool.input_schema["properties"]
        result = await client.call_tool("kind", {name: 3}, raise_on_error=False)
        assert result.text in ("got 3", "")


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("feature", ["tool", "prompt", "resource"])
def test_what_cannot_be_called_is_refused_in_one_line(kind: str, feature: str) -> None:
    function, reason = REFUSED[kind]
    if feature == "resource" and kind in ("generator", "async generator", "context manager"):
        return  # a resource may be written in chunks
    server: Server[Any] = Server("kinds")
    register: dict[str, Any] = {
        "tool": server.tool("kind"),
        "prompt": server.prompt("kind"),
        "resource": server.resource("x://{x}", name="kind"),
    }
    with pytest.raises(DefinitionError) as caught:
        register[feature](function)
    text = str(caught.value)
    assert reason in text
    assert "\n" not in text
    file = "<built-in>:0" if kind.startswith(("builtin", "iterator")) else f"{__file__}:"
    assert kind in NOWHERE or text.startswith(f"kind() at {file}")


async def test_a_default_that_can_change_belongs_to_one_call() -> None:
    server: Server[Any] = Server("defaults")

    @server.tool
    def collect(x: int, seen: list[int] = [], more: dict[str, list[int]] = {"a": []}) -> str:  # noqa: B006
        seen.append(x)
        more["a"].append(x)
        return f"{seen} {more}"

    async with Client(server) as client:
        assert [(await client.call_tool("collect", {"x": x})).text for x in (1, 2)] == [
            "[1] {'a': [1]}",
            "[2] {'a': [2]}",
        ]


async def test_a_validator_that_fails_is_the_tools_failure(caplog: pytest.LogCaptureFixture) -> None:
    def broken(value: int) -> int:
        raise KeyError("in the validator")

    server: Server[Any] = Server("validators")

    @server.tool
    def take(x: Annotated[int, pydantic.AfterValidator(broken)]) -> str:
        return "never"

    async with Client(server) as client:
        result = await client.call_tool("take", {"x": 1}, raise_on_error=False)
    assert (result.is_error, result.text) == (True, "Tool 'take' failed unexpectedly. The server's log says why.")
    assert "in the validator" in caplog.text


async def test_a_limit_that_cannot_be_applied_is_an_error_of_the_argument() -> None:
    server: Server[Any] = Server("limits")

    @server.tool
    def take(x: Annotated[int | str, pydantic.Field(min_length=2)]) -> str:
        return f"got {x}"

    async with Client(server) as client:
        assert (await client.call_tool("take", {"x": "ab"})).text == "got ab"
        result = await client.call_tool("take", {"x": 1}, raise_on_error=False)
        assert (
            result.text
            == "Invalid arguments for tool 'take': x: expected a value that min_length can limit, got integer 1"
        )
