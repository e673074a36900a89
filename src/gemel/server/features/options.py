"""The options of tools, prompts and resources: their types, and how they are checked and become listings."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict, TypeVar

import msgspec

from gemel.errors import DefinitionError, shorten
from gemel.options import Check, check_names, check_option, one_of, similar
from gemel.schema.base import Annotations, Icon
from gemel.schema.methods import Feature
from gemel.schema.tools import ToolAnnotations
from gemel.server.features.caching import CacheScope
from gemel.server.features.visibility import Caller, Item, View, view_of
from gemel.server.functions.signature import Signature
from gemel.values.encoding import encode_value, simplified


class ItemOptions(TypedDict, total=False):
    """The options that tools, prompts, resources and pages share."""

    #: In place of the function's name; of a tool or prompt it is also the first argument of the decorator.
    name: str | None
    #: Name for people, in user interfaces. Default: none.
    title: str | None
    #: In place of the description in the function's docstring.
    description: str | None
    #: Icons for user interfaces, or their URLs. Default: none.
    icons: Sequence[Icon | str] | None
    #: `_meta` of the listing. Default: none.
    meta: Mapping[str, Any] | None
    #: Tags for `server.disable` and for visibility rules; clients don't see them. Default: none.
    tags: Collection[str]
    #: A function of the Caller: whether that caller sees it. For others it doesn't exist. Default: everybody does.
    visible: Callable[[Caller], bool] | None
    #: OAuth scopes, all of which a caller needs; see `without_scopes`. Over stdio and in memory everybody has them, unless
    #: `principal=` says who connects. Default: none are needed.
    scopes: Collection[str]
    #: What callers without the scopes find. "refuse": it is listed, and a call fails with InsufficientScope, so that the
    #: client can ask its user for them. "hide": for them it doesn't exist. Default: "refuse".
    without_scopes: Literal["refuse", "hide"]
    #: Whether a sync function runs in a worker thread. False runs it on the event loop, for functions that return at once.
    #: Default: true.
    blocking: bool


class PromptOptions(ItemOptions, total=False):
    """The options of `@server.prompt`, all optional.

    https://modelcontextprotocol.io/specification/2025-11-25/server/prompts
    """


TaskSupport: TypeAlias = Literal["optional", "required"]


class ToolOptions(ItemOptions, total=False):
    """The options of `@server.tool`, all optional.

    https://modelcontextprotocol.io/specification/2025-11-25/server/tools
    """

    #: Hints about what the tool does: ToolAnnotations, or a dict with their names. Default: none.
    annotations: ToolAnnotations | Mapping[str, Any] | None
    #: JSON Schema in place of the one from the parameters; the function then takes all arguments as one dict.
    input_schema: Mapping[str, Any] | None
    #: JSON Schema in place of the one from the return annotation; results are validated against it. None: no structured
    #: content.
    output_schema: Mapping[str, Any] | None
    #: Seconds that one call may take, without the time in which the user is asked; in the stateless era each round starts
    #: anew. Then the function is cancelled and the call fails. A sync function in a thread can't be cancelled: the call
    #: fails, and the function's next use of `ctx.sync` raises. Default: no limit.
    timeout: float | None
    #: How many calls of this tool run at once in this process. Default: no limit.
    concurrency: int | None
    #: With `concurrency`, how many more calls wait, for at most `Limits.turn` seconds; further calls fail with Overloaded.
    #: Default: 100.
    waiting: int
    #: Whether strings that hold JSON of the expected type are accepted: "3" for an int, "true" for a bool, "[1]" for a list.
    #: Default: the server's `coerce` option.
    coerce: bool
    #: Whether null is listed beside the type of an argument whose default is None: `anyOf` of integer and null for
    #: `int | None = None`, in place of integer. It is accepted either way. Default: the server's `list_null` option, which is
    #: false; an `input_schema` stays as it is, unless this is False.
    list_null: bool
    #: Whether a call may become a task, whose result the client fetches later: True or "optional", or "required" for a tool
    #: that is too slow for a plain call. This takes the extension Tasks; without it every call is a plain one. Default: False.
    task: bool | Literal["optional", "required"]
    #: When it does: "call", at once; "handler", when the handler calls `await tasks.begin(ctx)`. Default: "call".
    task_start: Literal["call", "handler"]


class ResourceOptions(ItemOptions, total=False):
    """The options of `@server.resource` besides the URI, all optional.

    https://modelcontextprotocol.io/specification/2025-11-25/server/resources
    """

    #: The MIME type. Default: by the ending of the URI, else by what the function returns.
    mime_type: str | None
    #: Size in bytes; not for a template. Default: none.
    size: int | None
    #: Hints for the client: Annotations, or a dict with their names. Default: none.
    annotations: Annotations | Mapping[str, Any] | None
    #: Seconds for which clients may cache the contents; see CacheHint. Default: the server's `cache` option.
    ttl: float | None
    #: "private" or "public": with whom clients may share the contents; see CacheHint.
    scope: CacheScope | None
    #: Whether values that lead out of a folder (`..`, absolute paths, NUL, in any encoding) match no template. Default: true.
    screen: bool


class SkillOptions(TypedDict, total=False):
    """The options of `server.add_skills`, all optional."""

    #: Tags for `server.disable` and for visibility rules; clients don't see them. Default: none.
    tags: Collection[str]
    #: A function of the Caller: whether that caller sees the skills. For others they don't exist. Default: everybody does.
    visible: Callable[[Caller], bool] | None
    #: OAuth scopes, all of which a caller needs to read the files. Default: none are needed.
    scopes: Collection[str]
    #: What callers without the scopes find: "refuse" or "hide", as for a resource. Default: "refuse".
    without_scopes: Literal["refuse", "hide"]
    #: Seconds for which clients may cache entries and files; see CacheHint. Default: 0.
    ttl: float | None
    #: "private" or "public": with whom clients may share what they cache. Default: "private".
    scope: CacheScope | None


_TASK = Check(
    lambda value: isinstance(value, bool) or value in ("optional", "required"), 'use True, "optional" or "required"'
)
_TASK_START = one_of("call", "handler")
_WITHOUT_SCOPES = one_of("refuse", "hide")
#: `execution.taskSupport` of a tool by its option `task`.
_TASK_SUPPORT: Mapping[Any, TaskSupport] = {True: "optional", "optional": "optional", "required": "required"}


def task_support(options: Mapping[str, Any]) -> TaskSupport | None:
    """Whether calls of a tool may or must become tasks; None if they never do. Raises DefinitionError."""
    given, start = options.get("task", False), options.get("task_start", "call")
    check_option("task", given, _TASK)
    check_option("task_start", start, _TASK_START)
    if given is False and "task_start" in options:
        raise DefinitionError('task_start= needs task=True or task="required"')
    return _TASK_SUPPORT.get(given)


def check_options(what: str, given: Mapping[str, Any], kind: type) -> None:
    """Raises DefinitionError for an option that doesn't exist, with the most similar one that does."""
    check_names(given, kind.__annotations__, what)


def common_members(signature: Signature, options: Mapping[str, Any]) -> dict[str, Any]:
    """The members that the listings of tools, prompts and resources share. An empty description leaves it out."""
    description = options.get("description")
    return {
        "title": options.get("title"),
        "description": signature.description if description is None else description or None,
        "icons": icons_of(options.get("icons")),
        "meta": options.get("meta"),
    }


def make_item(kind: Feature, name: str, listing: object, options: Mapping[str, Any], view: View | None = None) -> Item:
    """A tool, prompt or resource as visibility rules see it, with the options that all kinds share.

    `view` is what a caller sees of the listing; by default that follows from `visible=`.
    """
    check_option("without_scopes", options.get("without_scopes", "refuse"), _WITHOUT_SCOPES)
    return Item(
        kind,
        name,
        listing,
        tags=options.get("tags", ()),
        view=view or view_of(name, options.get("visible")),
        scopes=options.get("scopes", ()),
        hides=options.get("without_scopes") == "hide" and bool(options.get("scopes")),
    )


def with_name(what: str, name: str | None, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """The options with the name from the decorator's first argument. Raises DefinitionError for a second name."""
    if name is None:
        return options
    if options.get("name") is not None:
        raise DefinitionError(f"{what} has two names, {name!r} and {options['name']!r}: give one")
    return {**options, "name": name}


def check_text(given: object, advice: str) -> None:
    """Raises DefinitionError with the advice for a decorator that was used without its parentheses."""
    if not isinstance(given, str):
        raise DefinitionError(advice)


# ---------------------------------------------------------------- listings

StructT = TypeVar("StructT", bound=msgspec.Struct)
ListingT = TypeVar("ListingT", bound=msgspec.Struct)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S")


def icons_of(icons: Sequence[Icon | str] | None) -> list[Icon] | None:
    """Icons from Icons and URLs. Raises DefinitionError for anything else."""
    if icons is None:
        return None
    if isinstance(icons, str):
        raise DefinitionError(f"icons={shorten(icons)!r} is one string: write icons=[{shorten(icons)!r}]")
    if not isinstance(icons, Iterable):
        raise DefinitionError(f"icons={shorten(repr(icons))} is not a list: write icons=[…], with URLs or Icons")
    return [_icon(icon) for icon in icons]


def _icon(given: object) -> Icon:
    try:
        icon = msgspec.convert({"src": given} if isinstance(given, str) else given, Icon)
    except msgspec.ValidationError as exc:
        raise DefinitionError(f"{shorten(repr(given))} is not an icon: {exc}; write its URL, or an Icon") from None
    if not is_uri(icon.src):
        raise DefinitionError(f"{shorten(repr(icon.src))} is not the URL of an icon: write https://… or data:…")
    return icon


def is_uri(text: str) -> bool:
    """Whether it begins with a URI scheme."""
    return _SCHEME.match(text) is not None


def listed(listing: ListingT, what: str) -> ListingT:
    """The same listing. Raises DefinitionError for values that clients can't read, since the whole list would fail there."""
    try:
        msgspec.convert(simplified(listing), type(listing))
        encode_value(listing)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError, OverflowError) as exc:
        raise DefinitionError(f"{what}: {exc}") from None
    return listing


def annotations_of(kind: type[StructT], given: Mapping[str, Any] | StructT | None, what: str) -> StructT | None:
    """A struct, or a dict with its Python or protocol names, as a struct. Raises DefinitionError for anything else."""
    if given is None or isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise DefinitionError(f"{what}: annotations: give a dict, or {kind.__name__}, not {shorten(repr(given))}")
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    members = {names.get(name, name): value for name, value in given.items()}
    unknown = members.keys() - names.values()
    if unknown:
        name = min(unknown)
        near = similar(name, names)
        hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names)}"
        raise DefinitionError(f"{what}: annotations: there is no {shorten(repr(name))}: {hint}")
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as exc:
        raise DefinitionError(f"{what}: annotations: {exc}") from None
