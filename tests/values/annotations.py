"""Makes annotations by chance, each with values that fit it, over the libraries that functions are annotated with.

Every choice comes from one source of numbers, so that a seed or the bytes of a fuzzer make the same annotation again.
"""

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import typing
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, Optional, TypeVar, Union

import attrs
import msgspec
import pydantic
import pydantic.dataclasses
from msgspec import Meta
from pydantic import Field
from typing_extensions import TypedDict  # that of typing is not enough for pydantic before Python 3.12

T = TypeVar("T")


class Source:
    """Numbers that decide: those of `below(n)` are 0 to n - 1."""

    def __init__(self, below: Callable[[int], int]) -> None:
        self.below = below
        self._count = 0

    def one(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def chance(self, times: int, of: int) -> bool:
        return self.below(of) < times

    def name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"


class Made(NamedTuple):
    """An annotation with what makes a value that fits it. `text` shows how it was made."""

    annotation: Any
    value: Callable[[Source], Any]
    text: str


# ---------------------------------------------------------------- without parts


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 3


class Shade(enum.StrEnum):
    DARK = "dark"


class Word(str, enum.Enum):  # noqa: UP042  # as older code has it
    A = "a"


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Half(enum.Enum):
    HALF = 0.5
    WHOLE = 2.0


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Bits(enum.IntFlag):
    LOW = 1
    HIGH = 4


class Alone(enum.Flag):
    ON = 1


class Text(str):
    pass


ZONE = dt.timezone(dt.timedelta(hours=2))
TEXTS = ("", "a", "red", "é", "two words", "2026-01-31", "1", "A-1")
NUMBERS = (0, 1, 2, 3, 5, -7, 10, 2**53, 2**63, -(2**63))
FLOATS = (0.0, 0.5, 1.0, -2.5, 1e300, 3)
MOMENTS = (dt.datetime(2026, 1, 31, 12, tzinfo=dt.UTC), dt.datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=ZONE))


def of(annotation: Any, *values: Any, text: str = "") -> Made:
    return Made(annotation, lambda source: source.one(values), text or _shown(annotation))


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else str(annotation).replace("typing.", "")


PLAIN = (
    of(str, *TEXTS, Text("sub")),
    of(int, *NUMBERS),
    of(float, *FLOATS),
    of(bool, True, False),
    of(bytes, b"", b"hi"),
    of(bytearray, bytearray(b"hi")),
    of(type(None), None),
    of(dt.date, dt.date(2026, 1, 31)),
    of(dt.datetime, *MOMENTS, dt.datetime(2026, 1, 31, 12)),
    of(dt.time, dt.time(12, 30), dt.time(12, 30, tzinfo=dt.UTC)),
    of(dt.timedelta, dt.timedelta(hours=1), dt.timedelta(days=2, seconds=3, microseconds=4), dt.timedelta(0)),
    of(uuid.UUID, uuid.UUID(int=7)),
    of(decimal.Decimal, decimal.Decimal("1.50"), decimal.Decimal(3)),
    of(Colour, *Colour),
    of(Level, *Level),
    of(Shade, *Shade),
    of(Mixed, *Mixed),
    of(Half, *Half),
    of(Rights, *Rights, Rights.READ | Rights.WRITE, Rights(0)),
    of(Bits, *Bits, Bits.LOW | Bits.HIGH, Bits(0)),
    of(Alone, *Alone, Alone(0)),
    of(Literal["a", "b"], "a", "b"),
    of(Literal[1, 2], 1, 2),
    of(Literal["a", 1, None], "a", 1, None),
    of(Literal[True], True),
    of(Literal[True, "x"], True, "x"),
    of(Literal[Colour.RED], Colour.RED),
    of(Any, None, 1, "a", [1], {"a": None}),
    of(dict, {}, {"a": 1}),
    of(list, [], [1, "a"]),
    of(tuple, (), (1,)),
    of(set, {1}),
)
#: Known to pydantic only.
FOREIGN = (
    of(pathlib.PurePosixPath, pathlib.PurePosixPath("/a")),
    of(ipaddress.IPv4Address, ipaddress.ip_address("1.2.3.4")),
    of(ipaddress.IPv6Network, ipaddress.ip_network("::/8")),
    of(fractions.Fraction, fractions.Fraction(1, 2)),
)
#: Limited by msgspec, and an enum that pydantic writes by `str()` if it stands beside an IP address.
LIMITED = (
    of(Word, *Word),
    of(Annotated[int, Meta(ge=1, le=5)], 1, 3, 5),
    of(Annotated[int, Meta(gt=1)], 2),
    of(Annotated[int, Meta(multiple_of=3)], 0, 3),
    of(Annotated[float, Meta(gt=0, lt=1)], 0.5),
    of(Annotated[float, Meta(multiple_of=0.5)], 0.5, 1.0),
    of(Annotated[str, Meta(min_length=1, max_length=3)], "a", "abc"),
    of(Annotated[str, Meta(pattern="^[A-Z]-[0-9]$")], "A-1"),
    of(Annotated[list[int], Meta(min_length=1, max_length=2)], [1], [1, 2]),
    of(Annotated[dict[str, int], Meta(max_length=1)], {}, {"a": 1}),
    of(Annotated[dt.datetime, Meta(tz=True)], *MOMENTS),
    of(Annotated[dt.datetime, Meta(tz=False)], dt.datetime(2026, 1, 31)),
    of(Annotated[set[int], Meta(min_length=2)], {1, 2}),
)
#: Of pydantic.
PYDANTIC = (
    of(Annotated[int, Field(ge=1, le=5)], 1, 5),
    of(Annotated[int, Field(gt=1, multiple_of=2)], 2, 4),
    of(Annotated[float, Field(lt=1)], 0.5, -1.0),
    of(Annotated[str, Field(min_length=1, max_length=3)], "a", "abc"),
    of(Annotated[str, Field(pattern="^[A-Z]-[0-9]$")], "A-1"),
    of(Annotated[list[int], Field(min_length=1)], [1], [1, 2]),
    of(Annotated[dict[str, int], Field(max_length=1)], {}, {"a": 1}),
    of(Annotated[set[int], Field(max_length=2)], set(), {1, 2}),
    of(Annotated[decimal.Decimal, Field(ge=0)], decimal.Decimal("1.5")),
    of(Annotated[Rights, Field(description="d")], *Rights, Rights.READ | Rights.WRITE),
    of(Annotated[Level, Field(description="d")], *Level),
    of(Annotated[Half, Field(description="d")], *Half),
    of(Annotated[bytes, Field(description="d")], b"hi"),
    of(Annotated[dt.datetime, Field(description="d")], *MOMENTS, dt.datetime(2026, 1, 31)),
    of(Annotated[dt.date, Field(description="d")], dt.date(2026, 1, 31)),
    of(Annotated[dt.time, Field(description="d")], dt.time(12, 30)),
    of(Annotated[dt.timedelta, Field(description="d")], dt.timedelta(hours=1), dt.timedelta(days=1)),
    of(Annotated[uuid.UUID, Field(description="d")], uuid.UUID(int=7)),
    of(pydantic.AwareDatetime, *MOMENTS, text="AwareDatetime"),
    of(pydantic.NaiveDatetime, dt.datetime(2026, 1, 31), text="NaiveDatetime"),
    of(pydantic.PositiveInt, 1, 5, text="PositiveInt"),
    of(pydantic.StrictInt, 1, text="StrictInt"),
    of(pydantic.ByteSize, pydantic.ByteSize(5), text="ByteSize"),
    of(pydantic.AnyUrl, pydantic.AnyUrl("http://a.example/"), text="AnyUrl"),
    of(pydantic.SecretStr, pydantic.SecretStr("s"), text="SecretStr"),
    of(pydantic.JsonValue, None, 1, ["a"], {"a": 1.5}, text="JsonValue"),
    of(Annotated[int, pydantic.PlainSerializer(str, return_type=str)], 1, 5, text="int written as str"),
    of(
        Annotated[dt.timedelta, pydantic.PlainSerializer(lambda one: one.seconds, return_type=int)],
        *(dt.timedelta(hours=1), dt.timedelta(0)),
        text="seconds",
    ),
    of(Annotated[str, pydantic.AfterValidator(str.upper)], "A", text="str in capitals"),
    of(Annotated[int, pydantic.BeforeValidator(lambda one: one)], 1, text="int with a validator"),
)


# ---------------------------------------------------------------- classes that are written by hand


@dataclasses.dataclass
class Node:
    value: int
    next: Node | None = None


class NodeStruct(msgspec.Struct):
    value: int
    children: list[NodeStruct] = []


class NodeModel(pydantic.BaseModel):
    value: int
    next: NodeModel | None = None


class NodeDict(TypedDict, total=False):
    value: typing.Required[int]
    next: NodeDict


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class BoxModel(pydantic.BaseModel, Generic[T]):
    content: T


class BoxStruct(msgspec.Struct, Generic[T]):
    content: T


class Cat(msgspec.Struct, tag=True):
    lives: int = 9


class Dog(msgspec.Struct, tag="dog", tag_field="type"):
    name: str


class Bird(msgspec.Struct, tag="bird", tag_field="type"):
    wings: int = 2


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = 9


class DogModel(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str


@dataclasses.dataclass
class Derived:
    given: int
    made: int = dataclasses.field(init=False, default=1)
    doubled: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.doubled = 2 * self.given


@dataclasses.dataclass
class DerivedModel:
    given: Annotated[int, Field(description="given")]
    made: int = dataclasses.field(init=False, default=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frozen:
    x: int
    y: str = "y"


class Written(pydantic.BaseModel):
    """Written in another way than it is read."""

    when: dt.datetime = MOMENTS[0]
    names: set[str] = {"a"}

    @pydantic.field_serializer("names")
    def _joined(self, names: set[str]) -> str:
        return ",".join(sorted(names))

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic has it
    @property
    def count(self) -> int:
        return len(self.names)


class Whole(pydantic.BaseModel):
    """Written as something else."""

    x: int

    @pydantic.model_serializer
    def _as_list(self) -> list[int]:
        return [self.x]


class Root(pydantic.RootModel[list[int]]):
    pass


class ByName(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(serialize_by_alias=False, populate_by_name=True)
    ident: int = Field(alias="_id")


class Aliased(pydantic.BaseModel):
    ident: int = Field(alias="_id")
    both: str = Field("b", validation_alias="bothIn", serialization_alias="bothOut")


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    x: int


class Open(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, int]  # pyright: ignore[reportIncompatibleVariableOverride]  # as pydantic has it
    x: int = 1


class Settings(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(
        use_enum_values=True, ser_json_bytes="base64", val_json_bytes="base64", ser_json_timedelta="float"
    )
    colour: Colour = Colour.RED
    data: bytes = b"hi"
    duration: dt.timedelta = dt.timedelta(seconds=1)


class Encoded(pydantic.BaseModel):
    data: pydantic.Base64Bytes


class Hidden(pydantic.BaseModel):
    shown: int = 1
    secret: str = Field("s", exclude=True)


class Sparse(pydantic.BaseModel):
    """Leaves out what is not set."""

    x: int | None = Field(None, exclude_if=lambda one: one is None)


@pydantic.dataclasses.dataclass
class PydanticData:
    x: int
    y: list[str] = dataclasses.field(default_factory=list)
    hidden: str = Field(default="s", exclude=True)


_data: Any = PydanticData


BY_HAND = (
    of(Node, Node(1), Node(1, Node(2))),
    of(NodeDict, {"value": 1}, {"value": 1, "next": {"value": 2}}),
    of(Derived, Derived(1)),
    of(Frozen, Frozen(x=1)),
    of(Box[int], Box(1), text="Box[int]"),
)
BY_HAND_STRUCT = (
    of(NodeStruct, NodeStruct(1), NodeStruct(1, [NodeStruct(2)])),
    of(BoxStruct[str], BoxStruct("a"), text="BoxStruct[str]"),
    of(Cat, Cat()),
    of(Dog | Bird, Dog("Rex"), Bird()),
    of(Dog | None, Dog("Rex"), None),
    of(Dog | int | str, Dog("Rex"), 1, "a"),
)
BY_HAND_PYDANTIC = (
    of(NodeModel, NodeModel(value=1), NodeModel(value=1, next=NodeModel(value=2))),
    of(BoxModel[int], BoxModel[int](content=1), text="BoxModel[int]"),
    of(CatModel, CatModel()),
    of(CatModel | DogModel, CatModel(), DogModel(kind="dog", name="Rex")),
    of(
        Annotated[CatModel | DogModel, Field(discriminator="kind")],
        *(CatModel(), DogModel(kind="dog", name="Rex")),
        text="CatModel | DogModel by kind",
    ),
    of(DerivedModel, DerivedModel(1)),
    of(Written, Written(), Written(names={"b", "a"})),
    of(Whole, Whole(x=1)),
    of(Root, Root([1]), Root([])),
    of(ByName, ByName(_id=1)),
    of(Aliased, Aliased.model_validate({"_id": 1})),
    of(Strict, Strict(x=1)),
    of(Open, Open.model_validate({}), Open.model_validate({"y": 2})),
    of(Settings, Settings(), Settings(colour=Colour.BLUE)),
    of(Encoded, Encoded(data=b"aGk=")),
    of(Hidden, Hidden.model_validate({})),
    of(Sparse, Sparse.model_validate({}), Sparse(x=1)),
    of(PydanticData, _data(1), _data(1, ["a"])),
)

# ---------------------------------------------------------------- keys of objects

KEYS = (
    of(str, *TEXTS),
    of(int, 0, 1, -7, 2**40),
    of(float, 0.5, 1.0, -2.0),
    of(bool, True, False),
    of(uuid.UUID, uuid.UUID(int=7)),
    of(dt.date, dt.date(2026, 1, 31)),
    of(dt.datetime, *MOMENTS),
    of(decimal.Decimal, decimal.Decimal("1.5")),
    of(bytes, b"hi"),
    of(Colour, *Colour),
    of(Level, *Level),
    of(Shade, *Shade),
    of(Mixed, *Mixed),
    of(Literal["a", "b"], "a", "b"),
    of(Literal[1, 2], 1, 2),
    of(Literal["a", 1], "a", 1),
    of(Literal[True, "x"], True, "x"),
    of(int | str, 1, "a"),
    of(bool | int, True, 5),
    of(uuid.UUID | int, uuid.UUID(int=7), 5),
    of(dt.time, dt.time(12, 30, tzinfo=dt.UTC)),
    of(dt.timedelta, dt.timedelta(hours=1)),
    of(Rights, *Rights),
    of(Any, "a"),
)
KEYS_LIMITED = (
    of(Annotated[str, Meta(pattern="^[a-z]+$")], "a", "red"),
    of(Annotated[str, Meta(min_length=1)], "a"),
    of(Annotated[int, Meta(ge=0)], 0, 5),
    of(Annotated[int, Meta(gt=0)], 1, 5),
    of(Annotated[int, Meta(ge=1, le=5)], 1, 5),
    of(Annotated[float, Meta(ge=0)], 0.5, 1.0),
)
KEYS_PYDANTIC = (
    of(Annotated[str, Field(pattern="^[a-z]+$")], "a", "red"),
    of(Annotated[str, Field(min_length=1)], "a"),
    of(Annotated[int, Field(ge=0)], 0, 5),
    of(pydantic.PositiveInt, 1, 5, text="PositiveInt"),
    of(Annotated[int, Field(ge=1, le=9, multiple_of=3)], 3, 9),
    of(Annotated[float, Field(ge=0)], 0.5, 1.0),
    of(Annotated[decimal.Decimal, Field(ge=0)], decimal.Decimal("1.5")),
    of(Annotated[bool, Field(description="d")], True, False),
    of(Annotated[dt.date, Field(description="d")], dt.date(2026, 1, 31)),
    of(pydantic.AwareDatetime, *MOMENTS, text="AwareDatetime"),
    of(Annotated[Colour, Field(description="d")], *Colour),
    of(Annotated[Level, Field(description="d")], *Level),
)

# ---------------------------------------------------------------- with parts

Family = Literal["plain", "struct", "pydantic"]


def annotation(source: Source, *, depth: int = 3) -> Made:
    """Make an annotation: of types of Python, with structs and limits of msgspec, or with types of pydantic."""
    return _Maker(source, source.one(("plain", "struct", "pydantic"))).any(depth)


class _Maker:
    def __init__(self, source: Source, family: Family) -> None:
        self._source = source
        self._family = family
        self._in_class = False
        self._leaves = {
            "plain": (*PLAIN, *FOREIGN, *BY_HAND),
            "struct": (*PLAIN, *LIMITED, *BY_HAND, *BY_HAND_STRUCT),
            "pydantic": (*PLAIN, *FOREIGN, *PYDANTIC, *BY_HAND, *PYDANTIC, *BY_HAND_PYDANTIC),
        }[family]
        self._keys = {
            "plain": KEYS,
            "struct": (*KEYS, *KEYS_LIMITED),
            "pydantic": (*KEYS, *KEYS_PYDANTIC),
        }[family]

    def any(self, depth: int) -> Made:
        if depth == 0 or self._source.chance(1, 3):
            return self._source.one(self._leaves)
        makers = [self._list, self._set, self._tuple, self._dict, self._union, self._optional, self._fields]
        return self._source.one(makers)(depth - 1)

    def _list(self, depth: int) -> Made:
        # In a class an Iterable is read while it is used, as pydantic does it.
        kind = self._source.one(_LISTS if self._in_class else (*_LISTS, *_ITERABLES))
        inner = self.any(depth)
        name = _shown(kind)
        if kind is tuple:
            row: Any = tuple[inner.annotation, ...]  # type: ignore[name-defined]  # of any kind
            return Made(row, lambda s: tuple(_several(s, inner)), f"tuple[{inner.text}, ...]")
        made: Any = {collections.deque: collections.deque, collections.abc.Iterator: _iterator}.get(kind, list)
        return Made(kind[inner.annotation], lambda s: made(_several(s, inner)), f"{name}[{inner.text}]")

    def _set(self, depth: int) -> Made:
        kind = self._source.one(_SETS)
        inner = self._source.one(self._keys)
        of_items: Any = kind[inner.annotation]
        made = frozenset if kind is frozenset else set
        return Made(of_items, lambda s: made(_several(s, inner)), f"{_shown(kind)}[{inner.text}]")

    def _tuple(self, depth: int) -> Made:
        parts = [self.any(depth) for _ in range(self._source.below(3) + 1)]
        kind: Any = tuple[tuple(part.annotation for part in parts)]  # type: ignore[misc]  # made of a tuple
        text = ", ".join(part.text for part in parts)
        return Made(kind, lambda s: tuple(part.value(s) for part in parts), f"tuple[{text}]")

    def _dict(self, depth: int) -> Made:
        kind = self._source.one(_DICTS)
        key, inner = self._source.one(self._keys), self.any(depth)
        of_members: Any = kind[key.annotation, inner.annotation]
        made = collections.OrderedDict if kind is collections.OrderedDict else dict

        def value(source: Source) -> Any:
            return made((key.value(source), inner.value(source)) for _ in range(source.below(3)))

        return Made(of_members, value, f"{_shown(kind)}[{key.text}, {inner.text}]")

    def _union(self, depth: int) -> Made:
        parts = [self.any(depth) for _ in range(self._source.below(2) + 2)]
        kinds = tuple(part.annotation for part in parts)
        union: Any = Union[kinds]  # noqa: UP007  # made of a tuple
        return Made(union, lambda s: s.one(parts).value(s), " | ".join(part.text for part in parts))

    def _optional(self, depth: int) -> Made:
        inner = self.any(depth)
        optional: Any = Optional[inner.annotation]  # noqa: UP045  # of any kind
        return Made(optional, lambda s: None if s.chance(1, 3) else inner.value(s), f"{inner.text} | None")

    def _fields(self, depth: int) -> Made:
        """A class with fields, of one of the libraries."""
        makers = [_dataclass, _typed_dict, _named_tuple, _attrs]
        if self._family == "struct":
            makers += [_struct, _struct]
        if self._family == "pydantic":
            makers += [_model, _model, _pydantic_dataclass]
        outer, self._in_class = self._in_class, True
        parts = {f"{name}_{name}": self.any(depth) for name in "abc"[: self._source.below(3) + 1]}
        self._in_class = outer
        return self._source.one(makers)(self._source, parts)


_LISTS: tuple[Any, ...] = (
    *(list, list, tuple, collections.deque),
    *(collections.abc.Sequence, collections.abc.Collection, collections.abc.MutableSequence),
)
_SETS: tuple[Any, ...] = (set, frozenset, collections.abc.Set)
_DICTS: tuple[Any, ...] = (
    *(dict, collections.abc.Mapping),
    *(collections.abc.MutableMapping, collections.OrderedDict),
)
_ITERABLES: tuple[Any, ...] = (collections.abc.Iterable, collections.abc.Iterator)


def _iterator(values: Any) -> Any:
    return (value for value in values)


def _several(source: Source, inner: Made) -> list[Any]:
    return [inner.value(source) for _ in range(source.below(4))]


Parts = Mapping[str, Made]


def _text(what: str, parts: Parts, defaults: Mapping[str, Any], more: str = "") -> str:
    fields = (f"{name}: {part.text}{' = …' if name in defaults else ''}" for name, part in parts.items())
    return f"{what}({', '.join(fields)}{more})"


def _defaults(source: Source, parts: Parts) -> dict[str, Any]:
    """Values for the last fields, which have a default then."""
    first = source.below(len(parts) + 1)
    return {name: part.value(source) for name, part in list(parts.items())[first:]}


def _given(source: Source, parts: Parts, defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part.value(source) for name, part in parts.items() if name not in defaults or source.chance(1, 2)}


def _maker(value: Any) -> Callable[[], Any]:
    return lambda: value


def _dataclass(source: Source, parts: Parts) -> Made:
    defaults = _defaults(source, parts)
    fields = [
        (name, part.annotation, dataclasses.field(default_factory=_maker(defaults[name])))
        if name in defaults
        else (name, part.annotation)
        for name, part in parts.items()
    ]
    made: Any = dataclasses.make_dataclass(source.name("Data"), fields)
    return Made(made, lambda s: made(**_given(s, parts, defaults)), _text("dataclass", parts, defaults))


def _pydantic_dataclass(source: Source, parts: Parts) -> Made:
    made = _dataclass(source, parts)
    kind: Any = pydantic.dataclasses.dataclass(made.annotation)

    def value(source: Source) -> Any:
        plain = made.value(source)
        return kind(**{field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)})

    return Made(kind, value, f"pydantic {made.text}")


def _typed_dict(source: Source, parts: Parts) -> Made:
    optional = set(_defaults(source, parts))
    hints = {
        name: typing.NotRequired[part.annotation] if name in optional else part.annotation
        for name, part in parts.items()
    }
    made: Any = TypedDict(source.name("Dict"), hints)  # type: ignore[misc]  # a name made by chance
    return Made(
        made, lambda s: _given(s, parts, dict.fromkeys(optional)), _text("TypedDict", parts, dict.fromkeys(optional))
    )


def _named_tuple(source: Source, parts: Parts) -> Made:
    made: Any = NamedTuple(source.name("Row"), [(name, part.annotation) for name, part in parts.items()])  # type: ignore[misc]  # a name made by chance
    return Made(made, lambda s: made(*(part.value(s) for part in parts.values())), _text("NamedTuple", parts, {}))


def _attrs(source: Source, parts: Parts) -> Made:
    defaults = _defaults(source, parts)
    fields = {
        name: attrs.field(type=part.annotation, default=attrs.Factory(_maker(defaults[name])))
        if name in defaults
        else attrs.field(type=part.annotation)
        for name, part in parts.items()
    }
    made: Any = attrs.make_class(source.name("Attrs"), fields)
    return Made(made, lambda s: made(**_given(s, parts, defaults)), _text("attrs", parts, defaults))


def _struct(source: Source, parts: Parts) -> Made:
    defaults = _defaults(source, parts)
    fields: list[Any] = [
        (name, part.annotation, msgspec.field(default_factory=_maker(defaults[name])))
        if name in defaults
        else (name, part.annotation)
        for name, part in parts.items()
    ]
    options: dict[str, Any] = {
        "rename": source.one((None, "camel", "kebab")),
        "omit_defaults": source.chance(1, 2),
        "forbid_unknown_fields": source.chance(1, 2),
        "array_like": source.chance(1, 4),
        "tag": source.one((None, None, True, "t", 3)),
    }
    made: Any = msgspec.defstruct(source.name("Struct"), fields, **options)
    return Made(made, lambda s: made(**_given(s, parts, defaults)), _text("Struct", parts, defaults, f"; {options}"))


def _model(source: Source, parts: Parts) -> Made:
    defaults = _defaults(source, parts)
    fields: dict[str, Any] = {
        name: (part.annotation, Field(default_factory=_maker(defaults[name])))
        if name in defaults
        else (part.annotation, Field(description="d"))
        for name, part in parts.items()
    }
    generator = source.one((None, None, str.upper))
    options = {
        # pydantic writes the members of a TypedDict inside by these names, too, and lists others.
        "alias_generator": None if any("Dict" in part.text for part in parts.values()) else generator,
        "validate_by_name": source.chance(1, 4),
        "serialize_by_alias": source.one((None, None, True, False)),
        "extra": source.one((None, "forbid", "allow")),
    }
    config: Any = {name: option for name, option in options.items() if option is not None}
    name = "ByName" if options["validate_by_name"] else "Model"
    made: Any = pydantic.create_model(source.name(name), __config__=config, **fields)

    def value(source: Source) -> Any:
        given = _given(source, parts, defaults)
        return made(
            **{(name if options["alias_generator"] is None else name.upper()): one for name, one in given.items()}
        )

    return Made(made, value, _text("Model", parts, defaults, f"; {options}"))
