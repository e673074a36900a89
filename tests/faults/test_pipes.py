"""Real processes that go wrong at every step of a call: each caller gets one outcome, promptly, and nothing is left."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Limits
from tests.faults.bystanders import PROMPTLY, Caller, alive, ending_of, quiet_loop
from tests.faults.table import Case, read_cases
from tests.support import EraName

pytestmark = pytest.mark.timeout(120)  # each test starts up to ten processes at once

HERE = Path(__file__).parent
BOTH: tuple[str, ...] = ("2025", "2026")
STEPS = {
    "discover": ("2026",),
    "initialize": ("2025",),
    "initialized": ("2025",),
    "list": BOTH,
    "call": BOTH,
    "question": BOTH,
    "answer": BOTH,
}
CASES = list(read_cases(HERE / "pipes.faults", STEPS))
LIMITS = Limits(line=1_000_000, teardown=2.0)
#: Where silence is what ends a call, it ends it soon; everywhere else it is no way out.
SOON = Limits(call_idle=1.5, probe=1.5, connect=4.0, line=1_000_000, teardown=2.0)


def faulty(era: str, step: str, does: Sequence[str], **more: Any) -> list[str]:
    """The command line of a server that goes wrong."""
    plan = {"era": era, "step": step, "does": does, **more}
    return [sys.executable, "-I", "-S", str(HERE / "server.py"), json.dumps(plan)]


def client_of(case: Case, **options: Any) -> Client:
    era: EraName = "2025" if case.era == "2025" else "2026"
    return Client(
        faulty(case.era, case.step, case.does),
        era=era,
        limits=SOON if {"late", "failed"} & {*case.outcome.split("~")} else LIMITS,
        reconnect=False,
        stderr="discard",
        patience=0.2,
        on_elicit=lambda form: {"name": "Ada"},
        **options,
    )


async def run(case: Case) -> tuple[str, list[str]]:
    """How the call at the faulty step ended, and how the others did."""
    client = client_of(case)
    try:
        connected = await ending_of(client.connect())
        if case.step in ("discover", "initialize"):
            return connected, []
        assert connected == "ok"
        if case.step == "list":
            return await ending_of(client.list_tools()), []
        if case.step in ("question", "answer"):
            asking = Caller(client, "ask")
            ended = await asking.call()
            asking.check()
            assert ended != "ok" or asking.answer == "Ada"
            return ended, []
        callers = [Caller(client, n=number) for number in range(3)]
        endings = await asyncio.gather(*(caller.call() for caller in callers))
        for caller in callers:
            caller.check()
            assert caller.endings != ["ok"] or json.loads(caller.answer) == caller.arguments
        return endings[0], endings[1:]
    finally:
        async with asyncio.timeout(PROMPTLY):
            await client.close()
        await asyncio.sleep(0)


@pytest.mark.parametrize("fault", {case.fault: None for case in CASES})
async def test_a_fault_of_a_process_ends_each_call_once_and_in_time(fault: str) -> None:
    """At every step, in both eras."""
    cases = [case for case in CASES if case.fault == fault]
    async with quiet_loop():
        ended = await asyncio.gather(*(run(case) for case in cases))
    wrong = [
        f"{case.era} {case.step}: {first} {others}, not {case.outcome}/{case.others}"
        for case, (first, others) in zip(cases, ended, strict=True)
        if not case.allows(first, *others)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.long
@pytest.mark.parametrize("era", BOTH)
async def test_faults_leave_no_object_behind(era: str) -> None:
    """All faults twice over; the second time adds nothing to what is held."""
    cases = [case for case in CASES if case.step in ("call", "answer") and case.era == era]
    counts = []
    for _ in range(2):
        for place in range(0, len(cases), 10):
            await asyncio.gather(*(run(case) for case in cases[place : place + 10]))
        counts.append(alive())
    assert not counts[1] - counts[0]
