"""URI templates from text, and from values to URIs (RFC 6570)."""

from __future__ import annotations

from typing import Any

import pytest

from gemel import DefinitionError, UriTemplate
from gemel.server.features.uri_templates import MAX_TEMPLATE, MAX_VARIABLES, Value

VALUES: dict[str, Value] = {
    "city": "São Paulo",
    "path": "a/b c",
    "half": "50%",
    "done": "50%25",
    "none": None,
    "empty": "",
    "days": 3,
    "wet": True,
    "list": ["red", "green", "b/w"],
    "no_items": [],
    "map": {"dot": ".", "comma": ","},
    "no_map": {},
    "dotted.name": "x",
}


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("weather://now", "weather://now"),
        ("weather://{city}/now", "weather://S%C3%A3o%20Paulo/now"),
        ("{path}|{+path}|{#path}".replace("|", "!"), "a%2Fb%20c!a/b%20c!#a/b%20c"),
        ("{half}!{+half}!{done}!{+done}", "50%25!50%25!50%2525!50%25"),
        ("{city,days}!{+city,path}!{#city,days}", "S%C3%A3o%20Paulo,3!S%C3%A3o%20Paulo,a/b%20c!#S%C3%A3o%20Paulo,3"),
        ("x{.city,days}!{/city,days}", "x.S%C3%A3o%20Paulo.3!/S%C3%A3o%20Paulo/3"),
        ("{;days,empty,wet}", ";days=3;empty;wet=true"),
        ("{?days,empty}!{&days,empty}", "?days=3&empty=!&days=3&empty="),
        ("{none}{.none}{?none,missing}{no_items}{?no_items*}{/no_map*}", ""),
        ("{none,days}{?none,days}", "3?days=3"),
        ("{city:3}!{+path:2}!{?city:1}", "S%C3%A3o!a/!?city=S"),
        ("{list}!{list*}!{+list}!{+list*}", "red,green,b%2Fw!red,green,b%2Fw!red,green,b/w!red,green,b/w"),
        ("{/list}!{/list*}!{.list*}", "/red,green,b%2Fw!/red/green/b%2Fw!.red.green.b%2Fw"),
        ("{?list}!{?list*}", "?list=red,green,b%2Fw!?list=red&list=green&list=b%2Fw"),
        ("{;list}!{;list*}", ";list=red,green,b%2Fw!;list=red;list=green;list=b%2Fw"),
        ("{map}!{map*}!{+map}", "dot,.,comma,%2C!dot=.,comma=%2C!dot,.,comma,,"),
        ("{?map}!{?map*}!{/map*}", "?map=dot,.,comma,%2C!?dot=.&comma=%2C!/dot=./comma=%2C"),
        ("{dotted.name}", "x"),
        ("caf\u00e9/{days}/%C3", "caf%C3%A9/3/%C3"),
    ],
)
def test_values_become_a_uri(template: str, uri: str) -> None:
    """RES-03: every operator, on texts, numbers, lists and mappings, present, empty and missing."""
    assert UriTemplate(template).expand(VALUES) == uri


def test_a_prefix_of_a_list_is_refused() -> None:
    with pytest.raises(ValueError, match="list:3: only a text has a prefix"):
        UriTemplate("{list:3}").expand(VALUES)


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("x://{city", "the brace at character 5 is never closed"),
        ("x://city}", "'}' at character 9 isn't allowed in a URI"),
        ("x://{city}}", "'}' at character 11 isn't allowed in a URI"),
        ("x://{{city}}", "'{city' is not a variable"),
        ("x://{}", "'' is not a variable"),
        ("x://{a,,b}", "'' is not a variable"),
        ("x://{a b}", "'a b' is not a variable"),
        ("x://{a-b}", "'a-b' is not a variable"),
        ("x://{a.}", "'a.' is not a variable"),
        ("x://{a:0}", "'a:0' is not a variable"),
        ("x://{a:10000}", "'a:10000' is not a variable"),
        ("x://{a:3*}", "'a:3*' is not a variable"),
        ("x://{größe}", "'größe' is not a variable"),
        ("x://{!a}", "the operator '!' has no meaning yet"),
        ("x://a b/{c}", "' ' at character 6 isn't allowed in a URI"),
        ("x://%zz", "'%' at character 5 isn't allowed in a URI"),
        ("x://\n", "isn't allowed in a URI"),
        ("x://" + "a" * MAX_TEMPLATE, f"{MAX_TEMPLATE} is the limit"),
        ("x://" + "/".join(f"{{v{n}}}" for n in range(MAX_VARIABLES + 1)), f"{MAX_VARIABLES} is the limit"),
    ],
)
def test_text_that_is_no_template_is_refused_with_the_place_and_the_reason(template: str, words: str) -> None:
    """Length and number of variables are limited too."""
    with pytest.raises(DefinitionError) as caught:
        UriTemplate(template)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_a_template_tells_its_variables_and_its_ending() -> None:
    template = UriTemplate("x://{a}/{b*}{?c:4}")
    assert template.names == ("a", "b", "c")
    assert [(item.explode, item.prefix) for item in template.variables] == [(False, None), (True, None), (False, 4)]
    assert template.ending == ""
    assert UriTemplate("x://{a}.json").ending == ".json"
    assert repr(template) == "UriTemplate('x://{a}/{b*}{?c:4}')"


def test_the_most_specific_template_sorts_first() -> None:
    templates = ["x://{+a}", "x://{a}", "x://{a}/b", "x://{a}/{b}", "x://b/{+a}", "x://b{/a*}", "x://b/{a}"]
    ranked: list[Any] = sorted(map(UriTemplate, templates), key=lambda template: template.rank)
    assert [template.text for template in ranked] == [
        "x://{a}/b",
        "x://b/{a}",
        "x://{a}/{b}",
        "x://{a}",
        "x://b/{+a}",
        "x://b{/a*}",
        "x://{+a}",
    ]


def test_a_template_is_printed_as_its_text() -> None:
    assert str(UriTemplate("weather://{city}/now")) == "weather://{city}/now"
