"""A byte-stream channel with its far ends in the test's hands."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from gemel import Limits
from gemel.transports.stream.descriptors import DescriptorTransport
from gemel.transports.stream.line_channel import LineChannel
from tests.transports.echo import AskConversation, EchoConversation
from tests.transports.loops import until


class Wire:
    """The raw far ends of a channel's two pipes; `writes` counts what came as separate writes."""

    def __init__(self, limits: Limits, *, server: bool = True) -> None:
        near_in, self.into = os.pipe()
        self.out, near_out = os.pipe()
        os.set_blocking(self.out, False)
        os.set_blocking(self.into, False)
        self.channel = LineChannel("stdio", limits, server=server)
        self.transport = DescriptorTransport(asyncio.get_running_loop(), self.channel, near_in, near_out)
        self.text = b""
        self.writes = 0

    def write(self, data: bytes) -> None:
        assert os.write(self.into, data) == len(data)

    def end_input(self) -> None:
        if self.into >= 0:
            os.close(self.into)
            self.into = -1

    def read(self) -> bytes:
        """What has come until now, all of it."""
        if self.out >= 0:
            with contextlib.suppress(BlockingIOError):
                while data := os.read(self.out, 1 << 20):
                    self.text += data
                    self.writes += 1
        return self.text

    async def lines(self, count: int) -> list[Any]:
        """The first messages, when so many have come."""
        await until(lambda: self.read().count(b"\n") >= count)
        return [msgspec.json.decode(line) for line in self.text.split(b"\n")[:-1]]

    def stop_reading(self) -> None:
        if self.out >= 0:
            os.close(self.out)
            self.out = -1

    def is_full(self) -> bool:
        """Whether the channel has stopped taking what is written to it."""
        return not self.transport.is_reading()


@contextlib.asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[tuple[Wire, EchoConversation]]:
    wire = Wire(Limits(**limits))
    conversation = EchoConversation(wire.channel)
    wire.channel.begin(conversation)
    try:
        yield wire, conversation
    finally:
        wire.end_input()
        wire.stop_reading()
        wire.channel.abort("the test is over")
        await wire.channel.wait_closed()
        await conversation.wait_closed()
        assert len(conversation.closed) == 1


@contextlib.asynccontextmanager
async def asking(**limits: Any) -> AsyncIterator[tuple[Wire, AskConversation]]:
    wire = Wire(Limits(**limits), server=False)
    conversation = AskConversation(wire.channel)
    wire.channel.begin(conversation)
    try:
        yield wire, conversation
    finally:
        wire.end_input()
        wire.stop_reading()
        wire.channel.abort("the test is over")
        await wire.channel.wait_closed()
