"""What the same server does with Gemel and its peers, and what an installation brings: `python -m benchmarks.behaviour`.

Writes the table of docs/comparison.md. Each server runs as a process of its own on stdio; Gemel's client calls it in each
era. The peers come from `.cache`, where `make interop` installs them.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

from gemel import CallError, Changed, Client
from tests.interop.peers import ROOT, install
from tools.measured import write_measured

PROGRAMS = Path(__file__).parent / "programs"
Era = Literal["2025", "2026"]
ERAS: tuple[Era, ...] = ("2025", "2026")

#: The distributions that a requirement brings, and the bytes of their files. What a marker excludes is not installed.
_SIZE = """
import importlib.metadata as metadata, json, os, re, sys
def parts(text):
    found = re.match(r"([\\w.-]+)\\s*(?:\\[([^]]*)\\])?", text)
    return re.sub(r"[-_.]+", "-", found[1]).lower(), tuple(one.strip() for one in (found[2] or "").split(",") if one.strip())
seen, done, left = {}, set(), [sys.argv[1]]
while left:
    name, extras = parts(left.pop())
    if (name, extras) in done: continue
    done.add((name, extras))
    try: found = metadata.distribution(name)
    except metadata.PackageNotFoundError: continue
    files = [file.locate() for file in found.files or () if not str(file).endswith(".pyc")]
    seen[name] = sum(os.path.getsize(path) for path in files if os.path.exists(path))
    for text in found.requires or ():
        wanted = re.findall(r"extra == .([\\w-]+).", text)
        if not wanted or set(wanted) & set(extras): left.append(text)
name, _ = parts(sys.argv[1])
print(json.dumps([metadata.version(name), len(seen), sum(seen.values())]))
"""


def main() -> int:
    """Print the table, and write it into the page."""
    peers = install(frozenset({"peers", "fastmcp"}))
    pythons = {
        "Gemel": ("gemel", Path(sys.executable)),
        "mcp": ("mcp", peers.peers_python),
        "FastMCP": ("fastmcp", peers.python("fastmcp")),
    }
    sizes = {name: _size(distribution, python) for name, (distribution, python) in pythons.items()}
    rows: dict[str, list[str]] = {}
    for name, (_, python) in pythons.items():
        program = PROGRAMS / f"behaviour_{name.lower()}.py"
        for question, answer in asyncio.run(_behaviour([str(python), str(program)])).items():
            rows.setdefault(question, []).append(answer)
    counts = [str(count) for _, count, _ in sizes.values()]
    lines = [["", *(f"{name} {version}" for name, (version, _, _) in sizes.items())], ["---"] * (1 + len(pythons))]
    lines += [["packages that an installation brings, with itself", *counts]]
    lines += [["… their size", *(f"{size / 1e6:.0f} MB" for _, _, size in sizes.values())]]
    lines += [[question, *answers] for question, answers in rows.items()]
    text = (
        "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
        + f"\n\n{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}."
    )
    print(text)
    write_measured(ROOT / "docs" / "comparison.md", "behaviour", text)
    return 0


def _size(distribution: str, python: Path) -> tuple[str, int, int]:
    done = subprocess.run([python, "-c", _SIZE, distribution], check=True, capture_output=True, text=True)
    version, count, size = json.loads(done.stdout)
    return version, count, size


async def _behaviour(command: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for era in ERAS:
        options = {"env": dict(os.environ), "stderr": "discard", "cwd": ROOT}
        async with Client(command, era=era, on_elicit=lambda form: {"value": True}, **options) as client:  # type: ignore[arg-type]  # the options differ by row
            found[f"`await ctx.elicit(…)` in a tool asks the user, era {era}"] = await _asked(client)
            found[f"clients are told of a tool that is added, without further code, era {era}"] = await _told(client)
            if era == "2026":
                found["a tool declared `-> int` returns a string"] = await _wrong(client)
    found["a call that runs when the input ends is answered"] = await asyncio.to_thread(_answered, command)
    return dict(sorted(found.items(), key=lambda item: item[0].startswith("a ")))


async def _asked(client: Client) -> str:
    try:
        result = await client.call_tool("ask", raise_on_error=False, total=10)
    except CallError:
        return "no: the call fails"
    return "yes" if result.text == "answered True" else "no: the call fails"


async def _told(client: Client) -> str:
    try:
        async with client.listen(tools=True) as changes:
            await client.call_tool("grow")
            async with asyncio.timeout(3):
                return "yes" if await anext(changes) == Changed("tools") else "no"
    except (CallError, TimeoutError):
        return "no"


async def _wrong(client: Client) -> str:
    try:
        result = await client.call_tool("wrong", raise_on_error=False)
    except CallError:
        return "sent to the client"
    return "an error of the server" if result.is_error else "sent to the client"


def _answered(command: list[str]) -> str:
    """Write a call and close the input at once, as `echo … | python server.py` does."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "pipe", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "slow", "arguments": {}, "_meta": meta},
    }
    text = json.dumps(call) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    return "yes" if '"done"' in done.stdout else "no"


if __name__ == "__main__":
    sys.exit(main())
