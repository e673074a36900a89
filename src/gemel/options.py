"""Options of public entry points, each declared once as an annotated key of a TypedDict.

    class SocketOptions(TypedDict, total=False):
        port: Annotated[int | None, Option("TCP port; 0 takes a free one.", default=None, check=or_none(PORT))]

Type checkers read the TypedDict (`**options: Unpack[SocketOptions]`). Made from the same declaration: the checks at run time,
the signature that `help()` shows, the flags of the command line and the tables in the documentation.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple, TypeVar, cast

import msgspec

from gemel.errors import DefinitionError, shorten

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
OptionsT = TypeVar("OptionsT")


class Check(NamedTuple):
    """Which values an option takes, and the advice for a value that it doesn't take. A `secret` is never shown."""

    test: Callable[[Any], bool]
    advice: str
    secret: bool = False


class Option(NamedTuple):
    """Declares one option: what it means, its default, the values it takes."""

    meaning: str
    default: Any = None
    check: Check | None = None


@cache
def options_of(kind: type) -> Mapping[str, Option]:
    """The options that a TypedDict declares, inherited ones first."""
    return {name: annotation.__metadata__[0] for name, annotation in kind.__annotations__.items()}


def resolve(
    kind: type[OptionsT], given: Mapping[str, Any] | OptionsT, of: str, elsewhere: Mapping[str, str] | None = None
) -> OptionsT:
    """Check the given options and fill in defaults for the others.

    Args:
        kind: the TypedDict that declares them.
        given: the options that the caller passed.
        of: what has these options, for the error: "Server", "run('http')".
        elsewhere: names that belong elsewhere, with the advice where.

    Raises:
        DefinitionError: in one line, for an unknown option or a value that it doesn't take.
    """
    declaration, passed = cast(Any, kind), cast(Any, given)
    declared = options_of(declaration)
    check_names(passed, declared, of, elsewhere)
    for name in passed:
        check_option(name, passed[name], declared[name].check)
    return cast(OptionsT, {name: passed.get(name, option.default) for name, option in declared.items()})


def check_names(
    given: Iterable[str], known: Collection[str], of: str, elsewhere: Mapping[str, str] | None = None
) -> None:
    """Raise DefinitionError, in one line, for the first name that is not known; the arguments are those of `resolve`."""
    for name in given:
        if name not in known:
            raise DefinitionError(f"{of} has no option {name!r}: {(elsewhere or {}).get(name) or hint(name, known)}")


def similar(name: str, known: Collection[str]) -> str | None:
    """The most similar name that is known, if one may have been meant."""
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, known, n=1)), None)


def near_file(path: str) -> str:
    """What follows an error about a file that doesn't exist: the most similar name in its folder, if there is one."""
    folder, name = os.path.split(path)
    try:
        near = similar(name, os.listdir(folder or ".")) if "." in name else None
    except OSError:
        near = None
    return f"; did you mean {os.path.join(folder, near)!r}?" if near else ""


def hint(name: str, known: Collection[str]) -> str:
    """What may have been meant by a name: the most similar one that is known, or else all of them."""
    if near := similar(name, known):
        return f"did you mean {near!r}?"
    return f"it has {', '.join(sorted(known))}" if known else "it has none"


class SettingsMeta(msgspec.StructMeta):
    """The class of structs that users fill in: a name that they don't have raises DefinitionError."""

    def __call__(cls, *values: object, **given: object) -> Any:
        """Make one."""
        check_names(given, cls.__struct_fields__, cls.__name__)
        return super().__call__(*values, **given)


def check_option(name: str, value: object, check: Check | None) -> None:
    """Check one value. Raises DefinitionError, in one line, for a value that the option doesn't take."""
    if check is not None and not check.test(value):
        described = f" of type {type(value).__name__}" if check.secret else f"={shown(value)}"
        raise DefinitionError(f"{name}{described} is not possible: {check.advice}")


def shown(value: object) -> str:
    """The value as a text; of a function its name and its parameters."""
    text = repr(value)
    if inspect.isroutine(value):
        with suppress(TypeError, ValueError, NameError):
            parameters = ", ".join(map(str, inspect.signature(value).parameters))
            text = f"{'async ' * is_async(value)}{value.__name__}({parameters})"
    return shorten(" ".join(text.split()), 80)


def check_values(given: Mapping[str, Any], checks: Mapping[str, Check]) -> None:
    """`check_option` for several; what has no check is not looked at."""
    for name, check in checks.items():
        if name in given:
            check_option(name, given[name], check)


def accepts(kind: type) -> Callable[[FunctionT], FunctionT]:
    """Show the options of a function with `**options: Unpack[kind]` in its signature, as `help()` prints it."""

    def apply(function: FunctionT) -> FunctionT:
        plain = inspect.signature(function)
        named = {name: each for name, each in plain.parameters.items() if each.kind is not each.VAR_KEYWORD}
        for name, option in options_of(kind).items():
            annotation = kind.__annotations__[name].__origin__
            named[name] = inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=annotation
            )
        function.__signature__ = plain.replace(parameters=list(named.values()))  # type: ignore[attr-defined]  # inspect's protocol
        return function

    return apply


# ---------------------------------------------------------------- checks


def is_whole(value: object, least: int, most: float = float("inf")) -> bool:
    """Whether a value is an int (and not a bool) within bounds."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def is_number(value: object, least: float = 0.0) -> bool:
    """Whether a value is an int or float of at least `least`; neither bool nor NaN."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= least


def are_texts(value: Any) -> bool:
    """Whether a value is a collection of strings, and not one string."""
    return _is_collection(value) and all(isinstance(one, str) for one in value)


def is_function(value: object, arguments: int, *, plain: bool = False) -> bool:
    """Whether a value can be called with so many positional arguments; a `plain` one must not be `async def`.

    What has no signature that Python can read is accepted.
    """
    if not callable(value) or (plain and is_async(value)):
        return False
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError, NameError):  # Python 3.14 evaluates annotations here
        return True
    try:
        signature.bind(*[None] * arguments)
    except TypeError:
        return False
    return True


def is_async(function: object) -> bool:
    """Whether a function, or an object that can be called, is defined with `async def`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _is_collection(value: object) -> bool:
    """Whether a value can be iterated more than once and isn't text."""
    return isinstance(value, Collection) and not isinstance(value, str | bytes)


def whole(least: int) -> Check:
    """An int of at least `least`."""
    return Check(lambda value: is_whole(value, least), f"use a whole number, {least} or more")


def one_of(*values: str) -> Check:
    """One of some strings."""
    return Check(lambda value: isinstance(value, str) and value in values, f"use {_listed(values)}")


def function(form: str, arguments: int, *, plain: bool = False) -> Check:
    """A callable that takes so many arguments; `form` shows how to write it. A `plain` one must not be `async def`."""
    return Check(lambda value: is_function(value, arguments, plain=plain), f"write {form}")


def has_methods(*, plain: bool = False, **arguments: int) -> Callable[[Any], bool]:
    """A test for objects that have methods of these names, which take so many arguments."""
    return lambda value: all(
        is_function(getattr(value, name, None), count, plain=plain) for name, count in arguments.items()
    )


def instance(kind: type | tuple[type, ...], form: str) -> Check:
    """A value of a type; `form` shows how to write it."""
    return Check(lambda value: isinstance(value, kind), f"write {form}")


def several(test: Callable[[Any], bool], form: str) -> Check:
    """A collection whose items pass the test; `form` shows how to write it."""

    def fits(value: Any) -> bool:
        return _is_collection(value) and not isinstance(value, Mapping) and all(map(test, value))

    return Check(fits, f"write {form}")


def texts_by_name(form: str) -> Check:
    """A mapping of strings to strings, which may be secrets."""

    def fits(value: object) -> bool:
        return isinstance(value, Mapping) and are_texts(value) and are_texts(value.values())

    return Check(fits, f"write {form}", secret=True)


def or_none(check: Check) -> Check:
    """The same, or None."""
    return check._replace(test=lambda value: value is None or check.test(value), advice=f"{check.advice}, or None")


FLAG = Check(lambda value: isinstance(value, bool), "use True or False")
TEXT = Check(lambda value: isinstance(value, str), "write a text")
SECONDS = Check(is_number, "use seconds, 0 or more")
TEXTS = Check(are_texts, "write a list of texts")
METHOD_NAMES = Check(are_texts, 'write methods={"tools/call"}')
PATH = Check(lambda value: isinstance(value, str | os.PathLike), "write the path of a file")
FOLDER = PATH._replace(advice="write the path of a folder")
PORT = Check(lambda value: is_whole(value, 0, 65535), "use a number from 0 to 65535")


def _listed(values: tuple[str, ...]) -> str:
    quoted = [f'"{value}"' for value in values]
    return " or ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
