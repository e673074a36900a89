"""Policies in files: a mistake is one line with its place, and whatever a policy can't decide is denied."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, DefinitionError
from gemel.policies import Policy
from tests.policies.places import Person, make_server

RULE = '[[rule]]\neffect = "allow"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rule = [\n", ":2: not TOML: "),
        ('default = "maybe"\n', ':1: default is "allow", "deny" or "ask", not \'maybe\''),
        ('\ndefalt = "deny"\n', ":2: there is no 'defalt' in a policy: did you mean 'default'?"),
        ('rule = "all"\n', ":1: write each rule below a line [[rule]]"),
        ("\n[[rule]]\n", ':2: a rule needs effect = "allow", "deny" or "ask"'),
        (RULE + '[[rule]]\ntool = "a"\neffect = "Allow"\n', ":5: effect is"),
        (RULE + 'toool = "a"\n', ":3: there is no 'toool' in a rule: did you mean 'tool'?"),
        (RULE + "tool = 3\n", ":3: tool is a text or a list of texts, and not empty"),
        (RULE + "tool = [3]\n", ":3: tool is a list of texts"),
        ("\ufeff" + RULE + "tool = []\n", ":3: tool is a text or a list of texts, and not empty"),
        (RULE + "tool = []\n", ":3: tool is a text or a list of texts, and not empty"),
        (RULE + 'scopes = "admin"\n', ":3: scopes is a list of texts"),
        (RULE + 'remember = "10m"\n', ':3: remember is for effect = "ask"'),
        ('[[rule]]\neffect = "ask"\nremember = "2d"\n', ":3: remember is"),
        ('[[rule]]\neffect = "ask"\nremember = "25h"\n', ":3: remember is"),
        (RULE + "hints.destructiv = true\n", ":3: there is no hint 'destructiv': did you mean 'destructive'?"),
        (RULE + 'hints.destructive = "true"\n', ":3: hints.destructive is true or false"),
        (RULE + "\n[rule.hints]\nread_only = 1\n", ":5: hints.read_only is true or false"),
        (RULE + "arguments.to = {mox = 3}\n", ":3: arguments.to: use a text, a number"),
        (RULE + "arguments.to = []\n", ":3: arguments.to: an empty list fits nothing"),
        (RULE + 'arguments.to = {max = "3"}\n', ":3: arguments.to: min and max are numbers"),
        (RULE + "arguments.to = {max = nan}\n", ":3: arguments.to: min and max are numbers"),
        (RULE + "arguments.to = nan\n", ":3: arguments.to: nan is not a text"),
        (RULE + "arguments.to = {min = 20, max = 1}\n", ":3: arguments.to: no number is between min = 20 and max = 1"),
        (RULE + 'arguments.options.path = "/srv/*"\n', ":3: arguments.options: use a text"),
        (RULE + "scopes = []\n", ":3: scopes is empty"),
        (RULE + 'arguments.to = {schema = {type = "strng"}}\n', ":3: arguments.to: the schema"),
        (RULE + 'arguments.to = {schema = {pattern = "("}}\n', ":3: arguments.to: "),
        (RULE + 'name = ""\n', ":3: name is a text"),
        ('trust_hints = "github"\n', ":1: trust_hints is a list of texts"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(DefinitionError) as wrong:
        Policy(path)
    said = str(wrong.value)
    assert said.startswith(f"{path}:")
    assert "\n" not in said
    if not message.startswith(":3: arguments.to: the schema"):
        assert message in said


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r"none\.toml: the policy can't be read"):
        Policy(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'default = "\xe4"')
    with pytest.raises(DefinitionError, match="not UTF-8"):
        Policy(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": 3}, "is not a policy"),
        ({"source": lambda: "allow"}, "is not a policy"),
        ({"source": {}, "ask": "anna"}, "ask= is a function"),
        ({"source": {}, "trust_hints": "github"}, r"write trust_hints=\['github'\]"),
        ({"source": {}, "remember": "10m"}, "remember= is for functions"),
        ({"source": lambda request: "allow", "remember": "soon"}, "remember='soon'"),
        ({"source": {"rule": [{"effect": "no"}]}}, r"^policy, rule 1: effect is"),
    ],
)
def test_wrong_arguments_of_a_policy_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(DefinitionError, match=message):
        Policy(**arguments)


@pytest.mark.parametrize("answer", ["Allow", True, None, "yes", 1, ["allow"]])
async def test_what_is_no_effect_denies(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    server, ran = make_server()
    server.add_middleware(Policy(lambda request: answer))
    with caplog.at_level(logging.ERROR, "gemel"):
        async with Client(server) as client:
            assert await client.list_tools() == []
            assert (await client.call_tool("read", {"path": "a"}, raise_on_error=False)).is_error
    assert not ran
    assert "returned" in caplog.text


async def test_a_function_that_raises_denies(caplog: pytest.LogCaptureFixture) -> None:
    async def decide(request: Any) -> Any:
        raise LookupError("the engine is away")

    server, ran = make_server()
    server.add_middleware(Policy(decide))
    async with Client(server) as client:
        assert await client.list_tools() == []
        assert (await client.call_tool("read", {"path": "a"}, raise_on_error=False)).is_error
    assert not ran
    assert "the engine is away" in caplog.text


async def test_without_a_rule_that_fits_and_without_default_everything_is_denied() -> None:
    server, ran = make_server()
    server.add_middleware(Policy({}))
    async with Client(server) as client:
        assert await client.list_tools() == []
        assert (await client.call_tool("read", {"path": "a"}, raise_on_error=False)).is_error
    assert not ran


@pytest.mark.parametrize(
    ("effects", "outcome"),
    [
        (("allow", "allow"), "allow"),
        (("allow", "ask"), "ask"),
        (("allow", "deny"), "deny"),
        (("ask", "allow"), "ask"),
        (("ask", "ask"), "ask"),
        (("ask", "deny"), "deny"),
        (("deny", "allow"), "deny"),
        (("deny", "ask"), "deny"),
    ],
)
async def test_where_a_rule_is_in_doubt_the_stricter_outcome_holds(effects: tuple[str, str], outcome: str) -> None:
    """With the rule, and without it."""
    first, second = effects
    doubtful = {"arguments": {"path": 3}, "effect": first}  # the path is a text
    server, ran = make_server()
    server.add_middleware(Policy({"default": second, "rule": [doubtful]}))
    person = Person()
    async with Client(server, on_elicit=person) as client:
        await client.call_tool("read", {"path": "a"}, raise_on_error=False)
    assert (bool(ran), bool(person.asked)) == {"allow": (True, False), "ask": (True, True), "deny": (False, False)}[
        outcome
    ]


async def test_who_is_asked_in_another_way_and_can_not_answer_denies(caplog: pytest.LogCaptureFixture) -> None:
    def ask(request: Any) -> bool:
        raise TimeoutError("nobody is there")

    server, ran = make_server()
    server.add_middleware(Policy({"default": "ask"}, ask=ask))
    async with Client(server) as client:
        assert (await client.call_tool("read", {"path": "a"}, raise_on_error=False)).is_error
    assert not ran
    assert "nobody is there" in caplog.text


@pytest.mark.parametrize("answer", [False, None, 1, "", {"allow": True}])
async def test_only_true_or_a_name_allows(answer: Any) -> None:
    server, ran = make_server()
    server.add_middleware(Policy({"default": "ask"}, ask=lambda request: answer))
    async with Client(server) as client:
        assert (await client.call_tool("read", {"path": "a"}, raise_on_error=False)).is_error
    assert not ran
