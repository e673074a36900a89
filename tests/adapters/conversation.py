"""What a scripted model says to an agent, and what it was told: the same for all frameworks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from gemel import Client, ClientGroup

#: A call that the model makes: a tool and its arguments.
Call = tuple[str, dict[str, Any]]


@dataclass
class Conversation:
    """A run of an agent whose model makes calls, one after the other, and then says "done".

    Attributes:
        told: What the model was told about each call, as text.
        answer: The last words of the agent.
        tools: The tools that the model had in its last turn: their schemas by name.
    """

    told: list[str] = field(default_factory=list)
    answer: str = ""
    tools: dict[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def connected(target: Any) -> AsyncIterator[Any]:
    """A client of a target; of several targets by name a group; a client that is connected as it is."""
    if isinstance(target, Client | ClientGroup):
        yield target
        return
    async with ClientGroup(target) if isinstance(target, Mapping) else Client(target) as client:
        yield client
