"""The client's negotiation against servers of all kinds: it ends after a few steps, and never in a misunderstanding."""

from __future__ import annotations

from typing import Any
from unittest import mock

import msgspec
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from gemel import CallError, ConnectFailed, ConnectionLost, Discovery, ErrorObject, PeerError
from gemel.client import negotiation
from gemel.client.negotiation import Initialize, Probe, StepAnswer, negotiate
from tests.fuzz import messages
from tests.fuzz.ends import examples
from tests.support import HANDSHAKE_REVISIONS, STATELESS_REVISIONS, EraName

#: Revisions of a world in which there were more of them: names sort by age.
HANDSHAKE = ("a1", "a2", "a3", "a4")
STATELESS = ("b1", "b2", "b3")
#: Probe, handshake, second handshake, late answer, and once more after a wrong guess.
MOST_STEPS = 6

subsets = st.sets(st.sampled_from(HANDSHAKE))
modern_subsets = st.sets(st.sampled_from(STATELESS))
eras: st.SearchStrategy[Any] = st.sampled_from(["auto", "2025", "2026"])


class Peer:
    """A server that speaks `old` and `new` revisions. `manner` is how it treats what it doesn't know."""

    def __init__(self, old: set[str], new: set[str], manner: str, polite: bool) -> None:
        self.old, self.new = sorted(old), sorted(new)
        self.manner = manner
        self.polite = polite
        self.agreed: str | None = None

    def answer(self, step: Probe | Initialize) -> StepAnswer:
        return self._discover(step.revision) if isinstance(step, Probe) else self._initialize(step.revision)

    def _discover(self, revision: str) -> StepAnswer:
        if not self.new:
            return self._unknown("discover")
        if revision not in self.new:
            return _refused("discover", -32022, {"supported": self.new + self.old, "requested": revision})
        self.agreed = revision
        return _result("discover", supportedVersions=self.new[::-1] + self.old, capabilities={}, resultType="complete")

    def _initialize(self, revision: str) -> StepAnswer:
        if not self.old:
            return _refused("initialize", -32601, {"supported": self.new})
        if revision not in self.old and not self.polite:
            return _refused("initialize", -32602, {"supported": self.old, "requested": revision})
        self.agreed = revision if revision in self.old else self.old[-1]
        info = {"name": "peer", "version": "1"}
        return _result("initialize", protocolVersion=self.agreed, capabilities={}, serverInfo=info)

    def _unknown(self, to: Any) -> StepAnswer:
        codes = {"method": -32601, "params": -32602, "request": -32600, "own": -32000}
        return StepAnswer(to) if self.manner == "silence" else _refused(to, codes[self.manner], None)


def _result(to: Any, **members: Any) -> StepAnswer:
    return StepAnswer(to, result=Raw(msgspec.json.encode(members)))


def _refused(to: Any, code: int, data: Any) -> StepAnswer:
    return StepAnswer(to, error=PeerError(ErrorObject(code, "no", data)))


def _drive(era: Any, answer: Any) -> tuple[Discovery | CallError, int]:
    """Run the negotiation to its end; what came out, and after how many steps."""
    steps = negotiate(era)
    taken = 0
    try:
        step = next(steps)
        while True:
            taken += 1
            assert taken <= MOST_STEPS
            step = steps.send(answer(step))
    except StopIteration as done:
        found: Discovery = done.value
        return found, taken
    except CallError as exc:
        return exc, taken


def _world(old: set[str], new: set[str]) -> Any:
    """The client knows these revisions."""
    return mock.patch.multiple(
        negotiation, HANDSHAKE_REVISIONS=tuple(sorted(old)), STATELESS_REVISIONS=tuple(sorted(new))
    )


def _expected(era: EraName | str, mine: Peer, peer: Peer) -> str | None:
    """What both should end with, told from outside; None where there is no way."""
    common = sorted(set(mine.new) & set(peer.new))
    if era != "2025" and common:
        return common[-1]
    if era == "2026" or not peer.old or not set(mine.old) & set(peer.old):
        return None
    if mine.old[-1] in peer.old:
        return mine.old[-1]
    if peer.polite:  # it answers with its own newest, and may not know that we don't know it
        return peer.old[-1] if peer.old[-1] in mine.old else None
    return max(set(mine.old) & set(peer.old))


@settings(max_examples=examples(300), deadline=None)
@given(
    eras,
    subsets,
    modern_subsets,
    subsets,
    modern_subsets,
    st.sampled_from(["silence", "method", "params", "request", "own"]),
    st.booleans(),
)
def test_two_ends_agree_on_the_best_revision_or_fail_with_a_reason(
    era: Any, old: set[str], new: set[str], their_old: set[str], their_new: set[str], manner: str, polite: bool
) -> None:
    """VER-02, VER-07, VER-08, VER-09, VER-10, LIFE-05, LIFE-16."""
    assume(old and new)
    peer = Peer(their_old, their_new, manner, polite)
    with _world(old, new):
        found, _ = _drive(era, peer.answer)
    expected = _expected(era, Peer(old, new, manner, True), peer)
    if isinstance(found, Discovery):
        assert found.revision == expected == peer.agreed
        assert found.era == ("2026" if found.revision in new else "2025")
    else:
        assert isinstance(found, ConnectFailed)
        assert expected is None


@settings(max_examples=examples(200), deadline=None)
@given(subsets, modern_subsets, subsets, modern_subsets, st.booleans(), st.integers(1, 2))
def test_a_server_that_answers_the_probe_late_is_understood_like_a_quick_one(
    old: set[str], new: set[str], their_old: set[str], their_new: set[str], polite: bool, late: int
) -> None:
    """VER-09: a modern answer may overtake the first or second `initialize`, and both ends mean the same revision."""
    assume(old and new)
    peer = Peer(their_old, their_new, "method", polite)
    slow: list[StepAnswer] = []
    handshakes = 0

    def answer(step: Probe | Initialize) -> StepAnswer:
        nonlocal handshakes
        if isinstance(step, Probe) and not handshakes:
            slow.append(peer.answer(step))
            return StepAnswer("discover")
        if isinstance(step, Probe):
            return peer.answer(step)
        handshakes += 1
        if slow and their_new and handshakes == late:
            return slow.pop()
        return peer.answer(step)

    with _world(old, new):
        found, _ = _drive("auto", answer)
        quick, _ = _drive("auto", peer.answer)
    if handshakes < late:  # it came too late: the handshake was over
        assert isinstance(found, Discovery) <= isinstance(quick, Discovery)
    elif isinstance(quick, Discovery):
        assert found == quick
    else:
        assert isinstance(found, ConnectFailed)


@st.composite
def answers(draw: st.DrawFn, to: Any) -> StepAnswer:
    """Anything that can come back to a request."""
    kind = draw(st.sampled_from(["result", "peer error", "lost", "silence"]))
    if kind == "silence":
        return StepAnswer(to)
    if kind == "lost":
        return StepAnswer(to, error=ConnectionLost("gone"))
    versions = st.lists(messages.revisions | messages.scalars, max_size=3)
    if kind == "result":
        members = {
            "supportedVersions": versions | messages.values,
            "protocolVersion": messages.revisions | messages.values,
            "capabilities": st.just({}) | messages.values,
            "serverInfo": st.just({"name": "x", "version": "1"}) | messages.values,
            "_meta": messages.metas() | messages.values,
        }
        found = draw(st.fixed_dictionaries({}, optional=members))
        return StepAnswer(to, result=Raw(msgspec.json.encode(found)))
    code = draw(st.sampled_from([-32022, -32021, -32020, -32601, -32602, -32600, -32000, 0]))
    data = draw(st.fixed_dictionaries({}, optional={"supported": versions | messages.values}) | messages.values)
    return StepAnswer(to, error=PeerError(ErrorObject(code, "no", data)))


@settings(max_examples=examples(300), deadline=None)
@given(eras, st.data())
def test_whatever_a_server_says_the_negotiation_ends(era: Any, data: st.DataObject) -> None:
    """A discovery or a CallError, after a few steps; a silent probe may still answer later."""
    probing = False

    def answer(step: Probe | Initialize) -> StepAnswer:
        nonlocal probing
        if isinstance(step, Initialize) and probing and data.draw(st.booleans(), "late"):
            probing = False
            return data.draw(answers("discover").filter(lambda found: found.result or found.error))
        found = data.draw(answers("discover" if isinstance(step, Probe) else "initialize"))
        if isinstance(step, Probe):
            probing = found.result is None and found.error is None
        return found

    found, _ = _drive(era, answer)
    if isinstance(found, Discovery):
        known = STATELESS_REVISIONS if found.era == "2026" else HANDSHAKE_REVISIONS
        assert found.revision in known
