"""The names of tools and prompts of several servers in one list, and names that models take.

A name that only one server has is kept. One that several servers have is written `server_name` for each of them, and with a
digest if that is taken, too. The same servers with the same names always give the same names, in whatever order they come, and
no server can take over a name of another one.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias, TypeVar

#: When the name of the server is put in front: if several servers have the name, or always.
Prefixing: TypeAlias = Literal["collision", "always"]
KeyT = TypeVar("KeyT", bound=Hashable)

#: The names that the interfaces of models take.
_FOR_MODELS = re.compile(r"[A-Za-z0-9_-]{1,64}")
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
#: The end of a name that was changed.
CHANGED = re.compile(r"_[0-9a-f]{8,}$")
#: Marks that are separated from their letters by NFKD.
_MARKS = re.compile(r"[\u0300-\u036f]")
_LONGEST = 64
_LONGEST_PREFIX = 40
#: Characters of a digest in a name.
_DIGEST, _PREFIX_DIGEST = 8, 6


class NameOrigin(NamedTuple):
    """The origin of a merged name: the server, and the name that it uses."""

    server: str
    name: str


def prefixes_of(servers: Iterable[str]) -> dict[str, str]:
    """Make a prefix of the name of each server.

    A prefix is a letter and then letters, digits, `_` and `-`. No two are equal or begin like another one with `_` behind it, also
    where case and the difference between `_` and `-` don't count, as in the scheme of a URI.

    Args:
        servers: The names; any text.

    Returns:
        The prefixes by name.
    """
    wanted = {server: _prefix(server) for server in servers}
    alike: dict[str, list[str]] = {}
    for server, prefix in wanted.items():
        alike.setdefault(_comparable(prefix), []).append(server)
    prefixes = {}
    for server, prefix in wanted.items():
        same = alike[_comparable(prefix)]
        if len(same) > 1 and [name for name in same if wanted[name] == name] != [server]:
            prefix = f"{_comparable(prefix)[: _LONGEST_PREFIX - _PREFIX_DIGEST - 1]}-{_digest(server)[:_PREFIX_DIGEST]}"
        elif any(prefix.startswith(f"{other}_") for other in wanted.values()):
            prefix = prefix.replace("_", "-")
        prefixes[server] = prefix
    return prefixes


def _prefix(server: str) -> str:
    """The name with other characters replaced; those without a letter or too long have a digest."""
    plain = _MARKS.sub("", unicodedata.normalize("NFKD", server))
    text = _UNFIT.sub("_", plain).strip("_-")
    if not text:
        return f"server-{_digest(server)[:_PREFIX_DIGEST]}"
    if not text[0].isalpha():
        text = f"server-{text}"
    if len(text) > _LONGEST_PREFIX:
        return f"{text[: _LONGEST_PREFIX - _PREFIX_DIGEST - 1]}-{_digest(server)[:_PREFIX_DIGEST]}"
    return text


def _comparable(prefix: str) -> str:
    return prefix.lower().replace("_", "-")


def name_for_models(name: str) -> str:
    """Get the name that models take for any name: the same one if possible, otherwise a short one with a digest of it."""
    if _FOR_MODELS.fullmatch(name):
        return name
    return _with_digest(_UNFIT.sub("_", name), name, _DIGEST)


def names_for_models(names: Iterable[str]) -> dict[str, str]:
    """Get the names that models take for the names of one list, by name. No two are equal."""
    wanted = {name: name_for_models(name) for name in names}
    return _distinct(wanted, {name for name, short in wanted.items() if name == short}, str)


def merge_names(
    listings: Mapping[str, Iterable[str]],
    prefixing: Prefixing = "collision",
    *,
    prefixes: Mapping[str, str] | None = None,
    fit: Callable[[str], str] = str,
) -> dict[str, NameOrigin]:
    """Merge the names of several servers.

    Args:
        listings: The names by server.
        prefixing: When the name of the server is put in front.
        prefixes: The prefixes by server; by default those of the servers that list.
        fit: Changes a name that can't be used: `name_for_models`.

    Returns:
        The origins by merged name, in the order of the servers and of their lists.
    """
    prefixes = prefixes_of(listings) if prefixes is None else prefixes
    origins = [NameOrigin(server, name) for server, names in listings.items() for name in dict.fromkeys(names)]
    plain = {origin: fit(origin.name) for origin in origins}
    count = Counter(plain.values())
    alone = {origin for origin in origins if count[plain[origin]] == 1 and prefixing == "collision"}
    wanted = {
        origin: plain[origin] if origin in alone else fit(f"{prefixes[origin.server]}_{origin.name}")
        for origin in origins
    }
    merged = _distinct(wanted, alone, "\0".join)
    return {merged[origin]: origin for origin in origins}


def _distinct(wanted: Mapping[KeyT, str], owners: Collection[KeyT], text: Callable[[KeyT], str]) -> dict[KeyT, str]:
    """The wanted names. Of those that share one, its owner keeps it, and the others have a digest of their own text behind it."""
    sharing: dict[str, list[KeyT]] = {}
    for key, name in wanted.items():
        sharing.setdefault(name, []).append(key)
    distinct: dict[KeyT, str] = {}
    for name, keys in sharing.items():
        keeping = keys if len(keys) == 1 else [key for key in keys if key in owners]
        distinct.update(dict.fromkeys(keeping[:1], name))
    taken = set(distinct.values())
    for key in sorted(wanted.keys() - distinct.keys(), key=text):
        length = _DIGEST
        while (unique := _with_digest(wanted[key], text(key), length)) in taken:
            length += 1
        distinct[key] = unique
        taken.add(unique)
    return distinct


def _with_digest(name: str, text: str, length: int) -> str:
    return f"{name[: _LONGEST - length - 1]}_{_digest(text)[:length]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
