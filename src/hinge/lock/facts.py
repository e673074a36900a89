"""What is known of a value because a schema took it: the left side of a proof. Pure look-ups; `proving` asks the questions.

The schemas that hold at one place of a value are gathered, through `$ref` and `allOf`. Whatever isn't understood here is
left out, which is safe: knowing less proves less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any

from hinge.lock.canonical import canonical
from hinge.lock.nodes import (
    KINDS,
    NOTHING,
    Node,
    declared,
    in_place,
    item_of,
    kind_of,
    kinds_of,
    listed,
    matches,
    member_of,
    opens,
    pairs_of,
    spread,
    values_of,
)
from hinge.lock.ranges import Bound, bounds


class Facts:
    """What is known of a value: it fits all `nodes`, and none of `nots`.

    `whole` says that this is the root of arguments or results. `keeps` says that who wrote the value keeps to the contract:
    members that nobody declared don't occur.
    """

    def __init__(
        self, nodes: tuple[Node, ...], nots: tuple[Node, ...] = (), *, whole: bool = False, keeps: bool = True
    ) -> None:
        self.nodes = tuple(spread(nodes))
        self.nots = (*nots, *(node.inner(value) for node, value in self.values("not")))
        self.whole = whole
        self.keeps = keeps

    @property
    def key(self) -> tuple[object, ...]:
        """What makes facts the same."""
        nodes, nots = (frozenset(id(node.schema) for node in some) for some in (self.nodes, self.nots))
        return nodes, nots, self.kinds, self.closed, self.declared, self.keeps

    def of_kind(self, kind: str) -> Facts:
        """The same value, when it is of this kind."""
        found = self.with_node()
        found.__dict__["kinds"] = frozenset({kind})
        return found

    def with_node(self, *nodes: Node, without: Node | None = None, nots: tuple[Node, ...] = ()) -> Facts:
        """More is known; `without` stands for what the new nodes say more exactly."""
        kept = tuple(node for node in self.nodes if node is not without)
        found = Facts((*kept, *nodes), (*self.nots, *nots), whole=self.whole, keeps=self.keeps)
        for word in ("sources", "declared", "declared_patterns", "closed"):  # what was said at this place stays said
            found.__dict__[word] = getattr(self, word)
        return found

    @cached_property
    def sources(self) -> tuple[Node, ...]:
        """All schemas that speak of the value, whichever alternative holds."""
        return tuple(in_place(self.nodes))

    def _part(self, pick: Callable[[Node], Iterable[Node]], *more: Node) -> Facts:
        """What is known of a part of the value; `pick` finds what one schema says of it.

        Where an alternative that isn't looked at says something too, the part may hold more than is declared here.
        """
        nodes = tuple(found for node in self.nodes for found in pick(node))
        known = {id(node.schema) for node in nodes}
        all_known = all(
            id(found.schema) in known or isinstance(found.schema, bool) for node in self.sources for found in pick(node)
        )
        return Facts((*nodes, *more), keeps=self.keeps and all_known)

    def values(self, word: str) -> Iterator[tuple[Node, Any]]:
        """Each schema that has the word, with its value."""
        for node in self.nodes:
            if isinstance(node.schema, dict) and word in node.schema:
                yield node, node.schema[word]

    # ---------------------------------------------------------------- kinds and values

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds that the value can be of."""
        found = KINDS
        for node in self.nodes:
            found &= kinds_of(node.schema)
        return found

    @cached_property
    def finite(self) -> list[Any] | None:
        """All values that it can have, if they can be counted; some of them other words may rule out."""
        found: dict[str, Any] | None = None
        for node in self.nodes:
            values = values_of(node.schema)
            if values is not None:
                here = {canonical(value): value for value in values}
                found = here if found is None else {text: value for text, value in found.items() if text in here}
        if found is None and self.kinds <= {"null", "boolean"}:
            found = {canonical(value): value for value in (None, True, False)}
        if found is None:
            return None
        return [value for value in found.values() if kind_of(value) in self.kinds]

    def bound(self, word: str) -> Bound | None:
        """The strictest bound of the kind that `word` names ("minimum" for `exclusiveMinimum` as well)."""
        return bounds(word, (node.schema for node in self.nodes), whole=self.kinds.isdisjoint({"fraction"}))

    @cached_property
    def absurd(self) -> bool:
        """Whether no value can be so, as far as that is easy to see."""
        if self.plainly_absurd:
            return True
        return self.kinds == {"object"} and any(self.member(name).plainly_absurd for name in self.required)

    @property
    def plainly_absurd(self) -> bool:
        """Whether that is so whatever its members are."""
        return not self.kinds or self.finite == [] or any(node.schema is False for node in self.nodes)

    # ---------------------------------------------------------------- members of objects

    @cached_property
    def required(self) -> frozenset[str]:
        """The members that an object surely has."""
        names: set[str] = set()
        for _, value in self.values("required"):
            names.update(name for name in listed(value) if isinstance(name, str))
        return frozenset(names)

    @cached_property
    def declared(self) -> frozenset[str]:
        """The members that are named anywhere at this place, whichever alternative holds."""
        return declared(self.nodes)

    @cached_property
    def closed(self) -> bool:
        """Whether members that nobody declared don't occur: who keeps to the contract sends only what it names."""
        if not self.keeps:
            return False
        found = list(in_place(self.nodes))
        if any(opens(node.get(word)) for node in found for word in ("additionalProperties", "unevaluatedProperties")):
            return False
        if any(isinstance(node.get("$dynamicRef"), str) for node in found):
            return False
        return self.whole or any(isinstance(node.get("properties"), dict) for node in found if not node.root.lent)

    @cached_property
    def declared_patterns(self) -> frozenset[str]:
        """The patterns of names that stand anywhere at this place."""
        return frozenset(text for node in in_place(self.nodes) for text, _ in pairs_of(node.get("patternProperties")))

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of names that surely count."""
        return tuple(
            dict.fromkeys(text for _, value in self.values("patternProperties") for text, _ in pairs_of(value))
        )

    def member(self, name: str) -> Facts:
        """What is known of the value of a member, if it is there."""
        known = name in self.declared or any(matches(one, name) for one in self.declared_patterns)
        return self._part(lambda node: member_of(node, name), *([NOTHING] if self.closed and not known else []))

    def matching(self, pattern: str) -> Facts:
        """What is known of the value of a member that no schema names but that matches a pattern."""

        def pick(node: Node) -> Iterator[Node]:
            return (node.inner(schema) for text, schema in pairs_of(node.get("patternProperties")) if text == pattern)

        found = self._part(pick)
        return found if self.declared_patterns == {pattern} else Facts(found.nodes, keeps=False)

    def rest(self) -> Facts:
        """What is known of the value of a member that no schema names and no pattern matches."""

        def pick(node: Node) -> Iterator[Node]:
            if isinstance(node.schema, dict) and "additionalProperties" in node.schema:
                yield node.inner(node.schema["additionalProperties"])

        return self._part(pick, *([NOTHING] if self.closed else []))

    # ---------------------------------------------------------------- items of arrays

    def item(self, place: int) -> Facts:
        """What is known of an item at a place, if it is there; one behind all that are named for a large number."""
        return self._part(lambda node: item_of(node, place))

    @property
    def named_items(self) -> int:
        """How many items have a schema of their own."""
        return max((len(value) for _, value in self.values("prefixItems") if isinstance(value, list)), default=0)
