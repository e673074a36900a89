"""The names that the server of a command line lists, for completion.

A key press must not have effects that the line doesn't ask for. So a server is asked only if it is an address, or a Python
file on the line that imports Gemel, for a short time. Other programs are not started: for them, and for the servers of a
configuration, a contract that `gemel lock` saved is read, if there is one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gemel.cli.completion.words import Candidate
from gemel.cli.connect import CONFIGURED, client_for
from gemel.cli.program.load import split_target
from gemel.cli.values import parse_strings
from gemel.client.client import Client
from gemel.client.targets import is_address
from gemel.errors import GemelError
from gemel.schema.methods import BY_SECTION, Section

#: Seconds that the server has to start and answer.
_LIMIT = 5.0
#: The lists in which the names of an argument stand, by command and argument.
_LISTS: Mapping[tuple[str, str], tuple[Section, ...]] = {
    ("call", "name"): ("tools",),
    ("call", "arguments"): ("tools",),
    ("bench", "name"): ("tools",),
    ("bench", "arguments"): ("tools",),
    ("prompt", "name"): ("prompts",),
    ("prompt", "arguments"): ("prompts",),
    ("read", "name"): ("resources",),
    ("listen", "uris"): ("resources",),
    ("complete", "name"): ("prompts", "resourceTemplates"),
    ("complete", "argument"): ("prompts", "resourceTemplates"),
    ("complete", "prefix"): (),
}


def listed_names(command: str, argument: str, options: argparse.Namespace, current: str) -> list[Candidate]:
    """Return what an argument of a command may be.

    Args:
        command: The name of the command.
        argument: The name of the argument, as the parser calls it.
        options: The parsed command line.
        current: What was typed of the argument.
    """
    if argument == "target":
        return list(_configured(current))
    lists = _LISTS.get((command, argument))
    if lists is None:
        return []
    if _may_ask(options.target):
        with contextlib.suppress(GemelError, TimeoutError, OSError):
            return asyncio.run(_ask(argument, options, current, lists))
        return []
    return list(_names(argument, options, current, _saved(options.target)))


def _configured(target: str) -> Iterator[Candidate]:
    """Yield the servers of a configuration, behind `CONFIG.json:`."""
    path, colon, _ = target.rpartition(":")
    if colon and CONFIGURED.fullmatch(path):
        from gemel.client.group.config import read_config

        yield from (Candidate(f"{path}:{name}") for name in read_config(path))


# ---------------------------------------------------------------- definitions


def _may_ask(target: str) -> bool:
    """Return whether a server may be asked: an address, or a Python file that imports Gemel."""
    if is_address(target):
        return True
    place, _ = split_target(target)
    if not place.endswith(".py"):
        return False
    try:
        text = Path(place).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return False
    return re.search(r"^\s*(from|import)\s+gemel\b", text, re.MULTILINE) is not None


async def _ask(argument: str, options: argparse.Namespace, current: str, lists: tuple[Section, ...]) -> list[Candidate]:
    from gemel.cli.commands.list import fetch_lists

    options.no_login = True
    async with asyncio.timeout(_LIMIT), client_for(options, show=lambda line: None, lock=None) as client:
        entries = await fetch_lists(client, lists)
        definitions: dict[Section, list[dict[str, Any]]] = {
            name: msgspec.to_builtins(items) for name, items in entries.items()
        }
        key, equals, value = current.partition("=")
        if argument == "prefix":
            return await _complete(client, options.name, options.argument, value=current, context={})
        if "prompts" in lists and argument == "arguments" and equals:
            context = parse_strings([word for word in options.arguments if word != current])
            words = await _complete(client, options.name, key, value=value, context=context)
            return [Candidate(f"{key}={word}") for word, _ in words]
        return list(_names(argument, options, current, definitions))


async def _complete(
    client: Client, name: str, argument: str, *, value: str, context: dict[str, str]
) -> list[Candidate]:
    if client.server_capabilities.completions is None:
        return []
    is_template = "{" in name or "://" in name
    prompt, resource = (None, name) if is_template else (name, None)
    completion = await client.complete(
        argument=argument, value=value, prompt=prompt, resource=resource, given=context or None
    )
    return [Candidate(word) for word in completion.values]


def _saved(target: str) -> dict[Section, list[dict[str, Any]]]:
    """Return the definitions of a saved contract: the one that a configuration names, or gemel.lock for a program."""
    from gemel.client.group.config import pick, read_config
    from gemel.contracts.lock_file import is_lock, read_lock

    path: str | None = "gemel.lock"
    if (entry := CONFIGURED.fullmatch(target)) is not None:
        path = pick(read_config(entry["path"]), entry["name"]).lock
    if path is None or not is_lock(path):
        return {}
    contract = read_lock(path)
    return {
        name: [{**definition, of.key: key} for key, definition in (contract.section(name) or {}).items()]
        for name, of in BY_SECTION.items()
    }


# ---------------------------------------------------------------- names


def _names(
    argument: str, options: argparse.Namespace, current: str, lists: Mapping[Section, list[dict[str, Any]]]
) -> Iterator[Candidate]:
    """Yield the names in lists of definitions, or the arguments of the definition that the command line names."""
    for name, entries in lists.items():
        for definition in entries:
            word = definition[BY_SECTION[name].key]
            if argument in ("name", "uris"):
                yield Candidate(word, definition.get("description") or "")
            elif word == options.name:
                keys = _argument_keys(definition)
                if argument == "argument":
                    yield from keys
                else:
                    yield from _typed_arguments(definition, keys, options.arguments, current)


def _argument_keys(definition: Mapping[str, Any]) -> list[Candidate]:
    """Return the arguments of a tool, a prompt or a resource template."""
    if "uriTemplate" in definition:
        groups = re.findall(r"\{[+#./;?&]?([^{}]+)\}", definition["uriTemplate"])
        return [Candidate(name.partition(":")[0].rstrip("*")) for group in groups for name in group.split(",")]
    if "inputSchema" in definition:
        properties = definition["inputSchema"].get("properties") or {}
        return [Candidate(key, schema.get("description") or "") for key, schema in properties.items()]
    return [Candidate(item["name"], item.get("description") or "") for item in definition.get("arguments") or ()]


def _typed_arguments(
    definition: Mapping[str, Any], keys: Iterable[Candidate], words: Iterable[str], current: str
) -> Iterator[Candidate]:
    """Yield `key=` for the arguments that are missing; behind `key=` the choices."""
    key, equals, _ = current.partition("=")
    if equals:
        schema = (definition.get("inputSchema") or {}).get("properties", {}).get(key.removesuffix(":"), {})
        for choice in _choices(schema):
            encoded = choice if isinstance(choice, str) else msgspec.json.encode(choice).decode()
            yield Candidate(f"{key}={encoded}")
        return
    used = {word.partition("=")[0].removesuffix(":") for word in words if word != current}
    yield from (Candidate(f"{name}=", meaning) for name, meaning in keys if name not in used)


def _choices(schema: object) -> list[Any]:
    if not isinstance(schema, dict):
        return []
    if isinstance(schema.get("enum"), list):
        return list(schema["enum"])
    if schema.get("type") == "boolean":
        return [True, False]
    options = [*(schema.get("anyOf") or ()), schema.get("items")]
    return [choice for option in options for choice in _choices(option)]
