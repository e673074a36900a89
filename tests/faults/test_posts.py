"""HTTP servers that go wrong at every step of a call, on real sockets: one outcome each, promptly, nothing run twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from gemel import Client, Limits
from tests.faults.bystanders import PROMPTLY, Caller, alive, ending_of, quiet_loop
from tests.faults.posts import Posts
from tests.faults.table import Case, read_cases
from tests.support import EraName
from tests.transports.scripted_http import ScriptedServer

BOTH: tuple[str, ...] = ("2025", "2026")
STEPS = {
    "discover": ("2026",),
    "initialize": ("2025",),
    "initialized": ("2025",),
    "list": BOTH,
    "call": BOTH,
    "read": BOTH,
    "question": BOTH,
    "answer": BOTH,
}
CASES = list(read_cases(Path(__file__).with_name("posts.faults"), STEPS))
LIMITS = Limits(reply=1_000_000, teardown=2.0)
#: Where silence is what ends a call, it ends it soon; everywhere else it is no way out.
SOON = Limits(call_idle=0.6, connect=1.2, reply=1_000_000, teardown=2.0)


def client_of(case: Case, url: str) -> Client:
    era: EraName = "2025" if case.era == "2025" else "2026"
    limits = SOON if {"late", "failed"} & {*case.outcome.split("~")} else LIMITS
    return Client(url, era=era, limits=limits, on_elicit=lambda form: {"name": "Ada"})


async def run(case: Case) -> tuple[str, list[str], Posts]:
    """How the call at the faulty step ended, how the others did, and what the server saw."""
    posts = Posts(case)
    async with ScriptedServer(posts) as server:
        client = client_of(case, server.url)
        try:
            first, others = await use(client, case)
        finally:
            async with asyncio.timeout(PROMPTLY):
                await client.close()
    await asyncio.sleep(0)
    return first, others, posts


async def use(client: Client, case: Case) -> tuple[str, list[str]]:
    connected = await ending_of(client.connect())
    if case.step in ("discover", "initialize", "initialized"):
        return connected, []
    assert connected == "ok"
    if case.step == "list":
        return await ending_of(client.list_tools()), []
    if case.step in ("question", "answer"):
        callers = [Caller(client, "ask")]
    elif case.step == "read":
        await client.list_tools()
        callers = [Caller(client, "read")]
    else:
        callers = [Caller(client, n=number) for number in range(3)]
    endings = await asyncio.gather(*(caller.call() for caller in callers))
    for caller in callers:
        caller.check()
    return endings[0], endings[1:]


@pytest.mark.parametrize("fault", {case.fault: None for case in CASES})
async def test_a_fault_over_http_ends_each_call_once_in_time_and_runs_nothing_twice(fault: str) -> None:
    """At every step, in both eras; only what says that it is safe is repeated."""
    cases = [case for case in CASES if case.fault == fault]
    async with quiet_loop():
        ended = await asyncio.gather(*(run(case) for case in cases))
    wrong = []
    for case, (first, others, posts) in zip(cases, ended, strict=True):
        if not case.allows(first, *others):
            wrong.append(f"{case.era} {case.step}: {first} {others}, not {case.outcome}/{case.others}")
        assert posts.faults == 1
        runs = Counter(posts.server.runs)
        if "status-429" in case.does:  # it says that it has not run what it ran
            continue
        assert max([count for run, count in runs.items() if not run.startswith("read")], default=1) == 1
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("era", BOTH)
async def test_faults_over_http_leave_no_object_behind(era: str) -> None:
    """All faults twice over; the second time adds nothing to what is held."""
    cases = [case for case in CASES if case.step in ("call", "answer") and case.era == era]
    counts = []
    for _ in range(2):
        for place in range(0, len(cases), 10):
            await asyncio.gather(*(run(case) for case in cases[place : place + 10]))
        counts.append(alive())
    assert not counts[1] - counts[0]
