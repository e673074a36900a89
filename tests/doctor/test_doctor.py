"""What hosts don't support in a server: rules, findings, the command and the assertion."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, DefinitionError, Server
from gemel.cli import main
from gemel.code import CodeMode
from gemel.code.tools import ListMode
from gemel.doctor import HOSTS, Offers, check
from gemel.doctor.check import SEVERITIES, at_least, examine
from gemel.schema.tools import Tool, ToolAnnotations
from gemel.testing import assert_fits_hosts
from tests.peers.rows import ROWS
from tests.peers.servers import served

#: Hosts ask, or refuse, before they call tools without hints.
READS = ToolAnnotations(read_only_hint=True)


def tool(name: str = "t", output: Any = None, **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties}
    return Tool(name=name, input_schema=schema, output_schema=output, annotations=READS)


def found(host: str, *tools: Tool, server: str = "s", **more: Any) -> list[str]:
    """The findings without notes."""
    offers = Offers(server, tools, **more)
    return [f"{one.severity}: {one.place}: {one.message}" for one in check(offers, [host]) if one.severity != "note"]


async def test_deviations_from_the_specification_come_first() -> None:
    row = next(row for row in ROWS if row.warns == ("string-id",))
    async with served(row, "stdio") as target, Client(target, era="2025") as client:
        finding, *others = await examine(client)
    assert (finding.host, finding.severity, finding.place) == ("specification", "degrades", "server")
    assert finding.message.startswith("string-id: The server wrote the id")
    assert all(one.host in HOSTS for one in others)


def test_each_rule_has_a_source_and_an_effect() -> None:
    for host, rules in HOSTS.items():
        assert rules, host
        for rule in rules:
            assert rule.source.startswith("https://")
            assert rule.effect
            assert rule.severity in SEVERITIES


@pytest.mark.parametrize("host", HOSTS)
def test_a_plain_server_fits_every_host(host: str) -> None:
    assert found(host, tool(city={"type": "string"}, days={"type": "integer", "default": 1})) == []


REFERENCE = {"$ref": "#/$defs/A"}


@pytest.mark.parametrize(
    ("host", "tools", "expected"),
    [
        ("claude-desktop", [tool("x" * 65)], ["breaks: tool '…': its name has 65 characters, more than 64"]),
        ("claude-desktop", [tool("x" * 64)], []),
        ("cursor", [tool("x" * 58)], []),
        ("cursor", [tool("x" * 59)], ["degrades: tool '…': its name has 61 characters, with 's:' before it, more than 60"]),
        ("opencode", [tool("a.b")], ["degrades: tool 'a.b': its name doesn't match [a-zA-Z0-9_-]{1,128}"]),
        ("vscode", [tool(f"t{n}") for n in range(129)], ["breaks: server: 129 tools, more than 128"]),
        ("vscode", [tool(f"t{n}") for n in range(128)], []),
        ("kiro", [tool(a={"items": REFERENCE})], ["breaks: tool 't', input.a[]: uses $ref"]),
        ("kiro", [tool(output={"anyOf": [REFERENCE] * 2})], ["breaks: tool 't', output: uses $ref (and at 1 more place)"]),
        # A property of that name, and data, are no keywords.
        ("kiro", [Tool(name="t", input_schema={"properties": {"$ref": {"const": REFERENCE, "default": REFERENCE}}})], []),
        ("codex", [tool(a={"pattern": "^(?!no$)"})], ["breaks: tool 't', input.a: its pattern looks ahead or behind"]),
        ("codex", [tool(a={"pattern": "^(?:no)$", "anyOf": [{}]})], ["degrades: tool 't', input.a: uses anyOf"]),
        ("codex", [tool(a={"anyOf": [{"type": "integer"}, {"type": "null"}]})], []),
        ("codex", [tool(a={"anyOf": [{"type": "number"}, {"type": "string"}]})], []),
        ("codex", [tool(a={"oneOf": [{"type": "number"}, {"type": "array"}]})], ["degrades: tool 't', input.a: uses oneOf"]),
        ("claude-code", [tool(a={"anyOf": []})], []),
        (
            "claude-code",
            [Tool(name="t", input_schema={"type": "object", "oneOf": []})],
            ["breaks: tool 't', input: uses oneOf at the root"],
        ),
    ],
)  # fmt: skip
def test_findings_name_the_place(host: str, tools: list[Tool], expected: list[str]) -> None:
    shown = [one.replace(tools[0].name, "…") if len(tools[0].name) > 50 else one for one in found(host, *tools)]
    assert shown == expected


def bare(name: str, annotations: ToolAnnotations | None = None) -> Tool:
    return Tool(name=name, input_schema={"type": "object"}, annotations=annotations)


@pytest.mark.parametrize("host", ["chatgpt", "claude-ai", "codex", "cursor", "vscode"])
def test_tools_without_hints_are_one_finding_that_says_what_to_do(host: str) -> None:
    titled, writes = ToolAnnotations(title="A"), ToolAnnotations(destructive_hint=False)
    for tools, place, message in (
        ([bare("a"), tool("b")], "tool 'a'", "no annotations"),
        ([bare("a", titled), bare("b"), tool("c")], "server", "2 tools without annotations, such as 'a'"),
    ):
        [finding] = [one for one in check(Offers("s", tools), [host]) if "annotations" in one.message]
        assert (finding.place, finding.message) == (place, message)
        assert finding.effect.endswith(": set readOnlyHint, destructiveHint and openWorldHint")
    assert not any("annotations" in one.message for one in check(Offers("s", [bare("a", writes)]), [host]))


def test_codex_and_cursor_refuse_tools_without_hints() -> None:
    assert found("codex", bare("a")) == found("cursor", bare("a")) == ["degrades: tool 'a': no annotations"]


@pytest.mark.parametrize(
    ("host", "remedy"),
    [
        ("claude-code", "write alwaysLoad into its entry"),
        ("copilot-cli", 'write deferTools: "never" into its entry'),
        ("codex", "list them plainly there, by ?tools=all"),
        ("vscode", "list them plainly there, by ?tools=all"),
    ],
)
@pytest.mark.parametrize("mode", ["code", "search"])
async def test_a_search_in_front_of_another_is_found(host: str, remedy: str, mode: ListMode) -> None:
    made = server()
    async with Client(made) as client:
        assert not [one for one in await examine(client, [host]) if "a search" in one.message]
    made.add_middleware(CodeMode(mode), outermost=True)
    async with Client(made) as client:
        [finding] = [one for one in await examine(client, [host]) if "a search" in one.message]
    assert (finding.severity, finding.place) == ("note", "server")
    assert remedy in finding.effect


def test_what_a_host_does_not_take_is_found_only_where_it_is_offered() -> None:
    assert found("zed") == []
    assert found("zed", resources=2, prompts=1) == ["degrades: server: 2 resources"]
    assert found("claude-ai", resources=1, prompts=1) == ["degrades: server: 1 prompt", "degrades: server: 1 resource"]


@pytest.mark.parametrize(
    "schema", [True, {"properties": 1, "items": [1], "allOf": {"a": 1}, "format": 3, "pattern": []}]
)
def test_schemas_of_any_form_are_looked_at(schema: Any) -> None:
    check(Offers("s", [tool(a=schema, output=schema)]))


def test_an_unknown_host_is_an_error() -> None:
    with pytest.raises(DefinitionError, match="host 'curser': did you mean 'cursor'"):
        check(Offers("s", []), ["curser"])


@dataclass
class Place:
    name: str


def server() -> Server[Any]:
    made: Server[Any] = Server("weather")

    @made.tool(annotations=READS)
    def forecast(place: Place) -> list[Place]:
        return [place]

    @made.resource("weather://now")
    def now() -> str:
        return "sunny"

    return made


async def test_the_assertion_lists_what_does_not_fit() -> None:
    async with Client(server()) as client:
        await assert_fits_hosts(client, ["cursor", "kiro", "gemini-cli"])
        await assert_fits_hosts(client, ["zed"], severity="breaks")
        with pytest.raises(
            AssertionError, match=r"don't support[\s\S]*degrades: server: 1 resource: zed .*https://zed"
        ):
            await assert_fits_hosts(client, ["zed"])


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "long.py"
    lines = [
        "from gemel import Server, ToolAnnotations",
        "server = Server('s')",
        f"@server.tool(name={'x' * 70!r}, annotations=ToolAnnotations(read_only_hint=True))",
        "def f() -> None: ...",
    ]
    file.write_text("\n".join(lines))
    return str(file)


def output(*words: str) -> tuple[int, str]:
    text = io.StringIO()
    with redirect_stdout(text):
        code = main(["doctor", *words])
    return code, text.getvalue()


def test_the_command_exits_with_3_for_what_breaks(program: str) -> None:
    code, text = output(program, "--host", "kiro", "--host", "vscode")
    assert code == 3
    assert text.splitlines()[0] == "kiro"
    assert "its name has 70 characters, more than 64" in text
    assert text.endswith("Nothing to change for vscode.\n")
    code, text = output(program, "--host", "kiro", "--json", "--fail-on", "never")
    [one] = json.loads(text)
    assert code == 0
    assert one.keys() == {"host", "severity", "place", "message", "effect", "source"}
    assert output(program, "--host", "cursor")[0] == 0
    assert output(program, "--host", "cursor", "--fail-on", "degrades")[0] == 3


@pytest.mark.parametrize("words", [("doctor",), ("lock", "-o", "-"), ("stubs",)], ids=lambda words: words[0])
async def test_commands_about_what_a_server_offers_begin_their_warnings_alike(words: tuple[str, ...]) -> None:
    row = next(row for row in ROWS if "string-id" in row.warns and row.name.startswith("tools/list"))
    async with served(row, "http") as url:
        command = (sys.executable, "-m", "gemel", *words, "--era", "2025", url)
        process = await asyncio.create_subprocess_exec(*command, stdout=DEVNULL, stderr=PIPE)
        _, errors = await process.communicate()
    assert errors.startswith(b"gemel: string-id: ")


# ---------------------------------------------------------------- hosts of this machine

PLAIN = """
import datetime, decimal, uuid
from gemel import Server

server = Server("invoicing")

@server.tool
def search(after: datetime.date | None = None, number: uuid.UUID | None = None) -> list[str]:
    return []

@server.tool
def pay(number: uuid.UUID, amount: decimal.Decimal) -> str:
    return "paid"

@server.tool
def remind(number: uuid.UUID, at: datetime.datetime | None = None) -> str:
    return "reminded"

server.run()
"""


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server of plain functions, on a machine without hosts."""
    (tmp_path / "invoices.py").write_text(PLAIN)
    for variable in ("XDG_CONFIG_HOME", "CODEX_HOME", "COPILOT_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(shutil, "which", lambda name: None)
    return str(tmp_path / "invoices.py")


def test_hosts_that_nobody_uses_are_one_line(plain: str) -> None:
    code, text = output(plain)
    assert code == 0
    assert text == "No known host is on this machine. Others: degrades in codex, cursor (--host NAME says why).\n"


def test_hosts_of_this_machine_come_first(plain: str, tmp_path: Path) -> None:
    for folder in (".gemini", ".cursor"):
        (tmp_path / "home" / folder).mkdir(parents=True)
    lines = output(plain)[1].splitlines()
    assert lines[0] == "cursor"
    assert "3 tools without annotations" in lines[1]
    assert lines[-2:] == [
        "Nothing to change for gemini-cli.",
        "Other hosts: degrades in codex (--host NAME says why).",
    ]


def test_what_breaks_elsewhere_is_named_and_decides_the_exit_code(plain: str, program: str) -> None:
    code, text = output(program)
    assert code == 3
    assert text.startswith("No known host is on this machine. Others: breaks in claude-ai, ")


@pytest.mark.parametrize("host", [host for host in HOSTS if host not in ("codex", "cursor")])
async def test_no_finding_is_about_what_gemel_makes_of_annotations(host: str, plain: str) -> None:
    async with Client(plain) as client:
        assert at_least(await examine(client, [host]), "degrades") == []
