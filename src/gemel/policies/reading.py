"""Policies as TOML or as the same structure in Python become rules; a mistake is one line with its place."""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec

from gemel.decisions import Effect
from gemel.errors import DefinitionError, shorten
from gemel.options import hint
from gemel.policies.conditions import Glob, argument_condition
from gemel.policies.request import HINT_NAMES
from gemel.policies.rules import PolicyRule, Remember, Rules

#: What a rule may say, and what a policy has besides its rules.
_RULE_MEMBERS = (
    "name", "effect", "remember", "tool", "hints", "arguments", "principal", "scopes", "server", "client",
)  # fmt: skip
_POLICY_MEMBERS = ("default", "trust_hints", "rule")
_EFFECTS: tuple[Effect, ...] = get_args(Effect)
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smh])")
_SECONDS = {"s": 1, "m": 60, "h": 3600}
#: Seconds for which an approval may be remembered, at most.
_LONGEST = 24 * 3600.0


class _Places:
    """Where the parts of a policy stand in its file; without a file their numbers."""

    def __init__(self, name: str | None, text: str) -> None:
        self._name = name
        self._lines = text.split("\n")
        self._rules = [number for number, line in enumerate(self._lines) if re.match(r"\s*\[\[\s*rule\s*\]\]", line)]

    def rule(self, index: int) -> str:
        """The place of a rule."""
        if self._name is None or index >= len(self._rules):
            return f"{self._name or 'policy'}, rule {index + 1}"
        return f"{self._name}:{self._rules[index] + 1}"

    def member(self, index: int | None, *names: str) -> str:
        """The place of a member of a rule, or of the policy; of a nested one if its name is found."""
        if self._name is None or (index is not None and index >= len(self._rules)):
            return "policy" if index is None and self._name is None else self.rule(index or 0)
        starts = self._rules
        first = 0 if index is None else starts[index]
        later = [start for start in starts if start > first]
        last = later[0] if later else len(self._lines)
        for name in reversed(names):
            key = re.compile(rf"""(?:.*[\s.\[{{,])?["']?{re.escape(name)}["']?\s*[=.\]]""")
            for number in range(first, last):
                if key.match(self._lines[number]):
                    return f"{self._name}:{number + 1}"
        return f"{self._name}:{first + 1}"


def read_policy(source: str | Path | Mapping[str, Any]) -> Rules:
    """Read a policy.

    Args:
        source: The path of a TOML file, or its content as a mapping.

    Returns:
        Its rules.

    Raises:
        DefinitionError: The file can't be read, or has a mistake: one line, which begins with its place.
    """
    if isinstance(source, Mapping):
        return _PolicyReader(_Places(None, ""), source).rules()
    path = Path(source)
    text = ""
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = tomllib.loads(text)
    except OSError as exc:
        raise DefinitionError(f"{path}: the policy can't be read: {exc.strerror or exc}") from exc
    except UnicodeDecodeError as exc:
        raise DefinitionError(f"{path}: the policy is not UTF-8") from exc
    except tomllib.TOMLDecodeError as exc:
        found = re.search(r" \(at line (\d+), column \d+\)$", str(exc))
        line, reason = (found[1], str(exc)[: found.start()]) if found else (str(text.count("\n") + 1), str(exc))
        raise DefinitionError(f"{path}:{line}: not TOML: {reason.removesuffix(' (at end of document)')}") from exc
    return _PolicyReader(_Places(str(path), text), content).rules()


class _PolicyReader:
    """Checks every part of a policy."""

    def __init__(self, places: _Places, content: Mapping[str, Any]) -> None:
        self._places = places
        self._content = content

    def rules(self) -> Rules:
        """All of it. Raises DefinitionError."""
        for name in self._content:
            if name not in _POLICY_MEMBERS:
                at = self._places.member(None, str(name))
                raise DefinitionError(
                    f"{at}: there is no {str(name)!r} in a policy: {hint(str(name), _POLICY_MEMBERS)}"
                )
        default = self._effect(self._content.get("default", "deny"), None, "default")
        trusted = self._texts(self._content.get("trust_hints", []), None, "trust_hints")
        given = self._content.get("rule", [])
        if not isinstance(given, list) or not all(isinstance(rule, Mapping) for rule in given):
            raise DefinitionError(f"{self._places.member(None, 'rule')}: write each rule below a line [[rule]]")
        return Rules([self._rule(index, rule) for index, rule in enumerate(given)], default, trusted)

    def _rule(self, index: int, given: Mapping[str, Any]) -> PolicyRule:
        for name in given:
            if name not in _RULE_MEMBERS:
                raise self._wrong(index, f"there is no {str(name)!r} in a rule: {hint(str(name), _RULE_MEMBERS)}", name)
        if "effect" not in given:
            raise self._wrong(index, 'a rule needs effect = "allow", "deny" or "ask"')
        effect = self._effect(given["effect"], index, "effect")
        if "remember" in given and effect != "ask":
            raise self._wrong(index, 'remember is for effect = "ask"', "remember")
        called: Any = given.get("name", self._places.rule(index))
        if not isinstance(called, str) or not called:
            raise self._wrong(index, "name is a text", "name")
        return PolicyRule(
            name=called,
            effect=effect,
            key=hashlib.sha256(_canonical(given)).hexdigest(),
            remember=self._remember(given.get("remember", "call"), index),
            tool=self._glob(given, index, "tool"),
            hints=self._hints(given, index),
            principal=self._glob(given, index, "principal"),
            scopes=self._scopes(given, index),
            server=self._glob(given, index, "server"),
            client=self._glob(given, index, "client"),
            arguments=self._arguments(given, index),
        )

    def _wrong(self, index: int | None, text: str, *names: str) -> DefinitionError:
        return DefinitionError(f"{self._places.member(index, *names)}: {text}")

    def _effect(self, given: Any, index: int | None, name: str) -> Effect:
        for effect in _EFFECTS:
            if given == effect:
                return effect
        raise self._wrong(index, f'{name} is "allow", "deny" or "ask", not {shorten(repr(given))}', name)

    def _remember(self, given: Any, index: int) -> Remember:
        remember = parse_remember(given)
        if remember is None:
            text = f'remember is "call", "session" or a time such as "10m", at most "24h", not {shorten(repr(given))}'
            raise self._wrong(index, text, "remember")
        return remember

    def _texts(self, given: Any, index: int | None, name: str) -> Sequence[str]:
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise self._wrong(index, f"{name} is a list of texts", name)
        return given

    def _glob(self, given: Mapping[str, Any], index: int, name: str) -> Glob | None:
        if name not in given:
            return None
        value = given[name]
        if isinstance(value, str):
            return Glob(value)
        if not isinstance(value, list) or not value:
            raise self._wrong(index, f"{name} is a text or a list of texts, and not empty", name)
        return Glob(self._texts(value, index, name))

    def _scopes(self, given: Mapping[str, Any], index: int) -> frozenset[str]:
        scopes = frozenset(self._texts(given.get("scopes", []), index, "scopes"))
        if "scopes" in given and not scopes:
            raise self._wrong(index, "scopes is empty, which every caller has: leave it out", "scopes")
        return scopes

    def _hints(self, given: Mapping[str, Any], index: int) -> Mapping[str, bool] | None:
        if "hints" not in given:
            return None
        hints = given["hints"]
        if not isinstance(hints, Mapping) or not hints:
            raise self._wrong(index, f"hints is a table of {', '.join(HINT_NAMES)}", "hints")
        for name, value in hints.items():
            if name not in HINT_NAMES:
                raise self._wrong(index, f"there is no hint {name!r}: {hint(str(name), HINT_NAMES)}", "hints", name)
            if not isinstance(value, bool):
                raise self._wrong(index, f"hints.{name} is true or false", "hints", name)
        return dict(hints)

    def _arguments(self, given: Mapping[str, Any], index: int) -> dict[str, Any] | None:
        if "arguments" not in given:
            return None
        arguments = given["arguments"]
        if not isinstance(arguments, Mapping) or not arguments:
            raise self._wrong(index, "arguments is a table: what each argument must be", "arguments")
        conditions = {}
        for name, value in arguments.items():
            try:
                conditions[name] = argument_condition(value)
            except ValueError as exc:
                raise self._wrong(index, f"arguments.{name}: {exc}", "arguments", name) from exc
        return conditions


def parse_remember(given: Any) -> Remember | None:
    """How long an approval counts, from what a rule says; None for what can't be that."""
    if given in ("call", "session"):
        return str(given)
    found = _DURATION.fullmatch(given) if isinstance(given, str) else None
    if found is None:
        return None
    seconds = float(int(found[1]) * _SECONDS[found[2]])
    return seconds if seconds <= _LONGEST and math.isfinite(seconds) else None


def _canonical(rule: Mapping[str, Any]) -> bytes:
    encode: Callable[..., bytes] = msgspec.json.encode
    return encode(rule, order="sorted", enc_hook=repr)
