"""Compare what a server offers with the rules of hosts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from gemel.client.lists import list_offered
from gemel.doctor.hosts import HOSTS, Rule, Severity, Subject
from gemel.errors import DefinitionError, shorten
from gemel.protocol.schema_keywords import LISTED, NAMED, ONE
from gemel.schema.methods import LISTS, ListName
from gemel.schema.tools import Tool

if TYPE_CHECKING:
    from gemel.client.methods import ClientMethods

#: The severities, the worst last.
SEVERITIES: tuple[Severity, ...] = ("note", "degrades", "breaks")

#: Stands for a host in findings about deviations, which `client.warnings` lists, too.
SPECIFICATION = "specification"
_SPECIFICATION_URL = "https://modelcontextprotocol.io/specification"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that one host does not support. `str()` makes a line of it.

    Args:
        host: The name of the host.
        severity: "breaks": tools are missing or requests fail; "degrades": something is changed or left out; "note":
            a limit of the host that the lists of a server don't show.
        place: Where: a tool and a place in its schema, or "server".
        message: What it is.
        effect: What the host does.
        source: The address of a report or of documentation.
    """

    host: str
    severity: Severity
    place: str
    message: str
    effect: str
    source: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}: {self.host} {self.effect} ({self.source})"


class Offers(NamedTuple):
    """What a server offers, as `examine` lists it.

    Args:
        server: The name of the server.
        tools: Its tools.
        prompts: How many prompts it has.
        resources: How many resources and resource templates it has.
    """

    server: str
    tools: Sequence[Tool]
    prompts: int = 0
    resources: int = 0


async def examine(client: ClientMethods, hosts: Iterable[str] = ()) -> list[Finding]:
    """List what a server offers, and find what hosts don't support of it. No tool is called.

    Args:
        client: A connected client.
        hosts: Names of hosts, keys of `HOSTS`; all of them by default.

    Returns:
        The findings, by host, the worst first; those about the specification come before.

    Raises:
        DefinitionError: A host is not known.
        CallError: A list could not be fetched.

    Example:
        >>> async with Client("weather.py") as client:
        ...     for finding in await examine(client, ["cursor"]):
        ...         print(finding)
    """
    chosen = list(hosts)
    for host in chosen:
        _rules(host)
    info = client.server_info
    name = info.name if info is not None else ""
    listed: dict[ListName, Sequence[Any]] = {of.name: await list_offered(client, of) or [] for of in LISTS.values()}
    return [*_deviations(client), *check(offers_of(name, listed), chosen)]


def offers_of(server: str, listed: Mapping[ListName, Sequence[Any]]) -> Offers:
    """What a server of this name offers, from its lists."""
    counts = {of.feature: 0 for of in LISTS.values()}
    for of in LISTS.values():
        counts[of.feature] += len(listed.get(of.name, ()))
    return Offers(server, listed.get("tools", ()), counts["prompts"], counts["resources"])


def _deviations(client: ClientMethods) -> list[Finding]:
    """How the server deviated from the specification until now."""
    return [
        Finding(
            host=SPECIFICATION,
            severity="degrades",
            place="server",
            message=str(deviation),
            effect="doesn't allow it, and other clients may fail",
            source=_SPECIFICATION_URL,
        )
        for deviation in client.warnings
    ]


def check(offers: Offers, hosts: Iterable[str] = ()) -> list[Finding]:
    """Find what hosts don't support of what a server offers.

    Args:
        offers: What the server offers.
        hosts: Names of hosts, keys of `HOSTS`; all of them by default.

    Returns:
        The findings, by host, the worst first.

    Raises:
        DefinitionError: A host is not known.
    """
    findings: list[Finding] = []
    for host in list(hosts) or HOSTS:
        of_host = [
            Finding(
                host=host, severity=rule.severity, place=place, message=message, effect=rule.effect, source=rule.source
            )
            for rule in _rules(host)
            for place, message in _CHECKS[rule.subject](rule, offers)
        ]
        findings += sorted(of_host, key=lambda finding: -SEVERITIES.index(finding.severity))
    return findings


def at_least(findings: Iterable[Finding], severity: Severity) -> list[Finding]:
    """Return the findings of a severity and of worse ones."""
    return [finding for finding in findings if SEVERITIES.index(finding.severity) >= SEVERITIES.index(severity)]


def _rules(host: str) -> Sequence[Rule]:
    if host not in HOSTS:
        near = difflib.get_close_matches(host, HOSTS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(HOSTS)}"
        raise DefinitionError(f"There are no rules for the host {shorten(repr(host))}: {hint}")
    return HOSTS[host]


# ---------------------------------------------------------------- rules

_Found = Iterator[tuple[str, str]]


def _tool(tool: Tool) -> str:
    return f"tool {shorten(tool.name)!r}"


def _name_length(rule: Rule, offers: Offers) -> _Found:
    prefix = rule.prefix.replace("{server}", offers.server)
    for tool in offers.tools:
        length = len(prefix) + len(tool.name)
        if length > rule.value:
            whole = f", with {shorten(repr(prefix))} before it" if prefix else ""
            yield _tool(tool), f"its name has {length} characters{whole}, more than {rule.value}"


def _name_pattern(rule: Rule, offers: Offers) -> _Found:
    for tool in offers.tools:
        if not re.fullmatch(rule.value, tool.name):
            yield _tool(tool), f"its name doesn't match {rule.value}"


def _tool_count(rule: Rule, offers: Offers) -> _Found:
    if len(offers.tools) > rule.value:
        yield "server", f"{len(offers.tools)} tools, more than {rule.value}"


def _in_schemas(offers: Offers, test: Callable[[dict[str, Any]], str | None], *, outputs: bool = False) -> _Found:
    """The first place in each tool's schemas at which the test finds something."""
    for tool in offers.tools:
        schemas = {"input": tool.input_schema, **({"output": tool.output_schema} if outputs else {})}
        for use, root in schemas.items():
            places = [(place, message) for place, part in _parts(root, use) if (message := test(part))]
            if places:
                others = len(places) - 1
                more = f" (and at {others} more place{'s' if others > 1 else ''})" if others else ""
                yield f"{_tool(tool)}, {places[0][0]}", f"{places[0][1]}{more}"


def _parts(root: object, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    pending = [(root, place)]
    while pending:
        part, place = pending.pop()
        if not isinstance(part, dict):
            continue
        yield place, part
        inner: list[tuple[Any, str]] = []
        for word, value in part.items():
            if word in NAMED and isinstance(value, dict):
                outer = place if word == "properties" else f"{place}.{word}"
                inner += [(schema, f"{outer}.{shorten(name)}") for name, schema in value.items()]
            elif word in LISTED and isinstance(value, list):
                inner += [(schema, place) for schema in value]
            elif word in ONE:
                inner.append((value, f"{place}[]" if word == "items" else f"{place}.{word}"))
        pending += reversed(inner)


def _keywords(rule: Rule, offers: Offers) -> _Found:
    def test(part: dict[str, Any]) -> str | None:
        used = [word for word in rule.value if word in part and not _has_substitute(part[word])]
        return f"uses {', '.join(used)}" if used else None

    yield from _in_schemas(offers, test, outputs="$ref" in rule.value)


def _has_substitute(choices: object) -> bool:
    """Whether less than these choices fits as well: a text among them, or the one type beside null."""
    if not isinstance(choices, list):
        return False
    is_nullable = len(choices) == 2 and {"type": "null"} in choices
    return is_nullable or any(isinstance(choice, dict) and choice.get("type") == "string" for choice in choices)


def _root_keywords(rule: Rule, offers: Offers) -> _Found:
    for tool in offers.tools:
        used = [word for word in rule.value if word in tool.input_schema]
        if used:
            yield f"{_tool(tool)}, input", f"uses {', '.join(used)} at the root"


def _patterns(rule: Rule, offers: Offers) -> _Found:
    def test(part: dict[str, Any]) -> str | None:
        pattern = part.get("pattern")
        return (
            "its pattern looks ahead or behind" if isinstance(pattern, str) and re.search(rule.value, pattern) else None
        )

    yield from _in_schemas(offers, test)


def _offers(rule: Rule, offers: Offers) -> _Found:
    for feature in rule.value:
        count = getattr(offers, feature)
        if count:
            yield "server", f"{count} {feature if count > 1 else feature.removesuffix('s')}"


def _lacks(rule: Rule, offers: Offers) -> _Found:
    for feature in rule.value:
        yield "server", f"no {feature}"


def _annotations(rule: Rule, offers: Offers) -> _Found:
    bare = [tool for tool in offers.tools if all(getattr(tool.annotations, hint, None) is None for hint in rule.value)]
    if len(bare) == 1:
        yield _tool(bare[0]), "no annotations"
    elif bare:
        yield "server", f"{len(bare)} tools without annotations, such as {shorten(repr(bare[0].name))}"


def _own_search(rule: Rule, offers: Offers) -> _Found:
    names = {tool.name for tool in offers.tools}
    if "search_tools" in names and not names.isdisjoint(("run_code", "call_tool")):
        yield "server", "lists a search for its tools in place of them"


_CHECKS: Mapping[Subject, Callable[[Rule, Offers], _Found]] = {
    "name length": _name_length,
    "name pattern": _name_pattern,
    "tool count": _tool_count,
    "keywords": _keywords,
    "root keywords": _root_keywords,
    "patterns": _patterns,
    "offers": _offers,
    "lacks": _lacks,
    "annotations": _annotations,
    "own search": _own_search,
}
