"""Run the hostile cases against a server: `python -m tests.hostile.run --help`.

python -m tests.hostile.run                                   this project's own server, on all routes
python -m tests.hostile.run --command "python server.py"      another server, on its standard streams
python -m tests.hostile.run --url http://127.0.0.1:8000/mcp   or over HTTP, or tcp://HOST:PORT
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tests.hostile import flows, http_requests, messages
from tests.hostile.cases import METHOD_NOT_FOUND, Case, Era, Flow, Json, Raw, request
from tests.hostile.drivers import HUNG, START, Lines, Lost, Posts, run_flow
from tests.hostile.known import KNOWN
from tests.ports import free_port

ERAS: tuple[Era, ...] = ("2025", "2026")
TARGET = f"{sys.executable} -m tests.hostile.target"


class Outcome(NamedTuple):
    """What became of one case: a problem, or None; `skipped` says what the target does not have."""

    route: str
    name: str
    problem: str | None = None
    skipped: str | None = None


#: Valid requests of methods that a server need not have, by the names of their capabilities.
OPTIONAL: dict[Era, dict[str, tuple[str, Json]]] = {
    era: {
        "completions": ("completion/complete", messages.METHODS[era]["completion/complete"][0]),
        **(
            {
                "logging": ("logging/setLevel", {"level": "debug"}),
                "subscribe": ("resources/subscribe", {"uri": "test://text"}),
            }
            if era == "2025"
            else {"listen": ("subscriptions/listen", {"notifications": "x"})}
        ),
    }
    for era in ERAS
}


async def offered_by(ask: Any, era: Era) -> set[str]:
    """Return the names of what a server offers: tools, prompts, resources, capabilities."""
    names: set[str] = set()
    for name, (method, params) in OPTIONAL[era].items():
        refused: Json = {}
        with contextlib.suppress(TimeoutError):  # a server that does not answer params that are wrong
            refused = await ask(request(method, params, era))
        if refused.get("error", {}).get("code") != METHOD_NOT_FOUND:
            names.add(name)
    for method, member, field in (
        ("tools/list", "tools", "name"),
        ("prompts/list", "prompts", "name"),
        ("resources/list", "resources", "uri"),
        ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ):
        answer: Json = await ask(request(method, {}, era))
        for item in answer.get("result", {}).get(member, ()):
            names |= {item[field], member if member != "resourceTemplates" else "resources"}
    return names


class Corpus(NamedTuple):
    """The cases to run."""

    messages: Sequence[Case]
    flows: Sequence[Flow]
    http: Sequence[Raw]

    def __len__(self) -> int:
        return sum(map(len, self[:]))

    def names(self) -> Iterator[str]:
        """The names of all cases."""
        for table in self[:]:
            yield from (case.name for case in table)


def corpus(only: str = "", every: int = 1) -> Corpus:
    """Return the cases whose names contain a text, or only every so many of them."""

    def some(cases: Sequence[Any]) -> Sequence[Any]:
        return [case for case in cases if only in case.name][::every]

    return Corpus(some(messages.cases()), some(flows.flows()), some(http_requests.requests()))


async def run_lines(route: str, driver: Lines, corpus: Corpus) -> list[Outcome]:
    """Run cases on lines."""
    outcomes = []
    ever_offered: set[str] = set()
    for era in ERAS:
        await driver.open(era)

        async def ask(text: bytes) -> Json:
            driver.answers.pop('"list"', None)
            await driver.send(text.replace(b"@ID@", b"list"))
            return (await driver.wait_for("list", START))[0]

        offered = await offered_by(ask, era)
        ever_offered |= offered
        for case in corpus.messages:
            if case.era != era or "lines" not in case.over:
                continue
            missing = [name for name in case.needs if name not in offered]
            if missing:
                outcomes.append(Outcome(route, case.name, skipped=missing[0]))
                continue
            problem = await driver.run(case, era)
            outcomes.append(Outcome(route, case.name, problem))
            if driver.ended or problem is HUNG:
                await driver.open(era)
    for flow in corpus.flows:
        missing = [name for name in flow.needs if name not in ever_offered]
        if missing:
            outcomes.append(Outcome(route, flow.name, skipped=missing[0]))
        else:
            outcomes.append(Outcome(route, flow.name, await run_flow(driver, flow)))
    await driver.close()
    return outcomes


async def run_posts(driver: Posts, corpus: Corpus) -> list[Outcome]:
    """Run message cases over HTTP."""
    outcomes = []

    offered = {}
    for era in ERAS:

        async def ask(text: bytes, era: Era = era) -> Json:
            reply = await driver.post(text, await driver.headers_for(text, era))
            return next(message for message in reply.messages if "method" not in message)

        offered[era] = await offered_by(ask, era)
    for case in corpus.messages:
        if "http" not in case.over:
            continue
        missing = [name for name in case.needs if name not in offered[case.era]]
        if missing:
            outcomes.append(Outcome("http", case.name, skipped=missing[0]))
            continue
        outcomes.append(Outcome("http", case.name, await driver.run(case, case.era)))
    outcomes += [Outcome("http", case.name, await driver.run_raw(case)) for case in corpus.http]
    return outcomes


# ---------------------------------------------------------------- targets


def started(*options: str, module: str = "tests.hostile.target") -> contextlib.AbstractAsyncContextManager[int]:
    """Run the own target, or another program, on a free port."""
    return started_command([sys.executable, "-m", module, *options])


@contextlib.asynccontextmanager
async def started_command(words: Sequence[str]) -> AsyncIterator[int]:
    """Run a server whose last argument is a port, on a free one. Raises Lost if it does not listen, or ends meanwhile."""
    port = free_port()
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*words, str(port), stdout=null, stderr=null)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.close()
                break
            await asyncio.sleep(0.05)
        else:
            raise Lost("the server does not listen")
        yield port
        if process.returncode is not None:
            raise Lost(f"the server ended with code {process.returncode}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def run_url(url: str, corpus: Corpus) -> list[Outcome]:
    """Run all cases that fit a URL."""
    parts = urlsplit(url)
    if parts.scheme == "tcp":
        return await run_lines("socket", Lines(None, (parts.hostname or "", parts.port or 0)), corpus)
    return await run_posts(Posts(url), corpus)


async def run_own(corpus: Corpus, routes: Sequence[str]) -> list[Outcome]:
    """Run the cases against the own target."""
    outcomes: list[Outcome] = []
    if "stdio" in routes:
        outcomes += await run_lines("stdio", Lines(TARGET), corpus)
    if "socket" in routes:
        async with started("--socket") as port:
            outcomes += await run_url(f"tcp://127.0.0.1:{port}", corpus)
    if "http" in routes:
        async with started("--http") as port:
            outcomes += await run_url(f"http://127.0.0.1:{port}/mcp", corpus)
    return outcomes


# ---------------------------------------------------------------- reporting


def known_reason(outcome: Outcome) -> str | None:
    """Return why a case of the own target is known to fail."""
    return next((reason for pattern, reason in KNOWN.items() if fnmatchcase(outcome.name, pattern)), None)


def wrong_outcomes(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Return the failures of the own target that are not known."""
    return [outcome for outcome in outcomes if outcome.problem is not None and known_reason(outcome) is None]


def report(outcomes: Sequence[Outcome], *, verbose: bool, own: bool) -> bool:
    """Print the outcomes; return whether all is well."""
    counts = {"ok": 0, "skipped": 0, "known": 0, "WRONG": 0}
    for outcome in outcomes:
        reason = known_reason(outcome) if own else None
        if outcome.skipped is not None:
            kind, words = "skipped", f"the target has no {outcome.skipped}"
        elif outcome.problem is None:
            kind, words = "ok", ""
        elif reason is not None:
            kind, words = "known", reason
        else:
            kind, words = "WRONG", outcome.problem
        counts[kind] += 1
        if verbose or kind == "WRONG":
            print(f"{kind:7} {outcome.route} {outcome.name}{': ' if words else ''}{words}")
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    for pattern in KNOWN if own else ():
        fitting = [outcome for outcome in outcomes if fnmatchcase(outcome.name, pattern)]
        if fitting and all(outcome.problem is None for outcome in fitting):
            print(f"a known failure that does not fail any more: {pattern}")
    return not counts["WRONG"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile.run", description="Run the hostile cases.")
    parser.add_argument("--command", help="a server on its standard streams")
    parser.add_argument("--url", help="a server at http://…, or tcp://HOST:PORT for lines")
    parser.add_argument("--only", default="", help="cases whose names contain this text")
    parser.add_argument("--route", action="append", choices=("stdio", "socket", "http"), help="of the own server")
    parser.add_argument("--every", type=int, default=1, help="only every so many cases")
    parser.add_argument("-v", "--verbose", action="store_true", help="print every case")
    parser.add_argument("--list", action="store_true", help="print the names of all cases")
    options = parser.parse_args(arguments)
    cases = corpus(options.only, options.every)
    if options.list:
        print("\n".join(cases.names()))
        return 0
    if options.command:
        outcomes = asyncio.run(run_lines("stdio", Lines(options.command), cases))
    elif options.url:
        outcomes = asyncio.run(run_url(options.url, cases))
    else:
        outcomes = asyncio.run(run_own(cases, options.route or ("stdio", "socket", "http")))
    own = not (options.command or options.url)
    return 0 if report(outcomes, verbose=options.verbose, own=own) else 1


if __name__ == "__main__":
    sys.exit(main())
