"""What carries messages. A transport is given `serve`, knows nothing of the server, and of sessions what `SessionLike` says.

The names here are what transports of one's own are made of; see docs/reference/transports.md.
"""

from gemel.channel import Channel as Channel
from gemel.channel import Serve as Serve
from gemel.channel import SessionLike as SessionLike
from gemel.channel import Transport as Transport
from gemel.protocol.records import Batch as Batch
from gemel.protocol.records import Call as Call
from gemel.protocol.records import Origin as Origin
from gemel.protocol.records import Outgoing as Outgoing
from gemel.transports.duplex import DuplexChannel as DuplexChannel

__all__ = (
    "Batch",
    "Call",
    "Channel",
    "DuplexChannel",
    "Origin",
    "Outgoing",
    "Serve",
    "SessionLike",
    "Transport",
)
