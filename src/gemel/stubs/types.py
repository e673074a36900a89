"""JSON Schemas as Python types: TypedDicts for arguments, msgspec structs for results, simple types otherwise.

A type may be wider than its schema; Any if the schema can't be expressed.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from gemel.contracts.canonical import canonical
from gemel.contracts.json_schema import Node
from gemel.stubs.python_source import (
    WIDTH,
    Bracket,
    ModuleNames,
    Piece,
    columns,
    distinct,
    docstring,
    flat,
    lay,
    literal,
    pascal,
)

#: What a type is for. The members of a union in a result must be distinguishable for msgspec.
Use: TypeAlias = Literal["argument", "result"]

#: Longer annotations become aliases; enumerations with longer or more strings become str.
_LONG = 48
_LONGEST_WORD = 60
_MOST_WORDS = 100
_SIMPLE = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_PLAIN = re.compile(r"(?:(?P<outer>list\[|dict\[str, ))?(?P<inner>\w+)(?(outer)\])")
#: Characters that msgspec does not support in the name of a member.
_UNNAMEABLE = re.compile(r'[\\"\x00-\x1f]')
_WORDS = re.compile(r"\w+")


class UnionMember(NamedTuple):
    """One member of a union, with its JSON types; `values` are those of a Literal, as source text."""

    piece: Piece
    kinds: frozenset[str]
    values: tuple[str, ...] = ()


ANY = UnionMember("Any", frozenset({"any"}))
NONE = UnionMember("None", frozenset({"null"}))


class Types:
    """The classes and aliases of one module, in the order of their definition."""

    def __init__(self, names: ModuleNames) -> None:
        self._names = names
        #: The lines of each class and alias.
        self.blocks: list[list[str]] = []
        self._classes: dict[tuple[str, ...], str] = {}
        self._aliases: dict[str, str] = {}
        #: The schemas that are being converted, with the name if it is a class.
        self._open: dict[tuple[Use, int], str | None] = {}

    def annotation(self, node: Node, use: Use, hint: str) -> str:
        """Return the type of a schema; `hint` is the name for a class or alias that it needs."""
        return self.joined(self.parts(node, use, hint), hint)

    def parts(self, node: Node, use: Use, hint: str) -> list[UnionMember]:
        """Return the type of a schema as members of a union."""
        merged = _merge(self._parts(node, use, hint))
        if ANY in merged or (use == "result" and (not merged or not _distinguishable(merged))):
            return [ANY]
        return merged

    def joined(self, parts: Sequence[UnionMember], hint: str) -> str:
        """Return a union as an annotation."""
        if not parts:
            return "Never"
        pieces = [part.piece for part in parts if part is not NONE]
        pieces += ["None"] if NONE in parts else []
        whole = " | ".join(map(flat, pieces))
        return whole if columns(whole) <= _LONG else self.alias(pieces, hint)

    def is_class(self, annotation: str) -> bool:
        """Return whether type checkers accept an annotation as a class: a class, or a list or mapping of one."""
        plain = _PLAIN.fullmatch(annotation)
        return plain is not None and plain["inner"] not in self._aliases.values()

    def alias(self, pieces: Sequence[Piece], hint: str) -> str:
        """Define an alias for a union, and return its name."""
        union = pieces[0] if len(pieces) == 1 else Bracket("Union[", pieces, "]")
        text = flat(union)
        if text in self._aliases:
            return self._aliases[text]
        working_on = {name for name in self._open.values() if name is not None}
        if isinstance(union, str) or working_on.intersection(_WORDS.findall(text)):
            return union if isinstance(union, str) else "Any"  # an alias can't name a class that is not defined yet
        name = self._aliases[text] = self._names.take(hint)
        self.blocks.append(lay(union._replace(head=f"{name}: TypeAlias = {union.head}"), 0))
        return name

    # ---------------------------------------------------------------- parts

    def _parts(self, node: Node, use: Use, hint: str) -> list[UnionMember]:
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
        declared = schema.get("type")
        kinds = declared if isinstance(declared, list) else [_guess_type(schema) if declared is None else declared]
        return [self._of_kind(node, str(kind), use, hint) for kind in kinds]

    def _referred(self, node: Node, use: Use, hint: str) -> list[UnionMember]:
        target = node.root.find(node.schema["$ref"])
        if target is None:
            return [ANY]
        key = (use, id(target.schema))
        if key in self._open:
            name = self._open[key]
            return (
                [ANY] if name is None else [UnionMember(name, frozenset({"object"}))]
            )  # only a class can contain itself
        self._open[key] = None
        try:
            return self._parts(target, use, pascal(str(node.schema["$ref"]).rpartition("/")[2], hint))
        finally:
            del self._open[key]

    def _of_kind(self, node: Node, kind: str, use: Use, hint: str) -> UnionMember:
        if kind == "null":
            return NONE
        if kind in _SIMPLE:
            return UnionMember(_SIMPLE[kind], frozenset({kind}))
        if kind == "array":
            return UnionMember(self._array(node, use, hint), frozenset({"array"}))
        return UnionMember(self._object(node, use, hint), frozenset({"object"})) if kind == "object" else ANY

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
        is_fixed = isinstance(properties, dict) and properties and (rest is None or rest is False)
        if is_fixed and "" not in properties and (use == "argument" or not any(map(_UNNAMEABLE.search, properties))):
            return self._class(node, properties, use, pascal(str(node.get("title") or ""), hint))
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
        declared = docstring(str(node.get("description") or ""), 4)
        self.blocks.append(
            _typed_dict(name, fields, declared) if use == "argument" else _struct(name, fields, declared)
        )
        self._classes[key] = name
        return name


Field: TypeAlias = tuple[str, str, bool]


def _typed_dict(name: str, fields: Sequence[Field], declared: list[str]) -> list[str]:
    """Return a TypedDict as a class if all keys are names, else in its functional form."""
    members = [(wire, kind if needed else f"NotRequired[{kind}]") for wire, kind, needed in fields]
    lines = [f"    {wire}: {kind}" for wire, kind in members]
    used = {word for _, kind in members for word in _WORDS.findall(kind)}
    plain = all(_IDENTIFIER.fullmatch(wire) and not keyword.iskeyword(wire) and wire not in used for wire, _ in members)
    if plain and all(columns(line) <= WIDTH for line in lines):
        return [f"class {name}(TypedDict):", *declared, *([""] if declared else []), *lines]
    entries = [f"{literal(wire)}: {literal(kind)}" for wire, kind in members]
    return lay(Bracket(f"{name} = TypedDict(", [literal(name), Bracket("{", entries, "}")], ")"), 0)


def _struct(name: str, fields: Sequence[Field], declared: list[str]) -> list[str]:
    """Return a struct; `rename` has the JSON names that are not Python names."""
    taken = {word for _, kind, _ in fields for word in _WORDS.findall(kind)} | {"UNSET", "UnsetType", "Any", "msgspec"}
    names = distinct([wire for wire, _, _ in fields], "member", taken)
    lines: list[str] = []
    renamed: list[Piece] = []
    for own, (wire, kind, needed) in zip(names, fields, strict=True):
        if own != wire:
            renamed.append(f"{literal(own)}: {literal(wire)}")
        line = f"    {own}: {kind}" if needed else f"    {own}: {kind} | UnsetType = UNSET"
        if kind in ("Any", "Never") or len(line) > WIDTH:
            line = f"    {own}: Any" if needed else f"    {own}: Any = UNSET"
        lines.append(line)
    bases: list[Piece] = ["msgspec.Struct", "kw_only=True"]
    bases += [Bracket("rename={", renamed, "}")] if renamed else []
    return [*lay(Bracket(f"class {name}(", bases, "):"), 0), *declared, *([""] if declared else []), *lines]


# ---------------------------------------------------------------- unions


def _merge(parts: Iterable[UnionMember]) -> list[UnionMember]:
    """Merge equal members and all Literals, except values of a type that is a member itself."""
    by_text = {flat(part.piece): part for part in parts}
    whole = {kind for part in by_text.values() if not part.values for kind in part.kinds}
    if "number" in whole:
        whole.add("integer")
    values: dict[str, str] = {}
    for part in by_text.values():
        for value in part.values:
            (kind,) = part.kinds
            if kind not in whole:
                values.setdefault(value, kind)
    rest = [part for part in by_text.values() if not part.values]
    if any(part.kinds == {"number"} for part in rest):
        rest = [part for part in rest if part.kinds != {"integer"}]  # float includes int
    if not values:
        return rest
    return [UnionMember(Bracket("Literal[", list(values), "]"), frozenset(values.values()), tuple(values)), *rest]


def _distinguishable(parts: Sequence[UnionMember]) -> bool:
    """Return whether the JSON type of a value decides the member."""
    kinds = [kind for part in parts for kind in part.kinds]
    return len(kinds) == len(set(kinds))


def _literals(values: Sequence[Any], use: Use) -> list[UnionMember]:
    """Return the values of an enumeration as Literals; a plain type for values that a Literal can't contain."""
    members: list[UnionMember] = []
    texts = [value for value in values if isinstance(value, str)]
    wide = len(texts) > _MOST_WORDS or any(columns(literal(text)) > _LONGEST_WORD for text in texts)
    for value in values:
        if value is None:
            members.append(NONE)
        elif isinstance(value, bool):
            plain = use == "result"
            members.append(UnionMember("bool", frozenset({"boolean"})) if plain else _one(str(value), "boolean"))
        elif isinstance(value, str):
            members.append(UnionMember("str", frozenset({"string"})) if wide else _one(literal(value), "string"))
        elif isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
            small = abs(value) < 2**53
            members.append(_one(str(int(value)), "integer") if small else UnionMember("int", frozenset({"integer"})))
        elif isinstance(value, float):
            members.append(UnionMember("float", frozenset({"number"})))
        else:
            kind = "array" if isinstance(value, list) else "object"
            members.append(UnionMember("list[Any]" if kind == "array" else "dict[str, Any]", frozenset({kind})))
    return members


def _one(text: str, kind: str) -> UnionMember:
    return UnionMember(Bracket("Literal[", [text], "]"), frozenset({kind}), (text,))


def _guess_type(schema: dict[str, Any]) -> str:
    """Guess the type of a schema that does not declare it."""
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    return "array" if "items" in schema or "prefixItems" in schema else "any"
