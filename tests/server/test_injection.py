"""Which parameters the server fills: however they are written, and on whatever they stand; and what is refused."""

import sys
import types
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NewType, Optional, TypeAlias, TypedDict, TypeVar, Union

import pytest

from gemel import Ask, Context, DefinitionError, Depends, Method, Principal, Server, Titled, Topic
from gemel.extensions.base import Extension
from gemel.server.context import SyncContext
from gemel.server.features.visibility import Caller, Item
from tests.server.bare_end import BareEnd

Alias: TypeAlias = Context[int]
new_type: Any = NewType  # mypy fails internally on NewType of a dataclass_transform
Named = new_type("Named", Context)
Bound = TypeVar("Bound", bound=Context)
OneOf = TypeVar("OneOf", Context[int], Context[str])


def user() -> str:
    return "a user"


User: TypeAlias = Annotated[str, Depends(user)]
NEW_ALIASES: dict[str, Any] = {}
if sys.version_info >= (3, 12):
    exec(
        "type Simple = Context\ntype Generic_[T] = Context[T] | None\ntype Marked = Annotated[str, Depends(user)]\n"
        "type Lost = Nowhere",
        NEW_ALIASES := {"Context": Context, "Annotated": Annotated, "Depends": Depends, "user": user},
    )

CONTEXTS: dict[str, Any] = {
    "Context": Context,
    "Context[int]": Context[int],
    "Context | None": Context | None,
    "None | Context": None | Context,
    "Optional[Context[int]]": Optional[Context[int]],  # noqa: UP045  # what is tested
    "Annotated[Context, …]": Annotated[Context, "the context"],
    "Annotated[Context | None, …]": Annotated[Context[int] | None, "the context"],
    "Annotated[Context, …] | None": Optional[Annotated[Context[int], "the context"]],  # noqa: UP045  # for pyright
    "Union of contexts": Union[Context[int], Context[str], None],  # noqa: UP007  # what is tested
    "Context | str": Context | str,
    "str annotation": "Context | None",
    "str inside": Optional["Context[int]"],
    "TypeAlias": Alias,
    "NewType": Named,
    "bound TypeVar": Bound,
    "constrained TypeVar": OneOf,
    **({"type": NEW_ALIASES["Simple"], "type[T]": NEW_ALIASES["Generic_"][int]} if NEW_ALIASES else {}),
}
USERS: dict[str, Any] = {
    "Annotated[str, Depends(…)]": Annotated[str, Depends(user)],
    "Annotated[str | None, Depends(…)]": Annotated[str | None, Depends(user)],
    "Annotated[str, Depends(…)] | None": Optional[Annotated[str, Depends(user)]],  # noqa: UP045  # for pyright
    "Optional alias": Optional[User],  # noqa: UP045  # what is tested
    "nested Annotated": Annotated[Annotated[str, Depends(user)], "who"],
    "holds a Context": Annotated[Callable[[Context], str], Depends(user)],
    "of a Context": Annotated[Context, Depends(user)],
    "str annotation": "Annotated[str, Depends(user)] | None",
    **({"type": NEW_ALIASES["Marked"]} if NEW_ALIASES else {}),
}


def annotated(annotation: Any, default: Any = None, *, value: bool = False) -> Any:
    """A function that gives what its parameter `given` got; with `value` it has one for a caller before that."""

    def with_value(value: str, given: Any = default) -> str:
        return given if isinstance(given, str) else type(given).__name__

    def alone(given: Any = default) -> str:
        return given if isinstance(given, str) else type(given).__name__

    function = with_value if value else alone
    function.__annotations__["given"] = annotation
    return function


async def outcomes(annotation: Any) -> dict[str, str]:
    """What the parameter gets wherever it can stand; none of them is listed as an argument."""
    server: Server[Any] = Server("injecting")
    given = annotated(annotation)

    @server.prompt("completed")
    def prompt(value: str) -> str:
        return value

    def through(got: Annotated[str, Depends(given)]) -> str:
        return got

    server.tool("tool")(given)
    server.tool("dependency")(through)
    server.prompt("prompt")(given)
    server.resource("page://now", name="page")(given)
    server.resource("page://{value}", name="pages")(annotated(annotation, value=True))
    completer = annotated(annotation, value=True)
    prompt.complete("value")(lambda value, ctx=None: [])
    prompt.complete("value")(_listing(completer))
    async with BareEnd(server) as end:
        tools = (await end.ask("tools/list"))["tools"]
        assert [tool["inputSchema"].get("properties") for tool in tools] == [{}, {}]
        assert not any(prompt.get("arguments") for prompt in (await end.ask("prompts/list"))["prompts"][1:])
        reference = {"ref": {"type": "ref/prompt", "name": "completed"}, "argument": {"name": "value", "value": ""}}
        return {
            "tool": await end.text("tool"),
            "dependency": await end.text("dependency"),
            "prompt": (await end.ask("prompts/get", {"name": "prompt"}))["messages"][0]["content"]["text"],
            "resource": (await end.ask("resources/read", {"uri": "page://now"}))["contents"][0]["text"],
            "template": (await end.ask("resources/read", {"uri": "page://x"}))["contents"][0]["text"],
            "completion": (await end.ask("completion/complete", reference))["completion"]["values"][0],
        }


def _listing(function: Any) -> Any:
    def complete(value: str, *, given: Any) -> list[str]:
        return [function(value, given)]

    complete.__annotations__["given"] = function.__annotations__["given"]
    complete.__kwdefaults__ = {"given": function.__defaults__[-1]}
    return complete


@pytest.mark.parametrize("written", CONTEXTS)
async def test_a_context_is_passed_however_it_is_annotated(written: str) -> None:
    assert set((await outcomes(CONTEXTS[written])).values()) == {"Context"}


@pytest.mark.parametrize("written", USERS)
async def test_a_dependency_is_passed_however_it_is_annotated(written: str) -> None:
    assert set((await outcomes(USERS[written])).values()) == {"a user"}


async def test_the_user_is_asked_however_the_parameter_is_annotated() -> None:
    server: Server[Any] = Server("asking")
    for name, annotation in {
        "inside": Annotated[str | None, Ask("Who?")],
        "outside": Optional[Annotated[str, Ask("Who?")]],  # noqa: UP045  # for pyright
        "string": "Annotated[str, Ask('Who?')] | None",
    }.items():
        server.tool(name)(annotated(annotation))
    async with BareEnd(server) as end:
        assert all(not tool["inputSchema"]["properties"] for tool in (await end.ask("tools/list"))["tools"])
        assert [await end.text(name) for name in ("inside", "outside", "string")] == ["NoneType"] * 3


# ---------------------------------------------------------------- refused


#: A context of an author's own.
Sub: Any = types.new_class("Sub", (Context,))


class Holder(TypedDict):
    name: Annotated[str, Depends(user)]


class Depends_of_another:
    """Another library's marker of the same name."""


Depends_of_another.__name__ = "Depends"
Depends_of_another.__module__ = "fastapi.params"

REFUSED: list[tuple[Any, str]] = [
    (list[Annotated[str, Depends(user)]], "write `given: Annotated[list[str], Depends(user)]`"),
    (dict[str, Annotated[str, Depends(user)]], "write `given: Annotated[dict[str, str], Depends(user)]`"),
    (Annotated[str, Depends(user)] | int, "write `given: Annotated[str | int, Depends(user)]`"),
    (list[Annotated[str, Ask("Who?")]] | None, "write `given: Annotated[list[str] | None, Ask('Who?')]`"),
    (Holder, "write `given: Annotated[Holder, Depends(user)]`"),
    (Annotated[Holder, Ask("Who?")], "write `given: Annotated[Holder, Depends(user)]`"),
    (Annotated[str, Depends], "`Depends` fills nothing; write `given: Annotated[str, Depends(function)]`"),
    (Annotated[str, Ask], "`Ask` fills nothing; write `given: Annotated[str, Ask('Which one?')]`"),
    (Depends(user), "write `given: Annotated[…, Depends(user)]`"),
    (Annotated[str, Depends(user), Ask("Who?")], "Depends(user) and Ask('Who?') would both fill it; keep one of them"),
    (
        Annotated[list[Annotated[str, Depends(user)]], Depends(user)],
        "write `given: Annotated[list[str], Depends(user)]`",
    ),
    (list[Context], "`list[Context]` holds a Context, which only a parameter of its own gets; write `ctx: Context`"),
    (Callable[[Context[int]], str], "which only a parameter of its own gets; write `ctx: Context`"),
    (
        Sub,
        "the server passes a Context, not its subclass `Sub`; write `given: Context`, and functions in place of its methods",
    ),
    (Sub | None, "the server passes a Context, not its subclass `Sub`; write `given: Context`"),
    (SyncContext, "`SyncContext` is made from a Context; write `given: Context` and use `given.sync`"),
    (Principal, "a caller can't pass `Principal`; write `given: Annotated[Principal, Depends(function)]`"),
    (Server[Any] | None, "a caller can't pass `Server`"),
    (
        Annotated[Literal["a"], Titled(a="A")],
        "`Titled` is read in forms, by `Ask` and `ctx.elicit`; describe the choices",
    ),
    (list[Annotated[str, Titled(a="A")]] | None, "`Titled` is read in forms"),
    (
        Annotated[str, Depends_of_another()],
        "`Depends` of fastapi fills nothing; write `given: Annotated[str, Depends(function)]` with the names of gemel",
    ),
    *([(NEW_ALIASES["Lost"], "name 'Nowhere' is not defined")] if NEW_ALIASES else []),
]


def registrations(function: Any) -> Iterator[Callable[[], Any]]:
    """All ways in which a function can be registered, and its being a dependency of another one."""
    server: Server[Any] = Server("refusing")

    @server.prompt
    def prompt(value: str) -> str:
        return value

    def dependent(got: Annotated[str, Depends(function)]) -> str:
        return got

    yield lambda: server.tool(function)
    yield lambda: server.prompt(function)
    yield lambda: server.resource("page://{given}")(function)
    yield lambda: server.tool(dependent)
    yield lambda: prompt.complete("value")(_listing(function))


@pytest.mark.parametrize(("annotation", "advice"), REFUSED, ids=[str(annotation)[:60] for annotation, _ in REFUSED])
def test_what_would_not_be_filled_is_refused_with_the_right_spelling(annotation: Any, advice: str) -> None:
    for register in registrations(annotated(annotation)):
        with pytest.raises(DefinitionError) as caught:
            register()
        text = str(caught.value)
        assert f" at {__file__}:" in text
        assert "parameter `given`: " in text
        assert advice in text


@pytest.mark.parametrize("default", [Depends(user), Ask("Who?"), Depends, Depends_of_another()])
def test_a_marker_as_default_is_refused_everywhere(default: Any) -> None:
    for register in registrations(annotated(str, default)):
        with pytest.raises(DefinitionError, match=r"parameter `given`: .*can't be a default; write .*Annotated\[str, "):
            register()


def test_an_unresolved_annotation_of_a_completer_is_refused() -> None:
    """It may be a Context that only type checkers import: no other value must be passed in its place."""
    server: Server[Any] = Server("refusing")

    @server.prompt
    def prompt(value: str) -> str:
        return value

    with pytest.raises(DefinitionError, match="name 'Nowhere' is not defined"):

        @prompt.complete("value")
        def complete(value: str, ctx: "Nowhere") -> list[str]:  # type: ignore[name-defined]  # noqa: F821
            return []


def test_completion_cannot_ask_the_user() -> None:
    server: Server[Any] = Server("refusing")

    @server.prompt
    def prompt(value: str) -> str:
        return value

    with pytest.raises(DefinitionError, match="parameter `day`: completion can't request input from the user"):

        @prompt.complete("value")
        def complete(value: str, *, day: Annotated[str, Ask("Which day?")]) -> list[str]:
            return []


async def test_what_is_called_by_position_has_no_marked_parameters() -> None:
    server: Server[Any] = Server("refusing")

    async def handler(ctx: Context, params: Any, db: Annotated[str, Depends(user)] = "") -> None: ...

    def condition(caller: Caller, db: Annotated[str, Depends(user)] = "") -> bool:
        return True

    def rule(item: Item, caller: Caller, db: Any = Depends(user)) -> bool:  # noqa: B008  # what is tested
        return True

    class Extended(Extension):
        id = "org.example/extended"

        def requests(self) -> list[Method]:
            return [Method(name="example/ask", serve=handler)]

    class Subscribed(Extension):
        id = "org.example/subscribed"

        def topics(self) -> list[Topic]:
            return [
                Topic(key="example", kind="example", method="notifications/example", accept=handler, describe=handler)
            ]

    for register in (
        lambda: server.request("example/ask")(handler),
        lambda: server.notification("notifications/example")(handler),
        lambda: server.add_middleware(handler),
        lambda: Server("refusing", middleware=[handler]),
        lambda: server.tool("tool", visible=condition)(user),
        lambda: server.visibility(rule),
        lambda: server.add_extension(Extended()),
        lambda: server.add_extension(Subscribed()),
        lambda: Server("refusing", lifespan=condition),  # type: ignore[arg-type]  # it is refused
        lambda: Server("refusing", connection_lifespan=condition),  # type: ignore[arg-type]  # it is refused
    ):
        with pytest.raises(DefinitionError, match=r"parameter `db`: `Depends\(user\)` fills nothing"):
            register()


def test_dependencies_that_cannot_be_called_are_refused() -> None:
    import contextlib
    import functools

    @contextlib.contextmanager
    def managed() -> Iterator[str]:
        yield "x"

    @functools.singledispatch
    def dispatched(value: object) -> str:
        return "x"

    def positional(value: str, /) -> str:
        return value

    for function, text in (
        (managed, "managed() gives a context manager; remove its decorator: Depends takes the generator"),
        (
            dispatched,
            "chooses by the type of its first positional argument (singledispatch), but arguments are passed by name",
        ),
        (positional, "parameter `value`: is positional-only, but dependencies are called by name; remove the `/`"),
        (min, "the dependency min() at <built-in>:0: has no signature that Python can read"),
    ):

        def tool(value: str, got: Annotated[str, Depends(function)]) -> str:
            return got

        with pytest.raises(DefinitionError) as caught:
            Server("refusing").tool(tool)
        assert text in str(caught.value)


async def test_a_decorated_generator_is_a_dependency_like_a_plain_one() -> None:
    import functools

    closed: list[str] = []

    def logged(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return wrapper

    def collected(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> list[Any]:
            return list(function(*args, **kwargs))

        return wrapper

    @logged
    def opened() -> Iterator[str]:
        yield "open"
        closed.append("closed")

    @collected
    def several() -> Iterator[int]:
        yield from (1, 2)

    server: Server[Any] = Server("decorated")

    @server.tool
    def show(one: Annotated[str, Depends(opened)], two: Annotated[list[int], Depends(several)]) -> list[Any]:
        return [one, two]

    async with BareEnd(server) as end:
        assert await end.text("show") == '["open",[1,2]]'
    assert closed == ["closed"]


async def test_what_a_partial_fills_in_a_dependency_is_not_taken_from_the_caller() -> None:
    import functools

    def greet(word: str) -> str:
        return word

    server: Server[Any] = Server("partial")

    @server.tool
    def show(word: str, got: Annotated[str, Depends(functools.partial(greet, word="fixed"))]) -> str:
        return got

    async with BareEnd(server) as end:
        assert await end.text("show", word="of the caller") == "fixed"
