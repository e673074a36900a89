"""JSON Schemas as Python types: TypedDicts for arguments, msgspec structs for results, and what is simple as it is.

Where a schema says more than types can, the type is the wider one; where it can't be followed, Any.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from hinge.contracts.canonical import canonical
from hinge.contracts.json_schema import Node
from hinge.stubs.layout import WIDTH, Bracket, Piece, columns, docstring, flat, lay, literal
from hinge.stubs.names import ModuleNames, pascal, snake, unique

#: What a type is for: arguments may be anything that types can say, results what msgspec can tell apart.
Use: TypeAlias = Literal["argument", "result"]

#: Longer annotations get a name of their own; longer words of an enumeration, or more of them, are any text.
_LONG = 48
_LONGEST_WORD = 60
_MOST_WORDS = 100
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PLAIN = re.compile(r"(?:(?P<outer>list\[|dict\[str, ))?(?P<inner>\w+)(?(outer)\])")
#: msgspec can't be told that a member is called so.
_UNNAMEABLE = re.compile(r'[\\"\x00-\x1f]')
_WORDS = re.compile(r"\w+")


class Part(NamedTuple):
    """One member of a union, and the kinds of JSON that it is; `values` are those of a Literal, as Python text."""

    piece: Piece
    kinds: frozenset[str]
    values: tuple[str, ...] = ()


ANY = Part("Any", frozenset({"any"}))
NONE = Part("None", frozenset({"null"}))


class Types:
    """The classes and aliases of one module, in the order in which they must stand there."""

    def __init__(self, names: ModuleNames) -> None:
        self._names = names
        #: The lines of each class and alias.
        self.blocks: list[list[str]] = []
        self._classes: dict[tuple[str, ...], str] = {}
        self._aliases: dict[str, str] = {}
        #: What is being worked on, with its name if it is a class.
        self._open: dict[tuple[Use, int], str | None] = {}

    def annotation(self, node: Node, use: Use, hint: str) -> str:
        """The type of a schema, short enough for a line; `hint` names what has to be defined for it."""
        return self.joined(self.parts(node, use, hint), hint)

    def parts(self, node: Node, use: Use, hint: str) -> list[Part]:
        """The members of the union that a schema is."""
        found = _merged(self._parts(node, use, hint))
        if ANY in found or (use == "result" and (not found or not _told_apart(found))):
            return [ANY]
        return found

    def joined(self, parts: Sequence[Part], hint: str) -> str:
        """The union as an annotation."""
        if not parts:
            return "Never"
        pieces = [part.piece for part in parts if part is not NONE]
        pieces += ["None"] if NONE in parts else []
        whole = " | ".join(map(flat, pieces))
        return whole if columns(whole) <= _LONG else self.alias(pieces, hint)

    def is_class(self, annotation: str) -> bool:
        """Whether type checkers take an annotation as the type of its values: a class, a list or a mapping of one."""
        found = _PLAIN.fullmatch(annotation)
        return found is not None and found["inner"] not in self._aliases.values()

    def alias(self, pieces: Sequence[Piece], hint: str) -> str:
        """A name for a union that is too long for a line."""
        union = pieces[0] if len(pieces) == 1 else Bracket("Union[", pieces, "]")
        text = flat(union)
        if text in self._aliases:
            return self._aliases[text]
        working_on = {name for name in self._open.values() if name is not None}
        if isinstance(union, str) or working_on.intersection(_WORDS.findall(text)):
            return union if isinstance(union, str) else "Any"  # a class that isn't there yet can't be named in an alias
        name = self._aliases[text] = self._names.take(hint)
        self.blocks.append(lay(union._replace(head=f"{name}: TypeAlias = {union.head}"), 0))
        return name

    # ---------------------------------------------------------------- parts

    def _parts(self, node: Node, use: Use, hint: str) -> list[Part]:
        schema = node.schema
        if schema is False:
            return []
        if not isinstance(schema, dict):
            return [ANY]
        if "$ref" in schema:
            return self._referred(node, use, hint)
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list):
            return _literals(values, use)
        for word in ("anyOf", "oneOf"):
            if isinstance(schema.get(word), list) and schema[word] and "properties" not in schema:
                several = [node.inner(one) for one in schema[word]]
                return [part for one in several for part in self._parts(one, use, hint)]
        together = schema.get("allOf")
        if isinstance(together, list) and together and "properties" not in schema:
            return self._parts(node.inner(together[0]), use, hint) if len(together) == 1 else [ANY]
        said = schema.get("type")
        kinds = said if isinstance(said, list) else [_guessed(schema) if said is None else said]
        return [self._of_kind(node, str(kind), use, hint) for kind in kinds]

    def _referred(self, node: Node, use: Use, hint: str) -> list[Part]:
        found = node.root.find(node.schema["$ref"])
        if found is None:
            return [ANY]
        key = (use, id(found.schema))
        if key in self._open:
            name = self._open[key]
            return [ANY] if name is None else [Part(name, frozenset({"object"}))]  # only a class can hold itself
        self._open[key] = None
        try:
            return self._parts(found, use, pascal(str(node.schema["$ref"]).rpartition("/")[2], hint))
        finally:
            del self._open[key]

    def _of_kind(self, node: Node, kind: str, use: Use, hint: str) -> Part:
        if kind == "null":
            return NONE
        if kind in _SIMPLE:
            return Part(_SIMPLE[kind], frozenset({kind}))
        if kind == "array":
            return Part(self._array(node, use, hint), frozenset({"array"}))
        return Part(self._object(node, use, hint), frozenset({"object"})) if kind == "object" else ANY

    def _array(self, node: Node, use: Use, hint: str) -> Piece:
        first, rest = node.get("prefixItems"), node.get("items")
        if isinstance(first, list) and first:
            if rest is not False or node.get("minItems") != len(first) or len(first) > 8:
                return "list[Any]"
            return Bracket("tuple[", [self.annotation(node.inner(one), use, f"{hint}Item") for one in first], "]")
        item = self.annotation(node.inner(True if rest is None else rest), use, f"{hint}Item")
        return Bracket("list[", [item], "]", comma=False)

    def _object(self, node: Node, use: Use, hint: str) -> Piece:
        properties, rest = node.get("properties"), node.get("additionalProperties")
        known = isinstance(properties, dict) and properties and (rest is None or rest is False)
        if known and "" not in properties and (use == "argument" or not any(map(_UNNAMEABLE.search, properties))):
            return self._class(node, properties, use, hint)
        if not properties and isinstance(rest, dict):
            return Bracket("dict[", ["str", self.annotation(node.inner(rest), use, f"{hint}Value")], "]")
        return "dict[str, Any]"

    # ---------------------------------------------------------------- classes

    def _class(self, node: Node, properties: dict[str, Any], use: Use, hint: str) -> str:
        text = canonical(node.schema)
        around = canonical(node.root.schema) if '"$ref"' in text else ""
        key = (use, hint, text, around)
        if key in self._classes:
            return self._classes[key]
        name = self._names.take(f"{hint}Dict" if use == "argument" else hint)
        mine = (use, id(node.schema))
        before = mine in self._open
        self._open[mine] = name
        try:
            required = node.get("required")
            needed = set(map(str, required)) if isinstance(required, list) else set[str]()
            fields = [
                (wire, self.annotation(node.inner(one), use, f"{hint}{pascal(wire, 'Member')}"), wire in needed)
                for wire, one in properties.items()
            ]
        finally:
            if before:
                self._open[mine] = None
            else:
                del self._open[mine]
        said = docstring(str(node.get("description") or ""), 4)
        self.blocks.append(_typed_dict(name, fields, said) if use == "argument" else _struct(name, fields, said))
        self._classes[key] = name
        return name


Field: TypeAlias = tuple[str, str, bool]


def _typed_dict(name: str, fields: Sequence[Field], said: list[str]) -> list[str]:
    """A class where all keys can be names in one; else the form of a call."""
    wanted = [(wire, kind if needed else f"NotRequired[{kind}]") for wire, kind, needed in fields]
    lines = [f"    {wire}: {kind}" for wire, kind in wanted]
    used = {word for _, kind in wanted for word in _WORDS.findall(kind)}
    plain = all(_IDENTIFIER.fullmatch(wire) and not keyword.iskeyword(wire) and wire not in used for wire, _ in wanted)
    if plain and all(columns(line) <= WIDTH for line in lines):
        return [f"class {name}(TypedDict):", *said, *([""] if said else []), *lines]
    entries = [f"{literal(wire)}: {literal(kind)}" for wire, kind in wanted]
    return lay(Bracket(f"{name} = TypedDict(", [literal(name), Bracket("{", entries, "}")], ")"), 0)


def _struct(name: str, fields: Sequence[Field], said: list[str]) -> list[str]:
    """A struct; what a member is called on the wire stands in `rename`, where that can't be its name here."""
    taken = {word for _, kind, _ in fields for word in _WORDS.findall(kind)} | {"UNSET", "UnsetType", "Any", "msgspec"}
    lines: list[str] = []
    renamed: list[Piece] = []
    for wire, kind, needed in fields:
        own = unique(snake(wire, "member"), taken)
        taken.add(own)
        if own != wire:
            renamed.append(f"{literal(own)}: {literal(wire)}")
        line = f"    {own}: {kind}" if needed else f"    {own}: {kind} | UnsetType = UNSET"
        if kind in ("Any", "Never") or len(line) > WIDTH:
            line = f"    {own}: Any" if needed else f"    {own}: Any = UNSET"
        lines.append(line)
    bases: list[Piece] = ["msgspec.Struct", "kw_only=True"]
    bases += [Bracket("rename={", renamed, "}")] if renamed else []
    return [*lay(Bracket(f"class {name}(", bases, "):"), 0), *said, *([""] if said else []), *lines]


# ---------------------------------------------------------------- unions


def _merged(parts: Iterable[Part]) -> list[Part]:
    """Each member once; all values of Literals in one, but for those of a kind that is there as a whole."""
    known = {flat(part.piece): part for part in parts}
    whole = {kind for part in known.values() if not part.values for kind in part.kinds}
    if "number" in whole:
        whole.add("integer")
    values: dict[str, str] = {}
    for part in known.values():
        for value in part.values:
            (kind,) = part.kinds
            if kind not in whole:
                values.setdefault(value, kind)
    rest = [part for part in known.values() if not part.values]
    if any(part.kinds == {"number"} for part in rest):
        rest = [part for part in rest if part.kinds != {"integer"}]  # a float may be whole
    if not values:
        return rest
    return [Part(Bracket("Literal[", list(values), "]"), frozenset(values.values()), tuple(values)), *rest]


def _told_apart(parts: Sequence[Part]) -> bool:
    """Whether a value's kind says which member it is of."""
    kinds = [kind for part in parts for kind in part.kinds]
    return len(kinds) == len(set(kinds))


def _literals(values: Sequence[Any], use: Use) -> list[Part]:
    """The values of an enumeration; a kind as a whole where its values can't stand in a Literal."""
    found: list[Part] = []
    texts = [value for value in values if isinstance(value, str)]
    wide = len(texts) > _MOST_WORDS or any(columns(literal(text)) > _LONGEST_WORD for text in texts)
    for value in values:
        if value is None:
            found.append(NONE)
        elif isinstance(value, bool):
            plain = use == "result"
            found.append(Part("bool", frozenset({"boolean"})) if plain else _one(str(value), "boolean"))
        elif isinstance(value, str):
            found.append(Part("str", frozenset({"string"})) if wide else _one(literal(value), "string"))
        elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            small = abs(value) < 2**53
            found.append(_one(str(int(value)), "integer") if small else Part("int", frozenset({"integer"})))
        elif isinstance(value, float):
            found.append(Part("float", frozenset({"number"})))
        else:
            kind = "array" if isinstance(value, list) else "object"
            found.append(Part("list[Any]" if kind == "array" else "dict[str, Any]", frozenset({kind})))
    return found


def _one(text: str, kind: str) -> Part:
    return Part(Bracket("Literal[", [text], "]"), frozenset({kind}), (text,))


def _guessed(schema: dict[str, Any]) -> str:
    """What a schema without a type is most likely about."""
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "any"
