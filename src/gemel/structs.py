"""Structs of msgspec whose members are often set."""

from __future__ import annotations

from typing import TypeVar

import msgspec

StructT = TypeVar("StructT", bound=type[msgspec.Struct])


def sets_like_slots(struct: StructT) -> StructT:
    """A decorator: members are set as those of a class with `__slots__`, which costs a third of what msgspec does.

    Setting a member as msgspec does also shows the object to the garbage collector, if all its members were numbers, texts
    and the like until then. So each object must have another kind of member from the beginning, such as a dict or a Struct.
    """
    type.__setattr__(struct, "__setattr__", object.__setattr__)
    type.__setattr__(struct, "__delattr__", object.__delattr__)
    return struct
