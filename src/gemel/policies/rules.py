"""Rules as data: the first one that fits decides. Where that is in doubt, the stricter ruling holds, with it or without it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from gemel.decisions import Effect
from gemel.policies.conditions import MISSING, Condition, Glob, Verdict, every, takes, values_at
from gemel.policies.request import PolicyRequest

#: Seconds for which an approval counts; "call" for the call itself, "session" as long as the session of the caller.
Remember = float | str


class Ruling(NamedTuple):
    """What a rule, or the default where none fits, says about a request.

    `if_arguments` tells that it depends on the arguments or the client, which a list does not know; `missing` names an argument
    without which it is in doubt whether the rule, or one before it, fits.
    """

    effect: Effect
    rule: str | None
    #: Identifies the rule with its content, for approvals.
    key: str = ""
    remember: Remember = "call"
    if_arguments: bool = False
    missing: str | None = None


class PolicyRule(NamedTuple):
    """One rule: all of its conditions must fit; those that are None are not there."""

    name: str
    effect: Effect
    key: str
    remember: Remember = "call"
    tool: Glob | None = None
    hints: Mapping[str, bool] | None = None
    principal: Glob | None = None
    scopes: frozenset[str] = frozenset()
    server: Glob | None = None
    client: Glob | None = None
    arguments: Mapping[str, Condition] | None = None

    @property
    def needs_call(self) -> bool:
        """Whether it depends on what a list does not know."""
        return bool(self.arguments) or self.client is not None

    @property
    def by_caller(self) -> bool:
        """Whether it depends on who calls."""
        return self.principal is not None or bool(self.scopes)

    @property
    def ruling(self) -> Ruling:
        """What it says."""
        return Ruling(self.effect, self.name, self.key, self.remember, self.needs_call)

    def fits(self, request: PolicyRequest) -> Verdict:
        """Whether it is about a call."""
        return every(self._verdicts(request))

    def may_fit(self, request: PolicyRequest) -> Verdict:
        """Whether it is about calls of a tool that is listed, with some arguments and by some client."""
        return every((*self._static(request), self.lacking(request) is None))

    def lacking(self, request: PolicyRequest) -> str | None:
        """One of its arguments that the tool doesn't take; None if it may take all of them."""
        parameters = request.parameters
        if parameters is None:
            return None
        return next((name for name in self.arguments or () if takes(parameters, name) is False), None)

    def missing(self, request: PolicyRequest) -> str | None:
        """One of its arguments that the tool takes, and that a call doesn't have; None if it has all of them."""
        given, parameters = request.arguments or {}, request.parameters
        for name in () if request.inexact else self.arguments or ():
            if values_at(given, name) is MISSING and (parameters is None or takes(parameters, name)):
                return name
        return None

    def lacked_by(self, request: PolicyRequest) -> str | None:
        """The argument for want of which it is not about a tool that is listed; None if that is not the reason."""
        return None if every(self._static(request)) is False else self.lacking(request)

    def names(self, request: PolicyRequest) -> Verdict:
        """Whether its names of tools and servers fit a tool."""
        return every(self._by_name(request))

    def _by_name(self, request: PolicyRequest) -> Iterator[Verdict]:
        if self.tool is not None:
            yield self.tool(request.tool)
        if self.server is not None:
            yield None if request.server is None else self.server(request.server)

    def _static(self, request: PolicyRequest) -> Iterator[Verdict]:
        yield from self._by_name(request)
        if self.hints is not None:
            yield all(getattr(request.hints, name) is value for name, value in self.hints.items())
        if self.principal is not None:
            yield False if request.principal is None else self.principal(request.principal)
        yield self.scopes <= request.scopes

    def _verdicts(self, request: PolicyRequest) -> Iterator[Verdict]:
        yield from self._static(request)
        if self.client is not None:
            yield None if request.client is None else self.client(request.client)
        if self.arguments:
            given = request.arguments or {}
            # What the schema doesn't list may be an argument by another name.
            if request.parameters is not None and given.keys() <= request.parameters and self.lacking(request):
                yield False
            elif request.inexact:
                yield None
            else:
                yield every(condition(values_at(given, name)) for name, condition in self.arguments.items())


class Rules:
    """The rules of a policy, in their order, and what happens where none fits."""

    def __init__(self, rules: Sequence[PolicyRule], default: Effect, trust_hints: Sequence[str]) -> None:
        self._rules = tuple(rules)
        self._default = Ruling(default, None, "default")
        self._trusted = Glob(trust_hints)
        self.by_caller = any(rule.by_caller for rule in rules)

    def trusts(self, server: str) -> bool:
        """Whether the operator trusts what a server says about its tools."""
        return self._trusted.matches(server)

    def decide(self, request: PolicyRequest) -> Ruling:
        """Return what happens with a call."""
        held: Ruling | None = None
        missing: str | None = None
        for rule in self._rules:
            fits = rule.fits(request)
            if fits is None:
                missing = missing or rule.missing(request)
            if fits or (fits is None and rule.effect == "deny"):
                return stricter(held, rule.ruling._replace(missing=missing))
            if fits is None and rule.effect == "ask":
                held = held or rule.ruling
        return stricter(held, self._default._replace(missing=missing))

    def possible(self, request: PolicyRequest) -> list[Ruling]:
        """Return what can happen with calls of a tool, in the order in which it is decided; the last one holds for all others."""
        rulings = [self._default]
        for rule in reversed(self._rules):
            fits, own = rule.may_fit(request), [rule.ruling]
            if fits is False or (fits is None and rule.effect == "allow"):
                continue
            if fits is None:
                own = [stricter(rule.ruling, other) for other in rulings]
            rulings = [*own, *rulings] if rule.needs_call else own
        return rulings

    def about_none(self, requests: Sequence[PolicyRequest]) -> list[str]:
        """Return the rules whose names of tools and servers fit none of some tools."""
        return [rule.name for rule in self._rules if all(rule.names(one) is False for one in requests)]

    def not_about(self, request: PolicyRequest) -> list[tuple[str, str]]:
        """Return the rules that would deny or ask, if the tool took an argument that it does not take, each with that argument."""
        found: list[tuple[str, str]] = []
        for rule in self._rules:
            argument = rule.lacked_by(request)
            if argument is not None and rule.effect != "allow":
                found.append((rule.name, argument))
            if rule.may_fit(request) and not rule.needs_call:
                break  # it decides
        return found


def stricter(held: Ruling | None, ruling: Ruling) -> Ruling:
    """Of a rule that is in doubt and what holds if it doesn't fit, the stricter one: "deny" before "ask" before "allow"."""
    if held is None or (ruling.effect == "deny" and held.effect != "deny"):
        return ruling
    return held
