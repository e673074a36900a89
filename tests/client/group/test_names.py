"""Names of several servers in one list: a pure rule, the same for everybody."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gemel.client.group.names import NameOrigin, merge_names, prefix_of


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


def test_what_clashes_even_with_its_server_in_front_gets_a_number() -> None:
    merged = merge_names({"a": ["x", "b_x"], "b": ["x"], "a_": ["x"], "a.": []})
    assert merged == {"a_x": ("a", "x"), "b_x": ("a", "b_x"), "b_x_2": ("b", "x"), "a__x": ("a_", "x")}


def test_servers_whose_names_hold_other_characters_have_fitting_prefixes() -> None:
    """TOOL-09."""
    assert prefix_of("my server/1 ä") == "my_server_1__"
    merged = merge_names({"x y": ["t"], "x/y": ["t"]})
    assert merged == {"x_y_t": ("x y", "t"), "x_y_t_2": ("x/y", "t")}


NAMES = st.lists(st.sampled_from(["x", "y", "a_x", "b_x", "a_x_2", "a_a_x"]), max_size=5)


@given(
    st.dictionaries(st.sampled_from(["a", "b", "a_a", "a b"]), NAMES, max_size=4),
    st.sampled_from(["collision", "always"]),
)
def test_every_tool_has_exactly_one_name_and_every_name_one_tool(
    listings: dict[str, list[str]], prefixing: str
) -> None:
    """TOOL-09: nothing is lost, nothing is hidden behind another, and the same input gives the same names."""
    merged = merge_names(listings, prefixing)  # type: ignore[arg-type]  # one of its words
    assert sorted(merged.values()) == sorted(
        NameOrigin(server, name) for server, names in listings.items() for name in set(names)
    )
    assert merged == merge_names(listings, prefixing)  # type: ignore[arg-type]  # one of its words


@given(NAMES, NAMES, NAMES)
def test_a_name_that_only_one_server_has_cannot_be_taken_from_it(
    first: list[str], second: list[str], third: list[str]
) -> None:
    merged = merge_names({"a": first, "b": second, "c": third})
    for name in first:
        if name not in second and name not in third:
            assert merged[name] == ("a", name)
