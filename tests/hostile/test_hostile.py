"""A part of the hostile cases in the suite; `make hostile` runs all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import neighbours
from tests.hostile.cases import error, result
from tests.hostile.clients import run_all
from tests.hostile.drivers import judge
from tests.hostile.run import corpus, main, run_own, wrong_outcomes


@pytest.mark.timeout(120)  # some hundred cases in a process of their own
@pytest.mark.parametrize("route", ["stdio", "socket", "http"])
async def test_the_server_answers_hostile_messages_as_specified(route: str) -> None:
    """One case of twelve."""
    outcomes = await run_own(corpus(every=12), [route])
    assert len(outcomes) > 80
    assert [f"{outcome.name}: {outcome.problem}" for outcome in wrong_outcomes(outcomes)] == []


@pytest.mark.timeout(120)
async def test_the_client_survives_hostile_servers() -> None:
    """One server of eight."""
    outcomes = await run_all(every=8)
    assert len(outcomes) > 70
    assert [f"{outcome.name}: {outcome.problem}" for outcome in wrong_outcomes(outcomes)] == []


@pytest.mark.timeout(120)
async def test_nothing_is_taken_from_one_server_to_another_or_left_in_the_log() -> None:
    outcomes = await neighbours.run_all()
    assert len(outcomes) >= 30
    assert [f"{outcome.name}: {outcome.problem}" for outcome in wrong_outcomes(outcomes)] == []


@pytest.mark.timeout(120)
async def test_what_is_taken_to_a_server_that_has_it_is_noticed(tmp_path: Path) -> None:
    """Two processes of one server: what one gave is good at the other."""
    name = neighbours.OWNER
    async with neighbours.serving(tmp_path, name) as owner, neighbours.serving(tmp_path, name) as same:
        problems = [await neighbours.stolen(case, owner, same) for case in neighbours.STOLEN]
        problems.append(await neighbours.stolen_session(owner, same, "POST"))
    assert all(problem and "nothing to take" not in problem for problem in problems), problems


def test_the_corpus_is_as_large_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) >= 600


def test_the_judge_finds_what_is_wrong() -> None:
    refused = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32602, "message": "x"}}
    answered = {"jsonrpc": "2.0", "id": 1, "result": {}}
    assert judge(error(-32602), [refused]) is None
    assert judge(result(), [answered]) is None
    for expect, answers in (
        (error(-32602), []),
        (error(-32602), [refused, refused]),
        (error(-32602), [answered]),
        (error(-32600), [refused]),
        (error(-32602), [{**refused, "result": {}}]),
        (error(-32602), [{**refused, "error": {"code": -32602}}]),
        (error(-32602), [{**refused, "jsonrpc": "1.0"}]),
        (result(), [refused]),
        (result(), [{**answered, "result": {"isError": True}}]),
        (result(), [{**answered, "result": None}]),
        (result(lambda found: "x" in found), [answered]),
    ):
        assert judge(expect, answers) is not None, answers
