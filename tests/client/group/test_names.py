"""Names of several servers in one list: a pure rule, the same for everybody."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel.client.group.names import NameOrigin, merge_names, name_for_models, names_for_models, prefixes_of
from gemel.server.composition.namespace import Prefix


def test_a_name_that_one_server_has_stays_and_one_that_several_have_gets_theirs_in_front() -> None:
    """TOOL-09."""
    merged = merge_names({"a": ["search", "read"], "b": ["search", "write"]})
    assert merged == {
        "a_search": ("a", "search"),
        "read": ("a", "read"),
        "b_search": ("b", "search"),
        "write": ("b", "write"),
    }
    assert list(merged) == ["a_search", "read", "b_search", "write"]


def test_always_means_all() -> None:
    assert list(merge_names({"a": ["x"], "b": ["y"]}, "always")) == ["a_x", "b_y"]


def test_what_clashes_even_with_its_server_in_front_gets_a_digest() -> None:
    merged = merge_names({"a": ["x", "b_x"], "b": ["x"]})
    assert [(merged["a_x"]), (merged["b_x"])] == [("a", "x"), ("a", "b_x")]
    (other,) = merged.keys() - {"a_x", "b_x"}
    assert other.startswith("b_x_")
    assert merged[other] == ("b", "x")


@pytest.mark.parametrize(
    ("server", "prefix"),
    [
        ("Salesforce DX", "Salesforce_DX"),
        ("com.atlassian/atlassian-mcp-server", "com_atlassian_atlassian-mcp-server"),
        ("@scope/pkg", "scope_pkg"),
        ("21st-magic", "server-21st-magic"),
        ("café", "cafe"),
        ("grüße", "gru_e"),
    ],
)
def test_a_prefix_is_made_of_every_name(server: str, prefix: str) -> None:
    """TOOL-09."""
    assert prefixes_of([server]) == {server: prefix}


@pytest.mark.parametrize("server", ["", "天气", "--", "x" * 200, "\ud800"])
def test_a_name_without_usable_letters_or_a_long_one_has_a_prefix_with_a_digest(server: str) -> None:
    assert re.fullmatch("[a-z][A-Za-z0-9_-]{1,39}", prefixes_of([server])[server])


def test_a_name_that_can_be_a_prefix_keeps_it() -> None:
    prefixes = prefixes_of(["a b", "a_b", "git", "git_hub"])
    assert (prefixes["a_b"], prefixes["git"], prefixes["git_hub"]) == ("a_b", "git", "git-hub")
    assert prefixes["a b"].startswith("a-b-")


@given(st.lists(st.text("ab _-.1é/", max_size=6), unique=True))
def test_no_two_prefixes_can_be_taken_for_each_other(servers: list[str]) -> None:
    prefixes = prefixes_of(servers)
    assert prefixes == prefixes_of(reversed(servers))
    mounts = [Prefix(prefix) for prefix in prefixes.values()]
    assert not any(one.clashes(other) for one, other in combinations(mounts, 2))


@given(st.lists(st.text(max_size=80), unique=True))
def test_names_for_models_are_distinct_and_stay_if_they_can(names: list[str]) -> None:
    short = names_for_models(names)
    assert len(set(short.values())) == len(names)
    assert all(re.fullmatch("[A-Za-z0-9_-]{1,64}", name) for name in short.values())
    assert all(short[name] == name for name in names if re.fullmatch("[A-Za-z0-9_-]{1,64}", name))
    assert names_for_models(reversed(names)) == short


def test_a_tool_cannot_take_the_short_name_of_another_one() -> None:
    taken = name_for_models("a/b")
    merged = merge_names({"good": ["a/b"], "bad": [taken]}, fit=name_for_models)
    assert len(merged) == 2
    assert set(merged.values()) == {("good", "a/b"), ("bad", taken)}
    short = names_for_models(["a/b", taken])
    assert short[taken] == taken
    assert short["a/b"] != taken


NAMES = st.lists(st.sampled_from(["x", "y", "a_x", "b_x", "a_x_2", "a_a_x"]), max_size=5)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "a_a", "a b"]), NAMES, max_size=4),
    st.sampled_from(["collision", "always"]),
)
def test_every_tool_has_exactly_one_name_and_every_name_one_tool(
    listings: dict[str, list[str]], prefixing: str
) -> None:
    """TOOL-09: nothing is lost, nothing is hidden behind another, and names don't depend on the order."""
    merged = merge_names(listings, prefixing)  # type: ignore[arg-type]  # one of its words
    assert sorted(merged.values()) == sorted(
        NameOrigin(server, name) for server, names in listings.items() for name in set(names)
    )
    reordered = {server: listings[server][::-1] for server in reversed(listings)}
    assert merged == merge_names(reordered, prefixing)  # type: ignore[arg-type]  # one of its words


@given(NAMES, NAMES, NAMES)
def test_a_name_that_only_one_server_has_cannot_be_taken_from_it(
    first: list[str], second: list[str], third: list[str]
) -> None:
    merged = merge_names({"a": first, "b": second, "c": third})
    for name in first:
        if name not in second and name not in third:
            assert merged[name] == ("a", name)
