"""The encoder of everything that is sent: any Python value that has a JSON form becomes JSON text.

msgspec encodes. What it does not know is converted first: subclasses of built-in types to their base, numbers of numpy and
pandas to those of Python, what pydantic knows by pydantic.
"""

from __future__ import annotations

import datetime as dt
import decimal
import os
import sys
import uuid
from collections import UserString, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence, Set
from enum import Enum
from math import isfinite
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from gemel.errors import shorten

#: The way to a part of a value: the names of members and the indexes of items.
Path: TypeAlias = tuple[str | int, ...]

#: Bytes of JSON text that are searched for a null.
_LONG = 16384
#: Buffers for the MessagePack of long values that nobody uses now: the pages of a new one cost more than to fill it.
_spare: list[bytearray] = []
#: Bytes of a buffer that is kept.
_MAX_SPARE = 1 << 22


class NotSerializable(TypeError):
    """A value has no JSON form.

    Args:
        kind: The type of the part that has none.
        advice: What to do about it.
        path: The way to the part; empty for the whole value.
    """

    def __init__(self, kind: str, advice: str, path: Path = ()) -> None:
        super().__init__(kind, advice, path)
        self.kind = kind
        self.advice = advice
        self.path = path

    @property
    def part(self) -> str:
        """The type and the place of the part, for messages."""
        steps = (f".{step}" if isinstance(step, str) and step.isidentifier() else f"[{step!r}]" for step in self.path)
        return f"{self.kind} at `{shorten(''.join(steps).removeprefix('.'))}`" if self.path else self.kind

    def __str__(self) -> str:
        return f"{self.part} has no JSON form: {self.advice}"


def encode_value(value: object) -> bytes:
    """Encode a value as JSON text, with U+FFFD for what is not Unicode.

    Args:
        value: Any value that has a JSON form; `msgspec.Raw` is JSON text already.

    Raises:
        NotSerializable: It has none, or a part of it has none. NaN and infinity have none.
    """
    try:
        if "pydantic.dataclasses" in sys.modules:
            value = _without_dataclasses(value)
        text = _encoder.encode(value)
    except Exception as error:
        text = _without_surrogates(value, error)
    if may_hold_null(text):
        check_finite(value, len(text))
    return text


def _without_surrogates(value: object, error: Exception) -> bytes:
    """The text of a value that could not be encoded, if only because of texts that are not Unicode."""
    try:
        if isinstance(error, UnicodeEncodeError):
            return encode_unicode(_encoder.encode, value)
    except Exception as other:
        error = other
    raise explained(value, error) from None


def plain_value(value: object) -> Any:
    """A value as plain JSON types, as a peer reads it. Raises NotSerializable."""
    return msgspec.json.decode(encode_value(value))


def ordered_text(value: object) -> bytes:
    """The JSON text of a value with its members in order, to tell one value from another. Raises NotSerializable."""
    return msgspec.json.encode(plain_value(value), order="deterministic")


def encode_unicode(encode: Callable[[Any], bytes], value: object) -> bytes:
    """The text of a value by any encoder, with U+FFFD for what is not Unicode.

    Raises what the encoder raises, and ValueError where no character can stand in its place.
    """
    try:
        return encode(value)
    except UnicodeEncodeError:
        from gemel.values.unicode import replace_surrogates

        return encode(replace_surrogates(value, _convert))


def simplified(value: object) -> Any:
    """A value of built-in types, as those of msgspec.convert. Dates, bytes and the like, which aren't strings, stay.

    Raises TypeError for `msgspec.Raw`, and NotSerializable.
    """
    return msgspec.to_builtins(value, builtin_types=_NO_STRINGS, str_keys=True, enc_hook=_convert)


# ---------------------------------------------------------------- what msgspec does not know


def _convert(value: object) -> Any:
    """A simpler value for one that msgspec does not know, or not as the key of an object. Raises NotSerializable."""
    kind = type(value)
    if value is None or kind is bool:
        return "null" if value is None else str(value).lower()
    if isinstance(value, dict | list | tuple | set | frozenset | msgspec.Struct):
        raise NotSerializable(f"{kind.__name__} as a key", _KEYS)
    if hasattr(kind, "__pydantic_serializer__") or hasattr(kind, "__get_pydantic_core_schema__"):
        return _by_pydantic(value)
    for base, simpler in _SIMPLER:
        if isinstance(value, base):
            return simpler(value)
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return _number(value)
    if kind.__module__ == "ipaddress":
        return str(value)
    for name, advice in _ADVICE:
        if hasattr(kind, name):
            raise NotSerializable(kind.__name__, advice)
    if kind.__name__ == "NAType":  # of pandas
        raise NotSerializable(kind.__name__, _MISSING)
    if isinstance(value, Iterator):
        return Raw(encode_value(list(value)))  # at once: it can be read only once
    return _by_pydantic(value)


def _datetime(value: dt.datetime) -> dt.datetime:
    date = (value.year, value.month, value.day)
    time = (value.hour, value.minute, value.second, value.microsecond)
    return dt.datetime(*date, *time, value.tzinfo, fold=value.fold)


def _timedelta(value: dt.timedelta) -> dt.timedelta:
    parts = (dt.timedelta.days, dt.timedelta.seconds, dt.timedelta.microseconds)
    return dt.timedelta(*(part.__get__(value) for part in parts))


#: Base types with a function that makes a value of the base, or of another type that msgspec knows, of a subclass's.
_SIMPLER: Sequence[tuple[Any, Callable[[Any], Any]]] = (
    (str, str.__str__),
    (UserString, str),
    (int, int.__int__),
    (float, float.__float__),
    (bytes | bytearray, bytes),
    (dt.datetime, _datetime),
    (dt.date, lambda value: dt.date(value.year, value.month, value.day)),
    (dt.time, lambda value: dt.datetime.combine(dt.date.min, value).timetz()),
    (dt.timedelta, _timedelta),
    (decimal.Decimal, decimal.Decimal),
    (os.PathLike, os.fspath),
    (Mapping, dict),
    (deque | Sequence | Set | MappingView, list),
)

#: Types that JSON has as strings.
_NO_STRINGS = (
    *(bytes, bytearray, memoryview),
    *(dt.datetime, dt.date, dt.time, dt.timedelta),
    *(uuid.UUID, decimal.Decimal),
)
_KEYS = "use strings as keys"
_CONVERT = "convert it to a str, number, list, dict, dataclass or pydantic model"
_MISSING = "use None for a missing value"
_NON_FINITE = ("NaN", "infinity")
#: Names of attributes, and what to do with a value that has one.
_ADVICE = (
    ("tolist", "convert it with .tolist()"),
    ("to_list", "convert it with .to_list()"),
    ("to_dicts", "convert it with .to_dicts()"),
    ("columns", 'convert it with .to_dict("records")'),
    ("to_dict", "convert it with .to_dict()"),
    ("read", "read it, and return what it holds"),
    ("__await__", "add `await`"),
)


def _number(value: Any) -> Any:
    """A scalar of numpy, or of a library alike, as Python's."""
    simple = value.item()
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    if kind in ("M", "m") and isinstance(simple, int):  # nanoseconds
        simple = value.astype(f"{kind}8[us]").item()
    if simple is None or getattr(value, "mask", False):  # NaT, and what an array masks
        raise NotSerializable(f"{type(value).__name__} without a value", _MISSING)
    if type(simple) is type(value):
        raise NotSerializable(type(value).__name__, "convert it with float() or str()")
    return simple


def _by_pydantic(value: object) -> Any:
    """A value of a type that pydantic knows, by its serializer; others are refused."""
    kind: Any = type(value)

    def convert(part: object) -> Any:
        if part is value:
            raise NotSerializable(kind.__name__, _CONVERT)
        return plain_value(part)

    try:
        from gemel.values.pydantic_types import codec_of

        codec = codec_of(kind)
    except Exception:  # pydantic is not installed, or does not know the type
        raise NotSerializable(kind.__name__, _CONVERT) from None
    plain = codec.dump(value, convert)
    if plain is value:  # pydantic passes it on, as an ellipsis
        raise NotSerializable(kind.__name__, _CONVERT)
    return plain if type(plain) is str else Raw(_encode_dumped(plain, codec, value))  # Raw can't be a key


def encode_by_pydantic(codec: Any, value: Any, *, warnings: str = "none") -> bytes:
    """Encode a value as pydantic serialises it.

    Args:
        codec: The `PydanticCodec` of its type.
        value: The value.
        warnings: "error" for an error if pydantic expects another type at a place.

    Raises:
        NotSerializable: A part has no JSON form.
        ValueError: pydantic's own error.
    """
    return _encode_dumped(codec.dump(value, plain_value, warnings=warnings), codec, value)


def _encode_dumped(plain: object, codec: Any, value: Any) -> bytes:
    """The text of what pydantic made of a value. Raises NotSerializable."""
    text = encode_value(plain)
    if text.find(b"null") >= 0 and _may_be_infinite(parts := codec.parts(value), len(text)):
        lost = _lost(plain, parts, ())
        if lost is not None:
            raise lost
    return text


def _lost(plain: object, parts: object, path: Path) -> NotSerializable | None:
    """The first NaN or infinity that pydantic has written as None."""
    if plain is None:
        return _fault(parts, path) if isinstance(parts, float) else None
    if isinstance(plain, dict) and isinstance(parts, Mapping):
        steps, inner, outer = list(plain), list(plain.values()), list(parts.values())
    elif isinstance(plain, list) and isinstance(parts, Iterable):
        steps, inner, outer = list(range(len(plain))), plain, list(parts)
    else:
        return None
    found = (_lost(one, other, (*path, step)) for step, one, other in zip(steps, inner, outer, strict=False))
    return next(filter(None, found), None)


def _without_dataclasses(value: object) -> Any:
    """The value with pydantic's dataclasses by pydantic: msgspec would write all their fields, those that it hides too."""
    if isinstance(value, dict):
        if _SCALARS.issuperset(map(type, value.values())):
            return value
        return {key: _without_dataclasses(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return value if _SCALARS.issuperset(map(type, value)) else list(map(_without_dataclasses, value))
    kind = type(value)
    if kind in _SCALARS:
        return value
    if (fields := getattr(kind, "__dataclass_fields__", None)) is not None:
        if hasattr(kind, "__pydantic_serializer__"):
            return _by_pydantic(value)
        members = getattr(value, "__dict__", {})
        if len(members) == len(fields) and _SCALARS.issuperset(map(type, members.values())):
            return value
    parts = dict(_parts(value) or ())
    changed = {name: made for name, part in parts.items() if (made := _without_dataclasses(part)) is not part}
    if not changed:
        return value
    return msgspec.structs.replace(value, **changed) if isinstance(value, msgspec.Struct) else {**parts, **changed}


#: Types without parts; a container of these alone needs no look at each.
_SCALARS = frozenset({str, int, float, bool, bytes, type(None)})


# ---------------------------------------------------------------- what has no JSON form


def explained(value: object, error: Exception) -> NotSerializable:
    """The error for a value that could not be encoded, with the way to the first part that has no JSON form."""
    try:
        fault = _fault(value, ())
    except RecursionError:  # each version of Python has another text for it
        fault, error = None, RecursionError("contains itself, or is nested too deeply")
    return fault or _refusal(value, error)


def _fault(value: object, path: Path) -> NotSerializable | None:
    """The first part of a value that has no JSON form."""
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, float):
        return None if isfinite(value) else NotSerializable(_NON_FINITE[value == value], _MISSING, path)
    parts = _parts(value)
    if parts is not None:
        faults = (_refused_key(step, path) or _fault(part, (*path, step)) for step, part in parts)
        return next(filter(None, faults), None)
    try:
        msgspec.json.encode(value)
        return None
    except UnicodeEncodeError:  # it is replaced
        return None
    except TypeError:
        pass
    except Exception as error:
        return _at(path, _refusal(value, error))
    try:
        simpler = _convert(value)
    except Exception as error:
        model = vars(value) if hasattr(type(value), "__pydantic_serializer__") else {}
        inner = (_fault(part, (*path, name)) for name, part in model.items())
        return next(filter(None, inner), None) or _at(path, _refusal(value, error))
    return _fault(simpler, path)


def _parts(value: Any) -> Iterable[tuple[Any, Any]] | None:
    """The parts of a value that msgspec encodes one by one; None for others."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, list | tuple | set | frozenset):
        return enumerate(value)
    if hasattr(value, "__dataclass_fields__"):
        from dataclasses import fields  # not loaded at the start

        names: Iterable[str] = (field.name for field in fields(value))
    elif isinstance(value, msgspec.Struct):
        names = value.__struct_fields__
    else:
        names = (field.name for field in getattr(value, "__attrs_attrs__", ()))
        if not hasattr(value, "__attrs_attrs__"):
            return None
    parts = ((name, getattr(value, name, UNSET)) for name in names)
    return [(name, part) for name, part in parts if part is not UNSET]


def _refused_key(key: object, path: Path) -> NotSerializable | None:
    try:
        _encoder.encode({key: None})
    except UnicodeEncodeError:  # it is replaced
        return None
    except Exception:
        return NotSerializable(f"{type(key).__name__} as a key", _KEYS, path)
    return None


def _refusal(value: object, error: Exception) -> NotSerializable:
    if isinstance(error, NotSerializable):
        return error
    kind = type(value).__name__
    if kind == "NaTType":  # of pandas, a datetime without a date
        return NotSerializable(kind, _MISSING)
    reason = shorten(" ".join(str(error).split()))
    return NotSerializable(f"{kind} ({reason})" if reason else kind, _CONVERT)


def _at(path: Path, error: NotSerializable) -> NotSerializable:
    return NotSerializable(error.kind, error.advice, (*path, *error.path))


# ---------------------------------------------------------------- NaN and infinity, which msgspec writes as null


def may_hold_null(text: bytes) -> bool:
    """Whether JSON text may hold a null. A long one is not searched: `check_finite` takes less time than that."""
    # `in` would be slower: it tries first whether the bytes are a number, by an exception. So would `find`, whose call costs
    # more than the search.
    return len(text) > _LONG or bool(text.partition(b"null")[1])


def check_finite(value: object, size: int = 0) -> None:
    """Raise NotSerializable for NaN and infinity.

    Args:
        value: What was encoded.
        size: The bytes of its text, if they are known.
    """
    if _may_be_infinite(value, size) and (fault := _fault(value, ())) is not None:
        raise fault


def is_finite(value: object) -> bool:
    """Whether a value holds neither NaN nor infinity, as far as it can be written."""
    if value is None or isinstance(value, str | int):
        return True  # most are
    try:
        check_finite(value)
    except NotSerializable as error:
        return error.kind not in _NON_FINITE
    except RecursionError:  # it contains itself
        return True
    return True


def _may_be_infinite(value: object, size: int) -> bool:
    try:
        return _may_hold_nan(_packer.encode(value)) if size <= _LONG else _long_may_hold_nan(value)
    except Exception:  # MessagePack has no form for integers of more than 64 bits
        return True


def _may_hold_nan(packed: bytes | bytearray) -> bool:
    """Whether MessagePack may hold NaN or infinity, for which it has a form.

    Their exponent is all ones, and so they begin with these bytes, as very large numbers do. The first test is the fastest.
    """
    return packed.find(b"\xcb") >= 0 and (packed.find(b"\xcb\x7f") >= 0 or packed.find(b"\xcb\xff") >= 0)


def _long_may_hold_nan(value: object) -> bool:
    try:
        buffer = _spare.pop()
    except IndexError:
        buffer = bytearray()
    _packer.encode_into(value, buffer)
    found = _may_hold_nan(buffer)
    if len(buffer) <= _MAX_SPARE:
        _spare.append(buffer)
    return found


_encoder = msgspec.json.Encoder(enc_hook=_convert)
_packer = msgspec.msgpack.Encoder(enc_hook=_convert)
