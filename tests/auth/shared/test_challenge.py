"""Challenges: read from what servers really send, written so that no value can end them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.auth.challenge import (
    MAX_CHALLENGES,
    MAX_PARAMETERS,
    Challenge,
    find_challenge,
    parse_challenges,
    write_challenge,
)


@pytest.mark.parametrize(
    ("values", "challenges"),
    [
        ("", []),
        (", ,", []),
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="x"', [("bearer", {"realm": "x"})]),
        ('BEARER Realm = "x" , Scope="a b"', [("bearer", {"realm": "x", "scope": "a b"})]),
        ('Bearer scope="a b",error=insufficient_scope', [("bearer", {"scope": "a b", "error": "insufficient_scope"})]),
        (
            "Bearer resource_metadata=https://x.example/a?b=c, error=x",
            [("bearer", {"resource_metadata": "https://x.example/a?b=c", "error": "x"})],
        ),
        (
            'Basic realm="a, Bearer scope=\\"b\\"", DPoP algs="ES256 PS256", Bearer error="e"',
            [
                ("basic", {"realm": 'a, Bearer scope="b"'}),
                ("dpop", {"algs": "ES256 PS256"}),
                ("bearer", {"error": "e"}),
            ],
        ),
        (["Negotiate", 'Bearer scope="a"'], [("negotiate", {}), ("bearer", {"scope": "a"})]),
        ("Negotiate abc==, Bearer", [("negotiate", {"": "abc=="}), ("bearer", {})]),
        ('realm="lost", Bearer realm="x"', [("bearer", {"realm": "x"})]),
        ('Bearer realm="first", realm="second"', [("bearer", {"realm": "first"})]),
        ('Bearer realm="never ends, scope=x', [("bearer", {"realm": "never ends, scope=x"})]),
        ('Bearer @@@, scope="a"', [("bearer", {"scope": "a"})]),
        ('Bearer scope="",error=', [("bearer", {"scope": "", "error": ""})]),
    ],
)
def test_challenges_are_read(values: str | list[str], challenges: list[tuple[str, dict[str, str]]]) -> None:
    """Several schemes in one header or in several, values quoted or bare, in any order."""
    assert parse_challenges(values) == [Challenge(*each) for each in challenges]


@given(st.text(alphabet='Bearer ="\\,\t\né=x', max_size=80) | st.text(max_size=40))
def test_reading_never_raises(text: str) -> None:
    for challenge in parse_challenges([text, text]):
        assert challenge.scheme


@pytest.mark.parametrize("piece", ["a", "a ", "a=", 'a="', "a,", '"', "\\", 'a b="\\', "=", " a b"])
def test_endless_headers_are_read_in_part(piece: str) -> None:
    challenges = parse_challenges(piece * 1_000_000)
    assert len(challenges) <= MAX_CHALLENGES
    assert all(len(each.parameters) <= MAX_PARAMETERS for each in challenges)


@given(st.text(), st.text())
def test_no_value_ends_a_challenge(scope: str, description: str) -> None:
    written = write_challenge("Bearer", {"scope": scope, "error_description": description, "error": None})
    assert "\r" not in written
    assert "\n" not in written
    assert written.isascii()
    (challenge,) = parse_challenges(written)
    assert challenge.parameters.keys() == {"scope", "error_description"}


def test_what_is_written_is_read_again() -> None:
    parameters = {"error": "insufficient_scope", "scope": "a b", "resource_metadata": "https://x.example/.well-known/y"}
    challenges = parse_challenges(["Basic", write_challenge("Bearer", parameters)])
    assert find_challenge(challenges, "Bearer") == Challenge("bearer", parameters)
    assert find_challenge(challenges, "DPoP") is None
    assert write_challenge("Bearer", {}) == "Bearer"
