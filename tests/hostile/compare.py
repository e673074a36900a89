"""Run the hostile cases against servers made with several SDKs: `python -m tests.hostile.compare --help`.

The servers have the same tools, prompts and resources, and the default settings of their SDK. Cases about decisions that the
specification leaves to a server (`CHOICES`) are not run; a case that one of the servers has no feature for is counted for none.
The table is written into docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import platform
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from tests.hostile import run
from tests.hostile.cases import Case, Flow, Raw
from tests.hostile.drivers import Lines, Lost, Posts, Problem, kind_of
from tests.hostile.run import Corpus, Outcome, corpus
from tests.interop import peers
from tools.measured import write_measured

PAGE = peers.ROOT / "docs" / "reliability.md"
#: Cases about what the specification leaves open: patterns of names, and what Gemel has decided.
CHOICES: dict[str, str] = {
    "* twice": "repeated members of an object are refused",
    "* by_schema with *": "the tool has a schema of its own",
    "* add number *": "numbers that are no double are refused",
    '* add {"a": 1, "b": 2, *': "unknown arguments are refused",
    "* add with *": "unknown arguments are refused, and how large others may be",
    "* echo lone surrogate *": "lone surrogates are refused",
    "* the tool crash": "messages of unexpected exceptions are hidden",
    "* item *": "variables of a template are converted by their type",
    "* complete ref/*": "unknown references are found by the SDK, not by a handler",
    "a repeated id": "a second request of an id in flight is refused",
    "initialize twice*": "a second handshake is answered",
    "* without initialized": "what is served between initialize and initialized",
    "discover, then initialize": "both eras on one connection",
    "a stateless request *": "both eras on one connection",
    "an unknown claim before initialize": "both eras on one connection",
    "* unasked": "answers to questions that were not asked are ignored",
    "origin * and not JSON": "the site is looked at first",
    "a batch that is too long": "limits of a batch",
    "a line over the limit": "limits of a line",
    "the input ends during a call": "a call is finished after the end of the input",
    "host *": "which hosts are allowed",
    "path *": "which paths are served is decided by the program",
    "*more than the limit*": "limits of a body",
    "a body of [0-9]*": "limits of a body",
    "*5,000 headers": "limits of headers",
    "a header of *": "limits of headers",
    "a header name of *": "limits of headers",
    "a request line of *": "limits of a request line",
}
#: Kinds of outcomes, in the order of the table.
KINDS: dict[str, str] = {
    "ok": "as specified",
    "other": "another answer",
    "silent": "no answer",
    "hung": "hung",
    "lost": "connection lost, or server ended",
}
ROUTES = {"stdio": "stdio: messages and conversations", "http": "HTTP: messages and requests"}


class Sdk(NamedTuple):
    """An SDK: its name and version, its interpreter, and the program of its server."""

    name: str
    interpreter: Path
    program: Path

    @property
    def forks(self) -> bool:
        """Whether processes can be forked from a program that is imported."""
        return self.program.suffix == ".py"


def sdks() -> list[Sdk]:
    """Install the peers, and return all SDKs."""
    places = peers.install(frozenset({"peers", "fastmcp", "node"}))
    version = peers.version_of
    return [
        Sdk("Gemel", Path(sys.executable), Path(__file__).with_name("target.py")),
        Sdk(f"`mcp` {version('peers', 'mcp')}", places.peers_python, peers.script("target_python.py")),
        Sdk(
            f"FastMCP {version('fastmcp', 'fastmcp')}",
            places.python("fastmcp"),
            peers.script("target_fastmcp.py"),
        ),
        Sdk(
            f"TypeScript SDK {version('node', '@modelcontextprotocol/server')}",
            places.node,
            peers.script("target_typescript.mjs"),
        ),
    ]


def is_choice(case: Case | Flow | Raw) -> bool:
    """Whether a case is about what the specification leaves open."""
    return any(fnmatchcase(case.name, pattern) for pattern in CHOICES)


def compared(every: int) -> Corpus:
    """The cases about what the specification says."""
    messages, flows, http = corpus("", every)
    return Corpus(
        [case for case in messages if not is_choice(case)],
        [case for case in flows if not is_choice(case)],
        [case for case in http if not is_choice(case)],
    )


def shards(cases: Corpus, number: int) -> Iterable[Corpus]:
    """Cut cases into so many parts."""
    for first in range(number):
        yield Corpus(cases.messages[first::number], cases.flows[first::number], cases.http[first::number])


async def over_stdio(sdk: Sdk, cases: Corpus, parallel: int) -> list[Outcome]:
    """Run cases on lines, on several connections at a time."""
    async with contextlib.AsyncExitStack() as stack:
        if sdk.forks:
            words = [str(sdk.interpreter), str(peers.script("forked.py")), str(sdk.program)]
            address = ("127.0.0.1", await stack.enter_async_context(run.started_command(words)))
            lines = [Lines(None, address) for _ in range(parallel)]
        else:
            lines = [Lines(f"{sdk.interpreter} {sdk.program} stdio", settle=True) for _ in range(parallel)]
        runs = (run.run_lines("stdio", each, part) for each, part in zip(lines, shards(cases, parallel), strict=True))
        return [outcome for outcomes in await asyncio.gather(*runs) for outcome in outcomes]


async def over_http(sdk: Sdk, cases: Corpus, parallel: int) -> list[Outcome]:
    """Run cases over HTTP, on several connections at a time."""
    found: list[Outcome] = []
    try:
        async with run.started_command([str(sdk.interpreter), str(sdk.program), "http"]) as port:
            url = f"http://127.0.0.1:{port}/mcp"
            runs = (run.run_posts(Posts(url, lenient=True), part) for part in shards(cases, parallel))
            found = [outcome for outcomes in await asyncio.gather(*runs) for outcome in outcomes]
    except Lost as exc:
        found.append(Outcome("http", "the server at the end", Problem(str(exc), "ended")))
    return found


class Figures(NamedTuple):
    """Of one SDK: the outcome of each case that it has the features for, by route and name."""

    sdk: Sdk
    kinds: dict[tuple[str, str], str]
    problems: dict[tuple[str, str], str]


async def measure(sdk: Sdk, cases: Corpus, parallel: int) -> Figures:
    """Run all cases against the server of one SDK."""
    outcomes = await over_stdio(sdk, cases, parallel) + await over_http(sdk, cases, parallel)
    found = {(each.route, each.name): each for each in outcomes if each.skipped is None}
    return Figures(
        sdk,
        {key: kind(each.problem) for key, each in found.items()},
        {key: each.problem for key, each in found.items() if each.problem is not None},
    )


def kind(problem: str | None) -> str:
    """Return the row of an outcome."""
    found = "ok" if problem is None else kind_of(problem)
    return "lost" if found == "ended" else found


def table(figures: Sequence[Figures]) -> str:
    """Return the table of all SDKs, one part for each route."""
    lines = [f"| | {' | '.join(each.sdk.name for each in figures)} |", f"|---{'|---:' * len(figures)}|"]
    for route, title in ROUTES.items():
        shared = set.intersection(*({key for key in each.kinds if key[0] == route} for each in figures))
        lines.append(f"| **{title}**, {len(shared)} cases |{' |' * len(figures)}")
        counts = [Counter(each.kinds[key] for key in shared) for each in figures]
        lines += [f"| {words} | {' | '.join(str(count[kind]) for count in counts)} |" for kind, words in KINDS.items()]
    return "\n".join(lines)


def measured(figures: Sequence[Figures], cases: Corpus) -> str:
    """Return the part of the page that a run writes."""
    left_out = len(corpus()) - len(compared(1))
    return (
        f"{date.today():%-d %B %Y}, Python {platform.python_version()}, one run of {len(cases)} cases on each route that they"
        f" have; {left_out} more are about choices and are left out.\n\n{table(figures)}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.compare", description="Compare SDKs.")
    parser.add_argument("--every", type=int, default=1, help="only every so many cases; the page is not written then")
    parser.add_argument("--parallel", type=int, default=6, help="connections at a time")
    parser.add_argument("--only", default="", help="SDKs whose names contain this text; the page is not written then")
    parser.add_argument("--log", type=Path, default=peers.CACHE / "reliability.log", help="where each problem is told")
    options = parser.parse_args(arguments)
    cases = compared(options.every)
    figures = []
    options.log.parent.mkdir(exist_ok=True)
    with options.log.open("w", encoding="utf-8", buffering=1) as log:
        for sdk in sdks():
            if options.only not in sdk.name:
                continue
            print(f"{sdk.name} …", flush=True)
            each = asyncio.run(measure(sdk, cases, options.parallel))
            figures.append(each)
            print(f"{sdk.name}: {dict(Counter(each.kinds.values()))}", flush=True)
            for (route, name), problem in each.problems.items():
                log.write(f"{sdk.name} {route} {each.kinds[route, name]} {name}: {problem}\n")
    text = measured(figures, cases)
    print(text)
    if options.every == 1 and not options.only:
        write_measured(PAGE, "hostile", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
