"""What lists of tools cost a model, in tokens of its input: `python -m benchmarks.tokens` prints the table of docs/code-mode.md.

The lists are those of seven published servers (`tool_lists.json`): names and schemas as they were listed, and the length of
each description, in place of which stands other text of that length. `gpt-tokenizer`, which npm installs into `.cache`,
counts with the vocabulary o200k.

The model of a conversation: at each turn the model reads everything so far, the list of tools first. A workflow has three
calls. With the plain list each call is a turn, and its result is read at all turns that follow. In code mode the model looks
up three tools, runs one script, and reads what the script returns; results stay inside.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gemel import Client, Server
from gemel.code import CodeMode
from gemel.schema.content import TextContent
from gemel.schema.tools import CallToolResult, ListToolsResult, Tool
from gemel.server.context import Context

LISTS = Path(__file__).with_name("tool_lists.json")
CACHE = Path(__file__).parents[1] / ".cache" / "tokens"
TOKENIZER = "gpt-tokenizer@4.0.0"
COUNT = """
const {countTokens} = require("gpt-tokenizer/encoding/o200k_base");
const texts = JSON.parse(require("fs").readFileSync(0, "utf8"));
console.log(JSON.stringify(texts.map((text) => countTokens(text))));
"""
FILLER = "returns the items that match what was given and their names with the state of each one as it is now, by page "
#: Tokens of a call that the model writes, of its answer, and of what a script returns.
CALL, ANSWER, RETURNED = 60, 100, 40


class Workflow(NamedTuple):
    """Three calls: the tools, with the tokens of each result; the script that makes them."""

    name: str
    calls: Mapping[str, int]
    script: str


ISSUES = Workflow(
    "answer an issue",
    {"list_issues": 3000, "issue_read": 800, "add_issue_comment": 150},
    "from github import list_issues, issue_read, add_issue_comment\n"
    'found = await list_issues(owner="acme", repo="app", labels=["bug"], state="OPEN")\n'
    'number = found["issues"][0]["number"]\n'
    'comments = await issue_read(method="get_comments", owner="acme", repo="app", issue_number=number)\n'
    'reports = [one for one in comments if one["author_association"] == "NONE"]\n'
    'await add_issue_comment(owner="acme", repo="app", issue_number=number, body=f"{len(reports)} reports")\n'
    '{"issue": number, "reports": len(reports)}',
)
REVIEW = Workflow(
    "merge a pull request",
    {"list_pull_requests": 3000, "pull_request_read": 2000, "merge_pull_request": 100},
    "from github import list_pull_requests, pull_request_read, merge_pull_request\n"
    'open_ones = await list_pull_requests(owner="acme", repo="app", state="open")\n'
    'number = open_ones[0]["number"]\n'
    'checks = await pull_request_read(method="get_status", owner="acme", repo="app", pullNumber=number)\n'
    'if checks["state"] == "success":\n'
    '    await merge_pull_request(owner="acme", repo="app", pullNumber=number)\n'
    '{"number": number, "state": checks["state"]}',
)
CHANGE = Workflow(
    "change a file",
    {"search_code": 2500, "get_file_contents": 1500, "create_or_update_file": 300},
    "from github import search_code, get_file_contents, create_or_update_file\n"
    'found = await search_code(query="repo:acme/app timeout=30")\n'
    'path = found["items"][0]["path"]\n'
    'old = await get_file_contents(owner="acme", repo="app", path=path)\n'
    'await create_or_update_file(owner="acme", repo="app", path=path, branch="main", message="Wait longer",\n'
    '    content=old["text"].replace("timeout=30", "timeout=60"), sha=old["sha"])\n'
    "path",
)
NOTES = Workflow(
    "collect notes from files",
    {"list_directory": 600, "read_text_file": 2500, "add_observations": 200},
    "from filesystem import list_directory, read_text_file\n"
    "from memory import add_observations\n"
    'names = [line.split()[-1] for line in (await list_directory(path="notes")).splitlines()]\n'
    'text = await read_text_file(path=f"notes/{names[0]}")\n'
    'done = [line for line in text.splitlines() if line.startswith("- [x]")]\n'
    'await add_observations(observations=[{"entityName": "work", "contents": done}])\n'
    "len(done)",
)
PAGE = Workflow(
    "click in a page",
    {"browser_navigate": 1500, "browser_snapshot": 4000, "browser_click": 1500},
    "from playwright import browser_navigate, browser_snapshot, browser_click\n"
    'await browser_navigate(url="https://example.com/orders")\n'
    "page = await browser_snapshot()\n"
    'line = next(one for one in page.splitlines() if "Ship" in one)\n'
    'await browser_click(target=line.split("ref=")[1].split("]")[0])\n'
    "line.strip()",
)
#: The lists of servers and the workflows that are measured over them.
CASES: Mapping[str, tuple[Sequence[str], Sequence[Workflow]]] = {
    "one server": (("github",), (ISSUES, REVIEW, CHANGE)),
    "seven servers": ((), (ISSUES, NOTES, PAGE)),
}


def with_text(schema: Any) -> Any:
    """Put text into the places of descriptions."""
    if isinstance(schema, list):
        return [with_text(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: filler(value) if name == "description" and isinstance(value, int) else with_text(value)
        for name, value in schema.items()
    }


def filler(length: int) -> str:
    """Return text of a length."""
    return (FILLER * (length // len(FILLER) + 1))[:length]


def listed(servers: Sequence[str]) -> dict[str, list[Tool]]:
    """Return the tools of some servers; of all if there is none."""
    lists = json.loads(LISTS.read_text(encoding="utf-8"))
    return {name: msgspec.convert(with_text(lists[name]), list[Tool]) for name in servers or lists}


def server_of(tools: Sequence[Tool]) -> Server[Any]:
    """Return a server that lists these tools, and has no others."""

    async def lists(ctx: Context[Any], call_next: Any) -> Any:
        return ListToolsResult(tools=list(tools)) if ctx.method == "tools/list" else await call_next(ctx)

    return Server("server", middleware=[lists])


def plain(tools: Sequence[Tool]) -> str:
    """Return a list of tools as a model is given it."""
    members = [
        {"name": one.name, "description": one.description or "", "input_schema": one.input_schema} for one in tools
    ]
    return json.dumps(members, separators=(",", ":"), ensure_ascii=False)


class Texts(NamedTuple):
    """What a model reads of one workflow."""

    plain: str
    code: str
    looked_up: str
    script: str


async def texts_of(lists: Mapping[str, list[Tool]], workflow: Workflow) -> Texts:
    """Return what code mode gives a model."""
    gateway = Server("gateway", middleware=[CodeMode()])
    for name, tools in lists.items():
        gateway.mount(server_of(tools), name)
    async with Client(gateway) as client:
        own = await client.list_tools()
        found: CallToolResult = await client.call_tool("search_tools", {"names": list(workflow.calls)})
    assert all(isinstance(block, TextContent) for block in found.content)
    every = [tool for tools in lists.values() for tool in tools]
    return Texts(plain(every), plain(own), found.text, workflow.script)


def count(texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text."""
    if not (CACHE / "node_modules" / "gpt-tokenizer").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        install = [
            "npm",
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-save",
            "--prefix",
            str(CACHE),
            TOKENIZER,
        ]
        subprocess.run(install, check=True)
    done = subprocess.run(
        ["node", "-e", COUNT], input=json.dumps(texts), capture_output=True, text=True, check=True, cwd=CACHE
    )
    counted: list[int] = json.loads(done.stdout)
    return counted


def read_in_turns(tools: int, turns: Sequence[tuple[int, int]]) -> int:
    """Return the tokens that a model reads in all.

    Args:
        tools: Those of the list.
        turns: What it writes in each turn and what comes back; its answer is one turn more.
    """
    context = read = tools
    for wrote, came in turns:
        context += wrote + came
        read += context
    return read


def rows() -> list[str]:
    """Return the lines of the table."""
    cases = [(name, listed(servers), one) for name, (servers, workflows) in CASES.items() for one in workflows]
    texts = [asyncio.run(texts_of(lists, workflow)) for _, lists, workflow in cases]
    counted = cycle(count([text for each in texts for text in each]))
    lines = [
        "| tools of | workflow | list | list, code mode | read in all | read in all, code mode | part |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, lists, workflow in cases:
        of_list, of_code, looked_up, script = (next(counted) for _ in Texts._fields)
        whole = read_in_turns(of_list, [(CALL, result) for result in workflow.calls.values()])
        code = read_in_turns(of_code, [(CALL, looked_up), (script, RETURNED)])
        number = sum(map(len, lists.values()))
        lines.append(
            f"| {name} ({number}) | {workflow.name} | {of_list:,} | {of_code:,} | {whole:,} | {code:,} | {code / whole:.1%} |"
        )
    return lines


def main() -> None:
    """Print the table."""
    print("\n".join(rows()))


if __name__ == "__main__":
    main()
