"""Writes the parts of the documents that follow from the code: `python -m tools.print_docs`.

A part stands between `<!-- printed: NAME -->` and `<!-- end of NAME -->`, the default of one limit between
`<!-- limit: NAME -->` and `<!-- end -->`; a test fails when it differs from the code.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, is_typeddict

import msgspec

from gemel.install import HOSTS, SHORT_NAMES, Host, Launch, entry_for, jsonc, toml
from gemel.protocol.deviations import DEVIATIONS
from gemel.protocol.limits import DEFAULT_LIMITS
from tools import package_page

ROOT = Path(__file__).resolve().parents[1]
_PART = re.compile(r"(<!-- printed: (?P<name>[\w-]+) -->\n).*?(<!-- end of (?P=name) -->)", re.DOTALL)
_LIMIT = re.compile(r"(<!-- limit: (?P<name>\w+) -->)[^<]*(<!-- end -->)")


def main() -> None:
    """Write every part of every document anew."""
    beside = (ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md"))
    for path in (*beside, *sorted(ROOT.glob("docs/**/*.md"))):
        text = path.read_text(encoding="utf-8")
        written = printed(text)
        if written != text:
            path.write_text(written, encoding="utf-8")
            print(path.relative_to(ROOT))


def printed(text: str) -> str:
    """The document with all its parts as the code has them now. Raises KeyError for a part that nobody knows."""
    text = _PART.sub(lambda found: f"{found[1]}{PARTS[found['name']]()}\n{found[3]}", text)
    return _LIMIT.sub(lambda found: f"{found[1]}{default_text(getattr(DEFAULT_LIMITS, found['name']))}{found[3]}", text)


# ---------------------------------------------------------------- states


def _diagram(moves: Mapping[Any, Mapping[str, Any]]) -> str:
    """A table of moves as a Mermaid diagram; a state without a way out is final."""
    first = next(iter(moves))
    lines = [f"    [*] --> {_state(first)}"]
    for state, ways in moves.items():
        lines += [f"    {_state(state)} --> {_state(to)}: {event}" for event, to in ways.items() if to is not state]
        lines += [f"    {_state(state)} --> [*]"] * (not any(to is not state for to in ways.values()))
    return "\n".join(["```mermaid", "stateDiagram-v2", *lines, "```"])


def _state(state: Enum) -> str:
    return str(state.value).replace(" ", "_")


def handshake() -> str:
    """The states of a handshake conversation."""
    from gemel.protocol.states import HANDSHAKE_MOVES

    return _diagram(HANDSHAKE_MOVES)


def calls() -> str:
    """The states of a request that we serve."""
    from gemel.protocol.states import CALL_MOVES

    return _diagram(CALL_MOVES)


def pending() -> str:
    """The states of a request of ours."""
    from gemel.protocol.states import PENDING_MOVES

    return _diagram(PENDING_MOVES)


def responses() -> str:
    """The states of the response of an HTTP request."""
    from gemel.protocol.states import RESPONSE_MOVES

    return _diagram(RESPONSE_MOVES)


# ---------------------------------------------------------------- settings


def limits() -> str:
    """Every field of Limits, with its default and what is said of it."""
    from gemel.protocol.limits import Limits

    return _settings(Limits)


def fixed_limits() -> str:
    """Every field of FixedLimits."""
    from gemel.protocol.limits import FixedLimits

    return _settings(FixedLimits).replace("| setting | default |", "| limit | value |")


def task_limits() -> str:
    """Every field of TaskLimits."""
    from gemel.extensions.tasks.limits import TaskLimits

    return _settings(TaskLimits)


def server_options() -> str:
    """The options of Server."""
    from gemel.server.options import ServerOptions

    return _options(ServerOptions)


def http_options() -> str:
    """The options of `server.run("http")` and `server.http_app()`."""
    from gemel.transports.http.server.options import HttpAppOptions, HttpOptions

    return _options(HttpOptions, HttpAppOptions)


def variables() -> str:
    """The options that `gemel run` takes as environment variables."""
    from gemel.cli.arguments.options import HTTP, TLS
    from gemel.cli.program.options import RunOptions
    from gemel.options import options_of

    options = options_of(RunOptions)
    lines = [
        f"| `GEMEL_{name.upper()}` | {default_text(options[name].default)} | {_cell(options[name].meaning)} |"
        for name in (*HTTP, *TLS, "limit", "log_level", "metrics_token")
    ]
    return "\n".join(["| variable | default | what it does |", "|---|---|---|", *lines])


def socket_options() -> str:
    """The options of `server.run("socket")`."""
    from gemel.server.options import SocketOptions

    return _options(SocketOptions)


def client_options() -> str:
    """The options of Client."""
    from gemel.client.options import ClientOptions

    return _options(ClientOptions)


def group_options() -> str:
    """The options of ClientGroup that clients don't have."""
    from gemel.client.options import ClientGroupOptions, ClientOptions

    return _options(ClientGroupOptions, without=ClientOptions)


def hosts() -> str:
    """The files of each host that `gemel install` writes to, and each form that an entry has in them."""
    lines = ["| host | `--host` | your file | in a project | `--env TOKEN` becomes |", "|---|---|---|---|---|"]
    forms: dict[str, list[str]] = {}
    for name, host in HOSTS.items():
        names = [name, *(short for short, full in SHORT_NAMES.items() if full == name)]
        project = f"`{host.project}`" if host.project else ""
        cells = [host.title, ", ".join(f"`{one}`" for one in names), _files(host), project, _token(host)]
        lines.append(f"| {' | '.join(cells)} |")
        forms.setdefault(_form(host), []).append(host.title)
    sections = [f"### {', '.join(titles)}\n\n{form}" for form, titles in forms.items()]
    return "\n".join(lines) + "\n\n`…` stands for what the last column has.\n\n" + "\n\n".join(sections)


def _files(host: Host) -> str:
    """The user's file, on each platform where it differs."""
    homes = {"linux": ("Linux", "~"), "darwin": ("macOS", "~"), "win32": ("Windows", r"%USERPROFILE%")}
    environs = {"APPDATA": "C:/%APPDATA%"}
    places: dict[str, str] = {}
    for platform, (title, home) in homes.items():
        variables = {"HOME": home, "USERPROFILE": home, **(environs if platform == "win32" else {})}
        place = str(host.path(platform, variables)).removeprefix("C:/")
        places[title] = place.replace("/", "\\") if platform == "win32" else place
    if places["Linux"] != places["macOS"]:
        return ", ".join(f"`{place}` ({title})" for title, place in places.items())
    return f"`{places['Linux']}`" + (f", on Windows `{places['Windows']}`" if host.files else "")


def _token(host: Host) -> str:
    """How an entry refers to a variable of the host's environment."""
    if host.variables:
        return f"a name in `{host.variables}`"
    return f"`{host.variable.replace('NAME', 'TOKEN')}`" if host.variable else "the value"


def _form(host: Host) -> str:
    """The file with one entry, with `…` for the value of a variable."""
    launch = Launch(
        ["/opt/weather/.venv/bin/python", "-P", "-m", "gemel", "run", "/opt/weather/weather.py"], {"TOKEN": "${TOKEN}"}
    )
    value = entry_for(host, launch, {"TOKEN": "…"}).value
    if "env" in value:
        value = {**value, "env": {"TOKEN": "…"}}
    syntax, language = (toml, "toml") if host.file.endswith(".toml") else (jsonc, "json")
    text = syntax.put("", (host.section, "weather"), value).rstrip()
    return f"```{language}\n{text}\n```"


def _options(*kinds: type, without: type | None = None) -> str:
    """One row for each option that the TypedDicts declare, except for those of another one."""
    from gemel.options import options_of

    others = {} if without is None else options_of(without)
    rows = {name: option for kind in kinds for name, option in options_of(kind).items() if name not in others}
    lines = [
        f"| `{name}` | {default_text(option.default)} | {_cell(option.meaning)} |" for name, option in rows.items()
    ]
    return "\n".join(["| option | default | what it does |", "|---|---|---|", *lines])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _settings(kind: type[msgspec.Struct]) -> str:
    """One row for each comment, with all settings that it is about."""
    rows: dict[str, list[Any]] = {}
    said = comments(kind)
    for item in msgspec.structs.fields(kind):
        rows.setdefault(said[item.name], []).append(item)
    lines = [
        f"| {', '.join(f'`{item.name}`' for item in items)} | {', '.join(map(_default, items))} | {_plain(words)} |"
        for words, items in rows.items()
    ]
    return "\n".join(["| setting | default | what it bounds or does |", "|---|---|---|", *lines])


def _plain(words: str) -> str:
    """Without the ids of requirements, which only developers look up."""
    return re.sub(r" \([A-Z]+-\d+[^)]*\)", "", words).replace("|", "\\|")


@cache
def comments(kind: type) -> Mapping[str, str]:
    """What the `#:` comment before each field says; a field without one shares that of the field before it."""
    found: dict[str, str] = {}
    lines = textwrap.dedent(inspect.getsource(kind)).split("\n")
    tree = ast.parse("\n".join(lines)).body[0]
    assert isinstance(tree, ast.ClassDef)
    for name in (
        base.id for base in tree.bases if isinstance(base, ast.Name)
    ):  # a TypedDict has no other trace of them
        base = vars(sys.modules[kind.__module__]).get(name)
        if is_typeddict(base):
            found |= comments(base)
    words = ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            words = _comment_above(lines, node.lineno - 1) or words
            found[node.target.id] = words
    return found


def _comment_above(lines: list[str], number: int) -> str:
    first = number
    while first > 0 and lines[first - 1].strip().startswith("#:"):
        first -= 1
    return " ".join(line.strip().removeprefix("#:").strip() for line in lines[first:number])


def _default(item: Any) -> str:
    if item.default is msgspec.NODEFAULT:
        return "" if item.default_factory is msgspec.NODEFAULT else f"`{item.default_factory()!r}`"
    return default_text(item.default)


def default_text(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return f"`{value}`"
    if isinstance(value, float):
        return f"{value:g} s" if value < 3600 else f"{value / 3600:g} h"
    if isinstance(value, int):
        return _amount(value)
    if isinstance(value, msgspec.Struct):
        return f"`{type(value).__name__}()`"
    return f"`{value!r}`"


def _amount(value: int) -> str:
    for unit, name in ((1024 * 1024, "MiB"), (1024, "KiB")):
        if value >= unit and value % unit == 0 and value // unit < 1024 and value != 1024:
            return f"{value // unit} {name}"
    return f"{value:,}"


# ---------------------------------------------------------------- errors, methods, members


def errors() -> str:
    """The tree of errors, as `errors.py` draws it."""
    from gemel import errors as module

    tree = (module.__doc__ or "").split("\n\n")[1]
    return "\n".join(["```text", textwrap.dedent(tree), "```"])


def methods() -> str:
    """Every method of the protocol, and the revisions that know it."""
    from gemel.schema.methods import METHODS

    senders = {"client": "client", "server": "server", "both": "either"}
    rows = [f"| `{row.name}` | {senders[row.sender]} | {row.first} | {row.last} |" for row in METHODS.values()]
    return "\n".join(["| method | sent by | first | last |", "|---|---|---|---|", *rows])


def context() -> str:
    """What a handler can do."""
    from gemel.server.context import Context

    return _members(Context, "ctx")


def client() -> str:
    """What a client can do."""
    from gemel.client.client import Client

    return _members(Client, "client")


#: Members that are public for other modules, not for users.
_INNER = {"Client": {"mirrors"}}


def _members(kind: type, name: str) -> str:
    rows = [f"| `{name}.{member}` | {words} |" for member, words in _public(kind)]
    return "\n".join([f"| `{kind.__name__}` | |", "|---|---|", *rows])


def _public(kind: type) -> Iterator[tuple[str, str]]:
    """Each public method and property with the first sentence of its docstring; in the order of their definition."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        found |= {key: value for key, value in vars(base).items() if not key.startswith("_")}
    for key in _INNER.get(kind.__name__, ()):
        found.pop(key, None)
    attributes = dict(re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", (inspect.getdoc(kind) or ""), re.MULTILINE))
    for key, value in found.items():
        words = inspect.getdoc(value)
        if key in attributes:
            yield key, _first_sentence(attributes[key])
        elif callable(value) or isinstance(value, property):
            assert words, f"{kind.__name__}.{key} has no docstring"
            sign = "" if isinstance(value, property) else "()"
            yield f"{key}{sign}", _first_sentence(words)


def _first_sentence(words: str) -> str:
    paragraph = " ".join(words.split("\n\n")[0].split())
    found = re.match(r".*?[a-z)`0-9][.:](?= [A-Z`]|$)", paragraph)
    text = found[0] if found else paragraph
    return _plain(text.rstrip(".:"))


# ---------------------------------------------------------------- figures

#: What the README shows of the tables in docs/performance.md: the words, the table, what follows the names of rows, the column,
#: the unit.
_SHOWN = (
    ("HTTP, each call different", "HTTP 2026-07-28", "", "CPU µs/call", " µs"),
    ("… calls per second", "HTTP 2026-07-28", "", "calls/s", ""),
    ("HTTP, the same call again and again", "HTTP 2026-07-28", " repeated", "CPU µs/call", " µs"),
    ("stdio, 16 calls in flight", "stdio server, 16", "", "CPU µs/call", " µs"),
    ("stdio, one call at a time", "stdio server, one", "", "CPU µs/call", " µs"),
    ("in memory, client and server together", "in memory, client", "", "CPU µs/call", " µs"),
    ("stdio server, start to first answer", "stdio server, start", "", "wall ms", " ms"),
    ("… its memory", "stdio server, start", "", "peak MB", " MB"),
    ("import", "import", "", "CPU ms", " ms"),
)


def figures() -> str:
    """The comparison for the README, from the figures that the benchmark printed into docs/performance.md."""
    tables, versions = _measured()
    lines = [
        f"| CPU per call | Gemel | `mcp` {versions['mcp']} | FastMCP {versions['fastmcp']} | *minimal* | *raw* |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for words, title, kind, column, unit in _SHOWN:
        rows = _table(tables, title)
        cells = [_figure(rows, f"{who}{kind}", column, unit) for who in ("gemel", "mcp", "fastmcp", "bare", "raw")]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


#: Work that users would recognise: the words, the table, and who does it. The official SDK and FastMCP come last.
_WORK = (
    ("a call", "HTTP 2026-07-28", ("gemel", "mcp", "fastmcp")),
    ("a call in a session of 2025-11-25, JSON", "HTTP 2025-11-25", ("gemel", "mcp json", "fastmcp json")),
    ("… event streams", "HTTP 2025-11-25", ("gemel events", "mcp", "fastmcp")),
    ("a pydantic model in and out", "HTTP, a pydantic", ("gemel", "mcp", "fastmcp")),
    ("100 KB of text", "HTTP, a result of 100 KB", ("gemel", "mcp", "fastmcp")),
    ("20 notifications of progress and a result", "HTTP, 20", ("gemel", "mcp", "fastmcp")),
    ("a call with a JSON Web Token", "HTTP, a call with a JSON", ("gemel", "mcp", "fastmcp")),
    ("a new session lists 50 tools and ends", "a new session", ("gemel", "mcp", "fastmcp")),
    ("a client of 100 connects, lists, calls and leaves", "100 clients", ("gemel", "mcp", "fastmcp")),
    ("the client, at a server of the official SDK", "a client over HTTP", ("gemel", "mcp", "fastmcp")),
    ("a proxy, for a call", "a proxy", ("gemel", "mcp", "fastmcp")),
    ("a gateway to five servers, for a call", "a gateway", ("gemel", "mcp", "fastmcp")),
)


def work() -> str:
    """CPU time of what users do, with the official SDK and FastMCP, from docs/performance.md."""
    tables, _ = _measured()
    lines = [
        "| CPU time over HTTP | Gemel | `mcp` | FastMCP | `mcp` / Gemel | FastMCP / Gemel |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for words, title, (ours, *others) in _WORK:
        rows = _table(tables, title)
        cells = [_figure(rows, who, "CPU µs/call", " µs") for who in (ours, *others)]
        cells += [_ratio(rows, ours, who) for who in others]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines)


#: Row to column to cell.
_Rows = Mapping[str, Mapping[str, str]]


def _measured() -> tuple[Mapping[str, _Rows], Mapping[str, str]]:
    """The tables of docs/performance.md by their titles, and the versions of the packages that were measured."""
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^Versions: (.+)\.$", page, re.MULTILINE)
    return _tables(page), dict(part.split(" ") for part in line.split(", "))


def _table(tables: Mapping[str, _Rows], title: str) -> _Rows:
    return next(rows for name, rows in tables.items() if name.startswith(title))


def _figure(rows: _Rows, who: str, column: str, unit: str) -> str:
    """The median of one row; empty if nobody measured it."""
    return f"{rows[who][column].split()[0]}{unit}" if who in rows else ""


def _ratio(rows: _Rows, ours: str, other: str) -> str:
    """How many times our CPU time another one takes, in two digits; empty if nobody measured it."""
    if other not in rows:
        return ""
    theirs, mine = (float(_figure(rows, who, "CPU µs/call", "")) for who in (other, ours))
    return f"{float(f'{theirs / mine:.2g}'):g}"


def _tables(text: str) -> dict[str, dict[str, dict[str, str]]]:
    """Each table below a bold title: title to row to column to cell."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for title, table in re.findall(r"\*\*(.+)\*\*\n\n((?:\|.*\n)+)", text):
        heads, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
        found[title] = {row[0]: dict(zip(heads[1:], row[1:], strict=True)) for row in rows}
    return found


# ---------------------------------------------------------------- other libraries


def _peers() -> dict[str, Any]:
    return tomllib.loads((ROOT / "tests" / "interop" / "peers.toml").read_text(encoding="utf-8"))


def version_of_fastmcp() -> str:
    """The version of FastMCP whose names the tests look up in the tables."""
    return f"Compared with FastMCP {_peers()['python']['fastmcp']['packages']['fastmcp']}."


def version_of_mcp() -> str:
    """The version of the official SDK whose names the tests look up in the tables."""
    return f"Compared with `mcp` {_peers()['python']['peers']['packages']['mcp']}."


def peers() -> str:
    """What `make interop` installs, and other targets that need foreign programs."""
    table = _peers()
    groups = {"npm": table["node"]["packages"]}
    groups |= {name: group["packages"] for name, group in table["python"].items()}
    groups |= table["agents"] | table["adapters"]
    lines = ["| environment | packages |", "|---|---|"]
    for name, packages in groups.items():
        pinned = (f"`{package}` {version}" for package, version in packages.items() if version != "*")
        lines.append(f"| {name} | {', '.join(pinned)} |")
    return "\n".join(lines)


def deviations() -> str:
    """What a client understands of servers that deviate from the specification."""
    rows = (f"| `{name}` | {description} |" for name, description in DEVIATIONS.items())
    return "\n".join(["| name | what it means |", "|---|---|", *rows])


def security_contact() -> str:
    """Where vulnerabilities are reported, by the project's address."""
    form = package_page.security_form(package_page.project_address())
    where = (
        f"[Report a vulnerability]({form})" if form else '"Report a vulnerability" of the repository\'s security page'
    )
    return f"Report a vulnerability privately, by the form {where}, or by a message to a maintainer."


PARTS: dict[str, Callable[[], str]] = {
    "security-contact": security_contact,
    "deviations": deviations,
    "version-of-fastmcp": version_of_fastmcp,
    "version-of-mcp": version_of_mcp,
    "peers": peers,
    "figures": figures,
    "work": work,
    "hosts": hosts,
    "handshake-states": handshake,
    "call-states": calls,
    "pending-states": pending,
    "response-states": responses,
    "limits": limits,
    "fixed-limits": fixed_limits,
    "task-limits": task_limits,
    "server-options": server_options,
    "http-options": http_options,
    "socket-options": socket_options,
    "variables": variables,
    "client-options": client_options,
    "group-options": group_options,
    "errors": errors,
    "methods": methods,
    "context": context,
    "client": client,
}

if __name__ == "__main__":
    main()
