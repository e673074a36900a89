"""The pages of the API reference as Markdown, made from the public names and their docstrings (griffe reads these).

    pages()  # {"server.md": "# Server …", …}

Which names are public, their signatures and inherited members come from `tools.public_api`; options from the TypedDicts.
"""

from __future__ import annotations

import inspect
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any, NamedTuple

import griffe

from gemel.options import Option
from gemel.schema.revisions import LATEST
from tools.print_docs import comments, default_text
from tools.public_api import PublicName, annotation_text, describe, is_ours, public_names


class Page(NamedTuple):
    """A page of the reference."""

    title: str
    #: What the page is about, in a sentence.
    summary: str
    #: What is defined in a module that begins with one of these stands on the page; the longest name wins.
    modules: tuple[str, ...]
    #: The names that open the page, the most important first. The others follow by the alphabet.
    first: tuple[str, ...]


#: The pages in the order of the navigation. Other modules share a page for each package.
PAGES: dict[str, Page] = {
    "server.md": Page(
        "Server",
        "Defining and running servers.",
        ("gemel.server", "gemel.server.server"),
        ("Server", "Router"),
    ),
    "features.md": Page(
        "Tools, resources, prompts",
        "What functions return, and the options of what a server offers.",
        ("gemel.server.features", "gemel.server.composition", "gemel.item_tools"),
        ("Message", "Image", "Audio", "File", "Caller", "CacheHint"),
    ),
    "context.md": Page(
        "Context",
        "What a handler can do while it serves a request.",
        (
            "gemel.server.context",
            "gemel.server.elicitation",
            "gemel.server.injection",
            "gemel.server.log_to_client",
            "gemel.server.session_state",
        ),
        ("Context", "current_context", "Depends", "Ask", "Titled", "Declined"),
    ),
    "middleware.md": Page(
        "Middleware",
        "What wraps the requests of a server.",
        ("gemel.server.middleware", "gemel.server.dispatch"),
        ("Middleware", "CallNext", "AccessLog", "RateLimit", "ResultLimit"),
    ),
    "extensions.md": Page(
        "Extensions",
        "Extensions of the protocol, and MCP Apps.",
        ("gemel.server.extensions", "gemel.extensions", "gemel.client.extensions"),
        ("Extension", "ClientExtension", "Method", "ClientMethod", "SentMethod", "Apps", "Tasks", "TasksClient"),
    ),
    "client.md": Page(
        "Client",
        "Connecting to servers and calling them.",
        ("gemel.client",),
        ("Client", "ClientPool", "Subscription"),
    ),
    "groups.md": Page("Client groups", "Several servers used as one.", ("gemel.client.group",), ("ClientGroup",)),
    "terminal.md": Page(
        "Terminal", "A person at a terminal answers what servers ask.", ("gemel.client.terminal",), ("Terminal",)
    ),
    "sync.md": Page(
        "Without async",
        "The same client as blocking calls.",
        ("gemel.sync",),
        ("Client", "ClientGroup", "Subscription"),
    ),
    "errors.md": Page(
        "Errors",
        "Every error that can be caught.",
        ("gemel.errors",),
        ("GemelError", "ToolError", "ProtocolError", "CallError", "Outcome", "DefinitionError", "StartError"),
    ),
    "types.md": Page(
        "Types of the protocol",
        "Messages and their parts, in the shape of the newest revision.",
        ("gemel.schema",),
        ("CallToolResult", "ContentBlock", "TextContent", "Tool", "Resource", "Prompt"),
    ),
    "settings.md": Page(
        "Limits and changes", "Settings and values that servers and clients share.", ("gemel.protocol",), ("Limits",)
    ),
    "contracts.md": Page(
        "Contracts", "What a server offers, as a lock file.", ("gemel.contracts",), ("Contract", "fetch_contract")
    ),
    "code.md": Page(
        "Code mode", "Few tools in place of many, and scripts that call them.", ("gemel.code",), ("CodeMode",)
    ),
    "policies.md": Page(
        "Policies", "Rules about calls of tools.", ("gemel.policies", "gemel.decisions"), ("Policy", "PolicyRequest")
    ),
    "receipts.md": Page("Receipts", "A line for each tool call that ended.", ("gemel.receipts",), ("Receipts",)),
    "transports.md": Page(
        "Transports",
        "Base classes and types for transports of your own.",
        ("gemel.transports",),
        ("Transport", "Channel", "DuplexChannel"),
    ),
    "ask_by_page.md": Page(
        "Asking by page", "Questions on web pages, for clients without forms.", ("gemel.ask_by_page",), ("AskByPage",)
    ),
    "testing.md": Page(
        "Testing",
        "Helpers for tests of servers and clients.",
        ("gemel.testing",),
        ("memory_pair", "both_eras", "in_both_eras", "Recording", "ScriptedPeer", "WireLog"),
    ),
    "auth.md": Page(
        "Authorization",
        "Who may call a server, and how clients log in.",
        ("gemel.auth",),
        ("JWTAuth", "OAuthProxy", "OAuth"),
    ),
    "backends.md": Page(
        "Backends",
        "Where the processes of a server keep what they share.",
        ("gemel.backends",),
        ("Backend", "backend_for", "MemoryBackend", "SqliteBackend", "RedisBackend"),
    ),
}
_UNPACK = re.compile(r"Unpack\[(?:\w+\.)*(\w+)\]")
_WIDTH = 96
#: A page with more headings than this begins with an overview.
_SHORT = 10
#: Kinds of members that stand in a table, without a heading.
_IN_TABLE = ("attribute", "member")
#: Where the specification is published. A docstring names a page by its path, and a revision if the newest hasn't it.
_SPECIFICATION = "https://modelcontextprotocol.io/specification"
_CITATIONS = re.compile(r"^Specification: .+?(?=\n\n|\Z)", re.DOTALL | re.MULTILINE)
_CITED = re.compile(
    r"(?P<url>https://[\w./#-]*[\w/])|RFC (?P<rfc>\d+)|(?P<page>[a-z]+(?:/[a-z_-]+)+)(?: of (?P<revision>\d{4}-\d\d-\d\d))?"
    r'(?P<sections>(?:(?:, | and )"[^"]+")*)'
)


@cache
def pages() -> Mapping[str, str]:
    """Each page of the reference by its file name."""
    found: dict[str, list[PublicName]] = {}
    members: dict[str, list[PublicName]] = {}
    for one in public_names():
        if one.owner is None:
            found.setdefault(page_of(one), []).append(one)
        else:
            members.setdefault(one.path.rpartition(".")[0], []).append(one)
    return {name: _page(name, found[name], members) for name in sorted(found, key=_order)}


def _page(name: str, tops: list[PublicName], members: Mapping[str, list[PublicName]]) -> str:
    first = PAGES[name].first if name in PAGES else ()
    named = {top.path.rpartition(".")[2]: top for top in tops}
    opening = [named[one] for one in first]
    tops = opening + [top for top in tops if top not in opening]
    headings = sum(1 + len(_methods(members.get(top.path, []))) for top in tops)
    overview = [_overview(tops, members)] if headings > _SHORT else []
    entries = ["\n\n".join(_entry(top, members.get(top.path, []))) for top in tops]
    return "\n\n".join([_head(name), *overview, *entries]) + "\n"


def _overview(tops: list[PublicName], members: Mapping[str, list[PublicName]]) -> str:
    """What stands on a long page: each name with its first sentence, and links to its methods."""
    lines = []
    shown = {id(top.value): top for top in tops}
    for top in tops:
        ancestors = top.value.__mro__[1:] if isinstance(top.value, type) else ()
        base = next((shown[id(one)] for one in ancestors if id(one) in shown), None)
        extends = f" (extends {_link(base)})" if base else ""
        lines.append(f"- {_link(top)}{extends}: {_summary(top.value)}".removesuffix(": "))
        if methods := _methods(members.get(top.path, [])):
            lines.append(f"    - {', '.join(_link(one, one.path.rpartition('.')[2]) for one in methods)}")
    return "\n".join(lines)


def _methods(members: list[PublicName]) -> list[PublicName]:
    """The members with a heading of their own."""
    return [one for one in members if not describe(one).startswith(_IN_TABLE)]


def _link(one: PublicName, text: str = "") -> str:
    return f"[`{text or _short(one.path)}`](#{one.path})"


def _summary(value: Any) -> str:
    """The first sentence of a docstring."""
    text = _joined((inspect.getdoc(_documented(value)) or "").partition("\n\n")[0])
    found = re.match(r".*?\.(?=\s|$)", text)
    return found[0] if found else text


def page_of(top: PublicName) -> str:
    """The page that a public name stands on."""
    home = _home(top)
    near = [(len(prefix), page) for page, row in PAGES.items() for prefix in row.modules if _within(home, prefix)]
    return max(near)[1] if near else f"{home.split('.')[1]}.md"


def _home(top: PublicName) -> str:
    """The module that defines it; for what has none, such as an alias, what the table of lazy imports says."""
    import gemel

    module, _, name = top.path.rpartition(".")
    if module != "gemel":
        return module
    home: str = gemel._HOME.get(name, module)
    return home


def _within(home: str, prefix: str) -> bool:
    return home == prefix or home.startswith(f"{prefix}.")


def _order(page: str) -> tuple[int, str]:
    return (list(PAGES).index(page) if page in PAGES else len(PAGES), page)


def title_of(page: str) -> str:
    """The title of a page."""
    return PAGES[page].title if page in PAGES else page.removesuffix(".md").capitalize()


def _head(page: str) -> str:
    return f"# {title_of(page)}" + (f"\n\n{PAGES[page].summary}" if page in PAGES else "")


# ---------------------------------------------------------------- one name


def _entry(top: PublicName, members: list[PublicName]) -> Iterator[str]:
    yield f"## `{_short(top.path)}` {{ #{top.path} }}"
    yield _code(top)
    yield from _docstring(top.value, _options(top.value))
    own = _attribute_texts(top.value)
    parameters = _parameters(top.value)
    attributes = [one for one in members if describe(one).startswith(_IN_TABLE)]
    rows = []
    for one in attributes:
        name = one.path.rpartition(".")[2]
        kind, said = parameters.get(name, ("", ""))
        kind = describe(one).partition(": ")[2] or describe(one).partition(" = ")[2] or kind
        said = said or own.get(name, "")
        rows.append(f'| <span id="{one.path}"></span>`{name}` | {_cell(f"`{kind}`") if kind else ""} | {_cell(said)} |')
    if rows:
        yield "\n".join(["| attribute | type | |", "|---|---|---|", *rows])
    for one in members:
        if one not in attributes:
            yield f"### `{_short(one.path)}` {{ #{one.path} }}"
            yield _code(one)
            text = own.get(one.path.rpartition(".")[2])
            yield from ([text] if text else _docstring(one.value, _options(one.value)))


def _short(path: str) -> str:
    """Without the module; `testing.Pair` of a module beside the main one."""
    return path.removeprefix("gemel.")


def _code(one: PublicName) -> str:
    """The signature, one parameter a line if it is long."""
    text, name = describe(one), one.path.rpartition(".")[2]
    kind, _, rest = text.partition("(")
    words = kind.split()
    if not words or words[0] not in ("class", "function", "method", "async", "staticmethod", "classmethod", "callable"):
        return f"```python\n{name}: {text}\n```"
    bases = ""
    if words[0] == "class" and ")" in rest and re.match(r"class\([\w, ]+\)", text) and _has_bases(one.value):
        bases, _, rest = rest.partition(")")
        rest = rest.removeprefix("(")
    lead = {"class": "class ", "staticmethod": "@staticmethod\n", "classmethod": "@classmethod\n"}.get(words[0], "")
    define = "" if words[0] in ("class", "callable") else ("async def " if "async" in words else "def ")
    inherits = f"  # a {bases}" if bases else ""
    signature = f"({rest}" if rest else ("()" if define else "")
    return f"```python\n{lead}{define}{name}{_wrapped(signature, len(define + name))}{inherits}\n```"


def _has_bases(value: Any) -> bool:
    return any(base not in (object,) and base.__module__ != "typing" for base in value.__mro__[1:])


def _wrapped(signature: str, before: int) -> str:
    """The signature on one line if it fits, else one parameter a line."""
    if before + len(signature) <= _WIDTH or not signature.startswith("("):
        return signature
    parts, depth, start, quoted = [], 0, 1, ""
    end = len(signature)
    for place, char in enumerate(signature):
        if quoted:
            quoted = "" if char == quoted else quoted
        elif char in "'\"":
            quoted = char
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth == 0:
                end = place
                break
        elif char == "," and depth == 1:
            parts.append(signature[start:place].strip())
            start = place + 1
    parts.append(signature[start:end].strip())
    return "(\n" + "".join(f"    {part},\n" for part in parts) + ")" + signature[end + 1 :]


# ---------------------------------------------------------------- docstrings


def _docstring(value: Any, options: str = "") -> Iterator[str]:
    """The docstring as Markdown, with the table of options that the callable takes."""
    for section in _sections(inspect.getdoc(_documented(value)) or ""):
        yield from _section(section)
    if options:
        yield options


def _documented(value: Any) -> Any:
    """What carries the docstring: not the type of a constant, nor what a decorator made up."""
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    if isinstance(value, type | property | cached_property) or inspect.isroutine(value) or is_ours(type(value)):
        return value
    return None


@cache
def _sections(text: str) -> tuple[Any, ...]:
    logging.getLogger("griffe").setLevel(logging.CRITICAL)  # types stand in the signature, not in the docstring
    return tuple(
        griffe.Docstring(text).parse(
            "google", returns_multiple_items=False, returns_named_value=False, returns_type_in_property_summary=False
        )
    )


def _section(section: Any) -> Iterator[str]:
    kind = section.kind.value
    if kind == "text":
        yield _CITATIONS.sub(lambda found: _CITED.sub(_cited, _joined(found[0])), section.value)
    elif kind in ("parameters", "other parameters"):
        yield "\n".join(
            ["| argument | |", "|---|---|", *(f"| `{one.name}` | {_cell(one.description)} |" for one in section.value)]
        )
    elif kind in ("returns", "yields"):
        for one in section.value:
            said = f"{one.annotation}: {one.description}" if one.annotation else one.description
            yield f"**{kind.capitalize()}:** {_joined(said)}"
    elif kind == "raises":
        yield "\n".join(
            ["**Raises:**", "", *(f"- `{one.annotation}`: {_joined(one.description)}" for one in section.value)]
        )
    elif kind == "examples":
        yield "\n\n".join(["**Example:**", *(_example(which.value, text) for which, text in section.value)])
    elif kind == "admonition":
        yield f"**{section.title or section.value.kind.capitalize()}:**\n\n{section.value.contents}"
    elif kind != "attributes":  # attributes stand in the table of attributes
        raise ValueError(f"a docstring has a section {kind!r}, which the reference doesn't know")


def _cited(found: re.Match[str]) -> str:
    """A citation of the specification, or of another one, as a link."""
    if found["url"]:
        return f"[{found['url'].removeprefix('https://')}]({found['url']})"
    if found["rfc"]:
        return f"[{found[0]}](https://www.rfc-editor.org/rfc/rfc{found['rfc']})"
    url = f"{_SPECIFICATION}/{found['revision'] or LATEST}/{found['page']}"
    whole = f"[{found[0].removesuffix(found['sections'])}]({url})"
    return whole + re.sub(
        r'"([^"]+)"', lambda title: f"[{title[0]}]({url}#{title[1].lower().replace(' ', '-')})", found["sections"]
    )


def _example(kind: str, text: str) -> str:
    return f"```python\n{text}\n```" if kind == "examples" else text


def _attribute_texts(value: Any) -> dict[str, str]:
    """What the section `Attributes:` of a class, or the comments above its fields, say of each."""
    found: dict[str, str] = {}
    if not isinstance(value, type) or not is_ours(value):
        return found
    for base in reversed(value.__mro__):
        if is_ours(base):
            found |= {name: _joined(text) for name, text in comments(base).items() if text}
            for section in _sections(inspect.getdoc(base) or ""):
                if section.kind.value == "attributes":
                    found |= {one.name: _joined(one.description) for one in section.value}
    return found


def _parameters(value: Any) -> dict[str, tuple[str, str]]:
    """The annotation and the text of what a class is made with, for the attributes that keep it."""
    if not isinstance(value, type) or not is_ours(value):
        return {}
    texts: dict[str, str] = {}
    for section in _sections(inspect.getdoc(value) or ""):
        if section.kind.value == "parameters":
            texts |= {one.name: _joined(one.description) for one in section.value}
    function = vars(value).get("__init__")
    signature = inspect.signature(function).parameters if inspect.isfunction(function) else {}
    kinds = {
        name: annotation_text(one.annotation) for name, one in signature.items() if one.annotation is not one.empty
    }
    return {name: (kinds.get(name, ""), texts.get(name, "")) for name in texts.keys() | kinds.keys()}


def _options(value: Any) -> str:
    """A table of the keyword arguments that a TypedDict declares: `**options: Unpack[ServerOptions]`."""
    function = vars(value).get("__init__") if isinstance(value, type) else _documented(value)
    notes = getattr(function, "__annotations__", {})
    rows: list[str] = []
    for note in notes.values():
        named = _UNPACK.search(note if isinstance(note, str) else repr(note))
        declaration = named and getattr(sys.modules[function.__module__], named[1], None)
        rows += _option_rows(declaration) if declaration is not None else []
    return "\n".join(["| option | default | |", "|---|---|---|", *rows]) if rows else ""


def _option_rows(declaration: Any) -> Iterator[str]:
    said = comments(declaration)
    for name, annotation in declaration.__annotations__.items():
        metadata = getattr(annotation, "__metadata__", (None,))[0]
        if isinstance(metadata, Option):
            yield f"| `{name}` | {_cell(default_text(metadata.default))} | {_cell(metadata.meaning)} |"
        else:
            yield f"| `{name}` | {_cell(f'`{annotation_text(annotation)}`')} | {_cell(said.get(name, ''))} |"


def _joined(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    """The text as one cell of a table."""
    return _joined(text).replace("|", "\\|")
