"""Tools for tests of servers, clients and applications: recordings, a scripted peer, pairs in memory, both eras, a wire log,
checks of backends.

They need no test framework. `import gemel` does not load this package.
"""

from gemel.testing.backends import check_backend as check_backend
from gemel.testing.comparison import MessageDifference as MessageDifference
from gemel.testing.eras import both_eras as both_eras
from gemel.testing.eras import in_both_eras as in_both_eras
from gemel.testing.hosts import assert_fits_hosts as assert_fits_hosts
from gemel.testing.pair import Pair as Pair
from gemel.testing.pair import ServerSide as ServerSide
from gemel.testing.pair import memory_pair as memory_pair
from gemel.testing.recording import Recording as Recording
from gemel.testing.scripted_peer import ScriptedPeer as ScriptedPeer
from gemel.testing.scripted_peer import channel_pair as channel_pair
from gemel.testing.snapshots import Snapshots as Snapshots
from gemel.testing.wire_log import WireLog as WireLog
from gemel.testing.wire_log import WireMessage as WireMessage

__all__ = [
    "MessageDifference",
    "Pair",
    "Recording",
    "ScriptedPeer",
    "ServerSide",
    "Snapshots",
    "WireLog",
    "WireMessage",
    "assert_fits_hosts",
    "both_eras",
    "channel_pair",
    "check_backend",
    "in_both_eras",
    "memory_pair",
]
