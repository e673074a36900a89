"""What tools, prompts and resources share when a function is registered and when it returns something."""

from __future__ import annotations

import datetime
import difflib
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from hinge.errors import DefinitionError, shorten
from hinge.schema.base import Icon

SaidT = TypeVar("SaidT", bound=msgspec.Struct)
ListedT = TypeVar("ListedT", bound=msgspec.Struct)

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:\S")
#: What would pass for a text when it is written.
_SPECIAL = (
    bytes,
    bytearray,
    memoryview,
    datetime.datetime,
    datetime.date,
    datetime.time,
    datetime.timedelta,
    uuid.UUID,
)


def icons_of(icons: Sequence[Icon | str] | None) -> list[Icon] | None:
    """Icons as given: an Icon, or just its address. Raises DefinitionError for anything else."""
    if icons is None:
        return None
    if isinstance(icons, str):
        raise DefinitionError(f"icons={shorten(icons)!r} is one text: write icons=[{shorten(icons)!r}]")
    if not isinstance(icons, Iterable):
        raise DefinitionError(f"icons={shorten(repr(icons))} is no list: write icons=[…], with addresses or Icons")
    return [_icon(icon) for icon in icons]


def _icon(given: Any) -> Icon:
    try:
        icon = msgspec.convert({"src": given} if isinstance(given, str) else given, Icon)
    except msgspec.ValidationError as exc:
        raise DefinitionError(f"{shorten(repr(given))} is no icon: {exc}; write its address, or an Icon") from None
    if not is_uri(icon.src):
        raise DefinitionError(f"{shorten(repr(icon.src))} is no address of an icon: write https://… or data:…")
    return icon


def is_uri(text: str) -> bool:
    """Whether it begins like a URI, with its scheme."""
    return _SCHEME.match(text) is not None


def listed(listing: ListedT, what: str) -> ListedT:
    """A listing as it is. Raises DefinitionError where a value is none that clients can read: all that is listed with it
    would be lost to them."""
    try:
        msgspec.convert(msgspec.to_builtins(listing, builtin_types=_SPECIAL, str_keys=True), type(listing))
        msgspec.json.encode(listing)
    except (msgspec.ValidationError, TypeError, ValueError, RecursionError, OverflowError) as exc:
        raise DefinitionError(f"{what}: {exc}") from None
    return listing


def annotations_of(kind: type[SaidT], given: Mapping[str, Any] | SaidT | None, what: str) -> SaidT | None:
    """A struct that an author gave as a dict, by Python's names or the protocol's. Raises DefinitionError, also for others."""
    if given is None or isinstance(given, kind):
        return given
    if not isinstance(given, Mapping):
        raise DefinitionError(f"{what}: annotations: give a dict, or {kind.__name__}, not {shorten(repr(given))}")
    names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
    members = {names.get(name, name): value for name, value in given.items()}
    unknown = members.keys() - names.values()
    if unknown:
        name = min(unknown)
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
        raise DefinitionError(f"{what}: annotations: there is no {shorten(repr(name))}: {hint}")
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as exc:
        raise DefinitionError(f"{what}: annotations: {exc}") from None
