"""What differs between the lists of two servers, by meaning: what a client may send, and what it reads."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gemel.schema.base import RESERVED
from gemel.values.schemas import naive_form

#: Each list with what its entries are called, and the field that tells them apart.
_LISTS = {
    "tools": ("tool", "name"),
    "prompts": ("prompt", "name"),
    "resources": ("resource", "uri"),
    "templates": ("template", "uriTemplate"),
}
#: Capabilities that say more than that a list is there and that it may change.
_CAPABILITIES = ("completions",)
#: Keywords that say nothing about which values are valid.
_IGNORED = frozenset(
    {"title", "$schema", "$defs", "definitions", "x-fastmcp-wrap-result", "x-gemel-wrap-result", "examples"}
)
#: Sections of docstrings that schemas express, and whose words can be missing in a description.
_SECTIONS = re.compile(r"^\s*(args|arguments|parameters|params|returns?|raises|yields)\s*:?\s*$", re.IGNORECASE)
#: Formats that Gemel lists for what is read, but not for what is sent, which can lack a time zone or have a sign.
_MOMENTS = frozenset({"date-time", "time", "duration"})
_BLOCKS = frozenset({"text", "image", "audio", "resource", "resource_link"})
#: The URI of the page of prefab, which FastMCP writes with a digest of its options.
_PREFAB = re.compile(r"ui://prefab/renderer/\w+/")
#: What a client does with a page, and with a tool that has one (MCP Apps).
_PAGE_OPTIONS = ("csp", "permissions", "domain", "prefersBorder")
_WILDCARD = re.compile(r"\{(\w+)\*\}")

Lists = Mapping[str, Any]


def count(lists: Lists) -> str:
    """Say how many entries a server lists: `27 tools, 1 prompt`."""
    counted = [(len(lists[key]), word) for key, (word, _) in _LISTS.items() if lists[key]]
    counted += [(len(found), "extension") for found in (_extensions(lists),) if found]
    return ", ".join(f"{number} {word if number == 1 else f'{word}s'}" for number, word in counted) or "nothing"


def lists_something(lists: Lists) -> bool:
    """Whether any list has an entry, or the server has an extension of its own."""
    return any(lists[key] for key in _LISTS) or bool(_extensions(lists))


def text_schemas_left_out(old: Lists, new: Lists) -> int:
    """Return how many tools with text results list an output schema in the original only."""
    there = {tool["name"]: tool for tool in new["tools"]}
    return sum(
        _is_text_schema(tool.get("outputSchema")) and not there.get(tool["name"], {}).get("outputSchema")
        for tool in old["tools"]
    )


def results_unwrapped(old: Lists, new: Lists) -> int:
    """Return how many tools have their results in a field `result` in the original only."""
    there = {tool["name"]: tool for tool in new["tools"]}
    return sum(
        _value_in_result(tool.get("outputSchema"), there.get(tool["name"], {}).get("outputSchema")) is not None
        for tool in old["tools"]
    )


def formats_left_out(old: Lists, new: Lists) -> int:
    """Return how many tools list a format of times or durations in results in the original only."""
    there = {tool["name"]: tool for tool in new["tools"]}
    return sum(
        _moments(tool.get("outputSchema")) > _moments(there.get(tool["name"], {}).get("outputSchema")) > -1
        for tool in old["tools"]
    )


def words_moved(old: Lists, new: Lists) -> int:
    """Return how many tools have the words of their docstrings distributed otherwise over the descriptions."""
    there = {tool["name"]: tool for tool in new["tools"]}
    return sum(_has_words_moved(tool, there.get(tool["name"], {})) for tool in old["tools"])


def differences(old: Lists, new: Lists) -> Iterator[str]:
    """Yield what differs, each in one line."""
    for key, (word, field) in _LISTS.items():
        before = {_identity(entry, field): entry for entry in old[key]}
        after = {_identity(entry, field): entry for entry in new[key]}
        yield from (f"{word} {name} is missing" for name in before if name not in after)
        yield from (f"{word} {name} was not there before" for name in after if name not in before)
        for name, entry in before.items():
            if name in after:
                yield from (f"{word} {name}: {text}" for text in _entry(key, entry, after[name]))
    if (old["instructions"] or "").split() != (new["instructions"] or "").split():
        yield "the instructions differ"
    before, after = _extensions(old), _extensions(new)
    yield from (f"the extension {name} is missing" for name in before if name not in after)
    yield from (f"the extension {name} was not there before" for name in after if name not in before)
    yield from (
        f"the settings of the extension {name} differ"
        for name in before
        if before[name] != after.get(name, before[name])
    )
    for name in _CAPABILITIES:
        if (name in old["capabilities"]) != (name in new["capabilities"]):
            yield f"the capability {name} {'is missing' if name in old['capabilities'] else 'was not there before'}"


def _extensions(lists: Lists) -> dict[str, Any]:
    """The extensions that a program adds itself. What those of the protocol add is in the lists."""
    extensions = lists["capabilities"].get("extensions") or {}
    return {name: settings for name, settings in extensions.items() if not name.startswith(RESERVED)}


def _identity(entry: Mapping[str, Any], field: str) -> str:
    text = _PREFAB.sub("ui://prefab/", _WILDCARD.sub(r"{+\1}", str(entry[field])))
    return text.removeprefix("resource://")  # Gemel's for a URI without a scheme


def _entry(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    moved = key == "tools" and _has_words_moved(old, new)
    if not moved and not _same_description(old.get("description") or "", new.get("description") or ""):
        yield "the description differs"
    if key == "tools":
        found = _schemas("inputSchema", old["inputSchema"], new["inputSchema"])
        yield from (text for text in found if not (moved and text.endswith(".description differs")))
        before, after = old.get("outputSchema"), new.get("outputSchema")
        if before and after:
            before = _value_in_result(before, after) or before
            yield from _schemas("outputSchema", _without_moments(before), _without_moments(after))
        elif before and not _is_text_schema(before):
            yield "it has no outputSchema"
        elif after and set(_plain(after, after, ())) - {"type", "description"}:
            yield "it had no outputSchema before"
        if _tasks(old) != _tasks(new):
            yield f"execution.taskSupport was {_tasks(old)}, is {_tasks(new)}"
        for name, value in _hints(old).items():
            if _hints(new).get(name) != value:
                yield f"annotations: {name} was {json.dumps(value)}, is {json.dumps(_hints(new).get(name))}"
        if _shown(old) != _shown(new):
            yield f"_meta.ui was {json.dumps(_shown(old))}, is {json.dumps(_shown(new))}"
    elif key == "prompts":
        yield from _arguments(old.get("arguments") or (), new.get("arguments") or ())
    else:
        if _mime_type(old) != _mime_type(new):
            yield f"mimeType was {_mime_type(old)}, is {_mime_type(new)}"
        if _page(old) != _page(new):
            yield f"_meta.ui was {_short(_page(old))}, is {_short(_page(new))}"


def _ui(entry: Mapping[str, Any]) -> dict[str, Any]:
    ui = (entry.get("_meta") or {}).get("ui")
    return ui if isinstance(ui, dict) else {}


def _shown(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The page of a tool, and who may call it, which is both by default."""
    audience = sorted(_ui(tool).get("visibility") or ("app", "model"))
    return {"page": _PREFAB.sub("ui://prefab/", str(_ui(tool).get("resourceUri") or "")), "audience": audience}


def _page(resource: Mapping[str, Any]) -> dict[str, Any]:
    """What a page may use, and how it is shown."""
    options = {name: _ui(resource)[name] for name in _PAGE_OPTIONS if _ui(resource).get(name)}
    csp = {key: sorted(domains) for key, domains in options.get("csp", {}).items() if domains}
    return {**options, **({"csp": csp} if csp else {})}


def _arguments(old: Sequence[Mapping[str, Any]], new: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    before = {argument["name"]: bool(argument.get("required")) for argument in old}
    after = {argument["name"]: bool(argument.get("required")) for argument in new}
    for name, required in before.items():
        if name not in after:
            yield f"argument {name} is missing"
        elif after[name] != required:
            yield f"argument {name} is {'required' if after[name] else 'optional'} now"
    yield from (f"argument {name} was not there before" for name in after if name not in before)


def _mime_type(entry: Mapping[str, Any]) -> str:
    return str(entry.get("mimeType") or "text/plain")


def _tasks(tool: Mapping[str, Any]) -> str:
    return str((tool.get("execution") or {}).get("taskSupport") or "forbidden")


def _hints(tool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (tool.get("annotations") or {}).items() if name != "title"}


def _same_description(old: str, new: str) -> bool:
    """Whether the words are the same, apart from sections about parameters and results, which can stand in their schemas."""
    return old.split() == new.split() or _without_sections(old) == _without_sections(new)


def _has_words_moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether two tools have the same words in all, some in another description: readers differ in where a section ends."""
    before, after = list(_descriptions(old)), list(_descriptions(new))
    return before != after and Counter(word for text in before for word in text) == Counter(
        word for text in after for word in text
    )


def _descriptions(tool: Mapping[str, Any]) -> Iterator[list[str]]:
    """The words of the description, and of those of the parameters."""
    yield str(tool.get("description") or "").split()
    for _, schema in sorted(((tool.get("inputSchema") or {}).get("properties") or {}).items()):
        yield str(schema.get("description") or "").split() if isinstance(schema, dict) else []


def _without_sections(text: str) -> list[str]:
    words: list[str] = []
    skipped: int | None = None
    for line in text.expandtabs().splitlines():
        indent = len(line) - len(line.lstrip())
        if _SECTIONS.match(line):
            skipped = indent
        elif skipped is None or (line.strip() and indent <= skipped):
            skipped = None
            words += line.split()
    return words


def _is_text_schema(schema: object) -> bool:
    """Whether the original's library made this output schema of `-> str`, of a content block, or of a list of them."""
    if not isinstance(schema, dict):
        return False
    plain = _plain(schema, schema, ())
    properties = plain.get("properties") or {}
    if list(properties) == ["result"]:
        options = properties["result"].get("anyOf", [properties["result"]])
        return all(option.get("type") in ("string", "null") or _is_block(option) for option in options)
    return _is_block(plain)


def _value_in_result(old: object, new: object) -> Any:
    """The schema of what the original has in a field `result`, and the new server has not; or None.

    Version 1 of the official SDK does so with objects, and version 2 with other values also in the revision 2026-07-28, which does
    not need it.
    """
    if not isinstance(old, dict) or not isinstance(new, dict) or "result" in (new.get("properties") or ()):
        return None
    if list(old.get("properties") or ()) != ["result"]:
        return None
    return {**old["properties"]["result"], "$defs": old.get("$defs", {})}


def _moments(schema: object) -> int:
    """How many formats of times and durations a schema lists; -1 if there is no schema."""
    if schema is None:
        return -1
    text = json.dumps(schema)
    return sum(text.count(f'"format": "{form}"') for form in _MOMENTS)


def _without_moments(schema: object) -> Any:
    """An output schema without formats of times and durations, the patterns in their place, and the format of a decimal."""
    if isinstance(schema, list):
        return [_without_moments(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    left = {key: _without_moments(inner) for key, inner in schema.items()}
    if schema.get("type") == "string":
        if schema.get("format") in (*_MOMENTS, "decimal"):
            del left["format"]
        if isinstance(schema.get("pattern"), str) and naive_form(schema["pattern"]) is not None:
            del left["pattern"]
    return left


def _is_block(schema: Mapping[str, Any]) -> bool:
    """Whether this is the schema of a content block, or of a list of content blocks."""
    if "anyOf" in schema:
        return all(map(_is_block, schema["anyOf"]))
    if schema.get("items"):
        return _is_block(schema["items"])
    kind = (schema.get("properties") or {}).get("type") or {}
    return bool(kind.get("enum")) and set(kind["enum"]) <= _BLOCKS


def _schemas(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    yield from _compare(where, _plain(old, old, ()), _plain(new, new, ()))


def _compare(where: str, old: object, new: object) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            path = f"{where}.{key}"
            if key == "description" and isinstance(old.get(key, ""), str) and isinstance(new.get(key, ""), str):
                if key in old and old[key].split() != new.get(key, "").split():
                    yield f"{path} differs"
            elif key not in new:
                yield f"{path} is missing"
            elif key not in old:
                yield f"{path} was not there before"
            else:
                yield from _compare(path, old[key], new[key])
    elif old != new:
        yield f"{where} was {_short(old)}, is {_short(new)}"


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 80 else text[:77] + "..."


def _plain(schema: object, root: Mapping[str, Any], seen: tuple[str, ...]) -> Any:
    """A schema without references and without what two schemas of the same meaning may differ in."""
    if not isinstance(schema, dict):
        return schema
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        if reference in seen:
            return {"$ref": "above"}
        target: Any = root
        for part in reference.split("/")[1:]:
            target = target.get(part.replace("~1", "/").replace("~0", "~"), {})
        rest = {key: value for key, value in schema.items() if key != "$ref"}
        return _plain({**target, **rest}, root, (*seen, reference))
    plain: dict[str, Any] = {key: value for key, value in schema.items() if key not in _IGNORED}
    if "x-fastmcp-wrap-result" in schema:
        plain.pop("description", None)  # of the wrapper
    if isinstance(plain.get("type"), list):
        plain["anyOf"] = [{"type": kind} for kind in plain.pop("type")]
    if "const" in plain:
        plain["enum"] = [plain.pop("const")]
    if "enum" in plain:
        plain["enum"] = sorted(plain["enum"], key=json.dumps)
        plain.pop("type", None)
    for key in ("oneOf", "anyOf"):
        if key in plain:
            options = [_plain(option, root, seen) for option in plain.pop(key)]
            if len(options) == 1:
                plain = {**options[0], **plain}
            else:
                plain["anyOf"] = sorted(options, key=lambda option: json.dumps(option, sort_keys=True))
    plain.pop("discriminator", None)
    if len(plain.get("allOf", ())) == 1:
        plain = {**_plain(plain.pop("allOf")[0], root, seen), **plain}
    required = set(plain.pop("required", ()))
    if "properties" in plain:
        properties = plain.pop("properties")
        if properties:
            plain["properties"] = {
                name: _plain(value, root, seen) if name in required else _optional(_plain(value, root, seen))
                for name, value in properties.items()
            }
    if required:
        plain["required"] = sorted(required)
    for key in ("additionalProperties", "items"):
        if isinstance(plain.get(key), dict):
            plain[key] = _plain(plain[key], root, seen)
        if plain.get(key) in (True, False, {}):
            plain.pop(key, None)
    return plain


def _optional(schema: object) -> Any:
    """A property that may be left out: whether null stands for that is the same."""
    if not isinstance(schema, dict):
        return schema
    options = [option for option in schema.get("anyOf", ()) if option != {"type": "null"}]
    kept = {key: value for key, value in schema.items() if key != "default" or value is not None}
    if len(options) == 1:
        kept.pop("anyOf")
        return {**options[0], **kept}
    return {**kept, "anyOf": options} if options else kept
