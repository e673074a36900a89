"""The verdict on a leg: what is unexpected, what is stale, what the suite itself would have let pass."""

from pathlib import Path

from tests.conformance.verdict import Leg, Scenario, differences, read_expected, read_unscored, write_expected


def leg(
    *scenarios: Scenario, side: str = "server", exits: dict[str, int] | None = None, unscored: tuple[str, ...] = ()
) -> Leg:
    named = {one.name: one for one in scenarios}
    return Leg(side, named, frozenset(unscored), exits or {}, frozenset(("may-fail",)), 0)


def scenario(name: str, **checks: str) -> Scenario:
    return Scenario(name, [(id_, status, "") for id_, status in checks.items()])


def expected(**lists: list[str]) -> dict[str, list[str]]:
    return {"server": [], "client": [], "authorization": [], "exits": [], "vacuous": [], "skipped": [], **lists}


def test_a_failure_or_warning_that_is_not_listed_is_unexpected() -> None:
    found = leg(scenario("ping", good="SUCCESS", bad="FAILURE", odd="WARNING"))
    assert differences(found, expected()) == (["ping:bad", "ping:odd"], [])


def test_an_entry_for_the_whole_scenario_covers_all_its_checks() -> None:
    found = leg(scenario("ping", bad="FAILURE", odd="WARNING"))
    assert differences(found, expected(server=["ping"])) == ([], [])


def test_a_listed_check_that_passes_is_stale() -> None:
    found = leg(scenario("ping", bad="SUCCESS"))
    assert differences(found, expected(server=["ping:bad"])) == ([], ["ping:bad"])
    assert differences(found, expected(server=["ping"])) == ([], ["ping"])


def test_an_entry_on_a_scenario_that_did_not_run_is_not_stale() -> None:
    found = leg(scenario("ping", good="SUCCESS"))
    assert differences(found, expected(server=["other:bad"])) == ([], [])


def test_a_client_that_ends_badly_or_not_at_all_is_unexpected_unless_its_status_is_free() -> None:
    scenarios = [scenario(name, good="SUCCESS") for name in ("fine", "crashed", "killed", "may-fail")]
    found = leg(*scenarios, side="client", exits={"fine": 0, "crashed": 1, "may-fail": 1})
    assert differences(found, expected()) == (["exits: crashed", "exits: killed"], [])


def test_a_scenario_in_which_nothing_was_checked_is_unexpected() -> None:
    assert differences(leg(scenario("empty", note="INFO")), expected()) == (["vacuous: empty"], [])


def test_a_check_that_was_skipped_is_unexpected_unless_it_is_listed() -> None:
    found = leg(scenario("tasks", good="SUCCESS", later="SKIPPED"), scenario("ping", good="SUCCESS"))
    assert differences(found, expected()) == (["skipped: tasks:later"], [])
    assert differences(found, expected(skipped=["tasks:later"])) == ([], [])
    assert differences(found, expected(skipped=["tasks:later", "ping:good"])) == ([], ["skipped: ping:good"])


def test_unscored_scenarios_are_not_judged() -> None:
    found = leg(scenario("later", bad="FAILURE"), unscored=("later",))
    assert differences(found, expected()) == ([], [])


def test_what_was_observed_survives_writing_and_reading(tmp_path: Path) -> None:
    found = leg(scenario("ping", bad="FAILURE"), scenario("empty"))
    write_expected(tmp_path / "leg.yaml", found.observed())
    again = read_expected(tmp_path / "leg.yaml")
    assert again == expected(server=["ping:bad"], vacuous=["empty"])
    assert differences(found, again) == ([], [])


def test_unscored_scenarios_are_read_from_the_listing_of_a_frozen_set() -> None:
    listing = "Required:\n  - ping\n\nRun and reported, but never scored:\n  pending (1):\n    - later [server]\n"
    assert read_unscored(listing) == {"later"}
