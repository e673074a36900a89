"""From URIs back to the variables of a template."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import DefinitionError, UriTemplate
from gemel.server.features.uri_templates import MAX_ITEMS


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("x://a", "x://a", {}),
        ("x://a", "x://a/", None),
        ("x://{a}", "x://1", {"a": "1"}),
        ("x://{a}", "x://", None),
        ("x://{a}", "y://1", None),
        ("x://{a}", "x://1/2", None),
        ("x://{a}", "x://1?2", None),
        ("x://{a}", "x://1#2", None),
        ("x://{a}", "x://b@c:1;d=2,e", {"a": "b@c:1;d=2,e"}),
        ("x://{a}/now", "x://1/now", {"a": "1"}),
        ("x://{a}/now", "x://1/now/now", None),
        ("x://{a}/now", "x://now", None),
        ("x://{a}-{b}", "x://1-2-3", {"a": "1", "b": "2-3"}),
        ("x://{a}-{b}", "x://-2-3", {"a": "-2", "b": "3"}),
        ("x://{a}xyz", "x://1xyzxyz", {"a": "1xyz"}),
        ("x://{a,b}", "x://1,2", {"a": "1", "b": "2"}),
        ("x://{a,b}", "x://1", None),
        ("x://{a,b}", "x://1,2,3", None),
        ("x://{a*}/end", "x://1,2%2C,3/end", {"a": ["1", "2,", "3"]}),
        ("x://{a*}/end", "x://1,,3/end", None),
    ],
)
def test_plain_values_stay_within_their_segment(template: str, uri: str, values: Any) -> None:
    """RES-09: `{x}` never holds a slash that wasn't encoded."""
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("f:///{+p}", "f:///a/b?c#d", {"p": "a/b?c#d"}),
        ("f:///{+p}", "f:///", None),
        ("f:///{+p}{?rev}", "f:///a/b?rev=2", {"p": "a/b", "rev": "2"}),
        ("f:///{+p}{?rev}", "f:///a/b", {"p": "a/b"}),
        ("f:///{+p}{#part}", "f:///a?b#c#d", {"p": "a?b", "part": "c#d"}),
        ("f:///{+p}.{ext}", "f:///a.b/c.tar.gz", {"p": "a.b/c.tar", "ext": "gz"}),
        ("f:///{+p}/{name}.{ext}", "f:///a/b/c.d.gz", {"p": "a/b", "name": "c.d", "ext": "gz"}),
        ("f:///{+p}/raw", "f:///raw/raw", {"p": "raw"}),
        ("f:///{+p}/raw", "f:////raw", None),
        ("f:///{+p}/{name}/raw", "f:///a/b/raw", {"p": "a", "name": "b"}),
        ("f:///{+p}/{name}/raw", "f:///a/raw", None),
        ("f:///{user}/{+p}", "f:///u/a/b", {"user": "u", "p": "a/b"}),
        ("f:///{+p*}", "f:///a,b/c", {"p": ["a", "b/c"]}),
    ],
)
def test_a_wide_value_takes_what_the_rest_leaves(template: str, uri: str, values: Any) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("x://{a}{.b}", "x://1", {"a": "1"}),
        ("x://{a}{.b}", "x://1.2.3", {"a": "1", "b": "2.3"}),
        ("x://{a}{.b}", "x://1.", None),
        ("x://{a}{.b,c}", "x://1.2.3", {"a": "1", "b": "2", "c": "3"}),
        ("x://{a}{.b*}", "x://1.2.3", {"a": "1", "b": ["2", "3"]}),
        ("x://{a}{/b}", "x://1/2", {"a": "1", "b": "2"}),
        ("x://{a}{/b}", "x://1/", None),
        ("x://{a}{/b}", "x://1/2/3", None),
        ("x://a{/b*}", "x://a", {}),
        ("x://a{/b*}", "x://a/1/2%2F/3", {"b": ["1", "2/", "3"]}),
        ("x://a{/b*}", "x://a//1", None),
        ("x://a{/b*}", "x://ab/1", None),
        ("x://{a}{.b}{/c}", "x://1/3", {"a": "1", "c": "3"}),
        ("x://{a}.txt{.b}", "x://1.txt.txt.gz", {"a": "1", "b": "txt.gz"}),
        ("x://{a}.txt{.b}", "x://1.txt", {"a": "1"}),
        ("x://a{;b,cc}", "x://a;b=1;cc", {"b": "1", "cc": ""}),
        ("x://a{;b,cc}", "x://a;cc=2", {"cc": "2"}),
        ("x://a{;b,cc}", "x://a;bb=2", None),
        ("x://a{;b,cc}", "x://a;cc=2;b=1", None),
        ("x://a{;b*}", "x://a;b=1;b=2;b", {"b": ["1", "2", ""]}),
        ("x://a{/b}/c", "x://a/1/c", {"b": "1"}),
        ("x://a{/b}/c", "x://a/c", None),
        ("x://{a}{.b}/c", "x://1.2/c", {"a": "1", "b": "2"}),
    ],
)
def test_the_end_of_a_path_may_be_missing(template: str, uri: str, values: Any) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("x://a{?b,c}", "x://a", {}),
        ("x://a{?b,c}", "x://a?c=3&b=2", {"b": "2", "c": "3"}),
        ("x://a{?b,c}", "x://a?b=a/b?c=d", {"b": "a/b?c=d"}),
        ("x://a{?b,c}", "x://a?b", {"b": ""}),
        ("x://a{?b,c}", "x://a?", None),
        ("x://a{?b,c}", "x://a?d=4", None),
        ("x://a{?b,c}", "x://a?b=1&b=2", None),
        ("x://a{?b*}", "x://a?b=1&b=2", {"b": ["1", "2"]}),
        ("x://a{?b}{&c}", "x://a?b=1&c=2", {"b": "1", "c": "2"}),
        ("x://a?b=1{&c}", "x://a?b=1&c=2", {"c": "2"}),
        ("x://a?b=1{&c}", "x://a?b=1", {}),
        ("x://a?b=1{&c}", "x://a?b=2&c=2", None),
        ("x://a?b={b}&c={c}{&d}", "x://a?b=1&c=2&d=3", {"b": "1", "c": "2", "d": "3"}),
        ("x://a?b={b}", "x://a?b=1&c=2", None),
        ("{&b}", "&b=1", {"b": "1"}),
        ("x://a{?b}{#c}", "x://a?b=1#2", {"b": "1", "c": "2"}),
        ("x://a{#c*}", "x://a#1,2", {"c": ["1", "2"]}),
        ("x://a{#c}", "x://a#", {"c": ""}),
    ],
)
def test_a_query_comes_in_any_order_and_holds_nothing_unknown(template: str, uri: str, values: Any) -> None:
    assert UriTemplate(template).match(uri) == values


@pytest.mark.parametrize(
    ("uri", "value"),
    [
        ("x://S%C3%A3o%20Paulo", "São Paulo"),
        ("x://São Paulo", "São Paulo"),
        ("x://a%2Fb", "a/b"),
        ("x://a%252Fb", "a%2Fb"),
        ("x://a+b", "a+b"),
        ("x://%", None),
        ("x://%4", None),
        ("x://%zz", None),
        ("x://%u002e", None),
        ("x://%C0%AF", None),
        ("x://%FF", None),
        ("x://%ED%A0%80", None),
        ("x://\ud800%41", None),
    ],
)
def test_values_are_decoded_once_and_only_from_utf8(uri: str, value: str | None) -> None:
    """Overlong and broken encodings are no match, so that no handler sees them."""
    assert UriTemplate("x://{a}").match(uri) == (None if value is None else {"a": value})


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("x://{a}{b}", "{a} and {b} have no text between them"),
        ("x://{a}{+b}", "{a} and {b} have no text between them"),
        ("x://{+a}/{+b}", "more than one {+x}"),
        ("x://{+a,b}", "{+a,b} can't be matched"),
        ("x://{a:3}", "{a:3} expands but can't be matched"),
        ("x://{a}/{a}", "a occurs twice"),
        ("x://{?a}/b", "{?a} must be at the end"),
        ("x://{#a}{?b}", "{#a} must be at the end"),
        ("x://{&a}{?b}", "{?b} must be at the end"),
        ("x://{&a}/b", "{&a} must be at the end"),
        ("x://a?b=1{?c}", "write {&c} in place of {?c}"),
        ("x://{#a,b}", "a fragment may contain commas"),
        ("x://{;a}/b", "{;a} can be matched at the end of the path only"),
        ("x://{/a*}/b", "not clear where the list ends"),
        ("x://{+a}{/b*}", "not clear where the list ends"),
        ("x://{a,b*}", "not clear where the list ends"),
        ("x://a{/b*}{/c}", "{/b*} matches every '/'"),
        ("x://a{.b*,c}", "{.b*,c} matches every '.'"),
    ],
)
def test_a_template_that_matches_in_no_one_clear_way_is_refused(template: str, words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        UriTemplate(template).match("x://a")
    assert words in str(caught.value)


#: Values that hold nothing of the templates' own literals, but all that must be encoded.
_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="-.ab"), min_size=1, max_size=8)
_items = st.lists(_text, min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("template", "lists"),
    [
        ("x://{c}-{d}.b", ()),
        ("x://{c,d}/a/{e}", ()),
        ("x://{c}/{+d}-{e}{?f}", ()),
        ("x://{c}{.d}{/e}{;f}", ()),
        ("x://{c}{/d*}{?e,f}{#g}", ("d",)),
        ("x://a?a={c}{&d*}", ("d",)),
        ("x://a{.d*}{;e*}", ("d", "e")),
    ],
)
@given(data=st.data())
def test_what_was_expanded_is_matched_again(template: str, lists: tuple[str, ...], data: st.DataObject) -> None:
    """RES-03: there and back gives the same values, whatever characters they hold."""
    made = UriTemplate(template)
    values = {name: data.draw(_items if name in lists else _text) for name in made.names}
    if "{#g}" in template:  # which leaves what looks encoded as it is
        values["g"] = str(values["g"]).replace("%", "")
    if "{+d}" in template:
        values["d"] = quote(str(values["d"]), safe="")
        assert made.match(made.expand(values)) is not None
    else:
        assert made.match(made.expand(values)) == values


@given(st.text(max_size=40))
def test_any_text_matches_or_does_not_and_what_matches_is_expanded_to_something_that_matches_alike(text: str) -> None:
    """No text raises, and the values that are found stand for the URI."""
    for template in ("x://{a}.{b}{?c}", "x://{+a}/{b}", "x://{a}{/b*}{;c}", "{+a}", "{a*}"):
        made = UriTemplate(template)
        for uri in (text, f"x://{text}"):
            values = made.match(uri)
            if values is not None and "+" not in template:
                assert made.match(made.expand(values)) == values


def hostile(size: int) -> list[str]:
    """URIs made to be expensive: repeated literals, separators and encodings, near misses at the very end."""
    bodies = ("a", "/", "a/", "-", "a-", "%41", "%25", ".", "a.", "%", "é", "../", "aa", ",", "a,")
    uris = [f"x://{(body * size)[:size]}" for body in bodies]
    uris += [f"x://{('aa' * size)[:size]}b", f"x://%{('25' * size)[:size]}41"]
    uris += [f"x://s?{('q=1&r=2&' * size)[:size]}", f"x://s?{'&' * size}", f"x://a{(';d=1' * size)[:size]}"]
    return uris


HOSTILE_TEMPLATES = (
    "x://{a}",
    "x://{a}/{b}",
    "x://{a}-{b}-{c}-{d}",
    "x://{+a}",
    "x://{+a}/{b}.{c}",
    "x://{a}{/b*}",
    "x://{a*}/end",
    "x://{a}{.b*}{;c,d*}",
    "x://s{?q,r*}{#f}",
    "x://s?a={a}{&b*}",
    "x://{a,b,c}/{+d}-{e}-{f}",
    "x://{a}aa{b}aa{c}aa{d}ab{/e*}{?f*}",
)


def calls_of(function: Callable[[], Any]) -> int:
    """How many Python and C functions are called."""
    count = 0

    def profile(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("template", HOSTILE_TEMPLATES)
def test_a_hostile_uri_costs_no_more_steps_than_its_list_of_values(template: str) -> None:
    """Each step searches or cuts once; their number doesn't grow with the URI beyond the limit on lists."""
    made = UriTemplate(template)
    made.match("x://made ready")
    for uri in hostile(100_000):
        assert calls_of(partial(made.match, uri)) < 20 * MAX_ITEMS


def test_a_list_has_a_limit() -> None:
    lists = {"x://a{/b*}": "/1", "x://{b*}": "1,", "x://a{;b*}": ";b=1", "x://a{#b*}": "1,", "x://a{?b*}": "b=1&"}
    for template, one in lists.items():
        made = UriTemplate(template)
        start = template.partition("{")[0] + ("?" if "?" in template else "#" if "#" in template else "")
        assert made.match(start + (one * MAX_ITEMS).rstrip(",&")) == {"b": ["1"] * MAX_ITEMS}
        assert made.match(start + (one * (MAX_ITEMS + 1)).rstrip(",&")) is None
