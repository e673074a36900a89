"""A stdio server to be run as a program: `python echo_server.py asyncio|uvloop`. It echoes, prints and sleeps."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[2] / "src")]

from gemel import Limits  # noqa: E402
from gemel.standard_streams import require_standard_streams  # noqa: E402
from gemel.transports.stream.stdio import serve_stdio  # noqa: E402
from tests.support import Channel  # noqa: E402
from tests.transports.echo import EchoConversation  # noqa: E402
from tests.transports.loops import FACTORIES  # noqa: E402

conversations: list[EchoConversation] = []


def serve(channel: Channel) -> EchoConversation:
    """The one conversation."""
    conversations.append(EchoConversation(channel))
    return conversations[0]


if __name__ == "__main__":
    require_standard_streams()
    print("printed before serving")
    with asyncio.Runner(loop_factory=FACTORIES[sys.argv[1]]) as runner:
        runner.run(serve_stdio(serve, limits=Limits(drain=1.0)))
