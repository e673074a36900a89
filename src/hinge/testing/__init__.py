"""Tools for tests of servers, clients and applications: recordings, a scripted peer, pairs in memory, both eras, a wire log,
checks of backends.

They need no test framework. `import hinge` does not load this package.
"""

from hinge.testing.backends import check_backend as check_backend
from hinge.testing.comparison import MessageDifference as MessageDifference
from hinge.testing.eras import both_eras as both_eras
from hinge.testing.eras import in_both_eras as in_both_eras
from hinge.testing.hosts import assert_fits_hosts as assert_fits_hosts
from hinge.testing.pair import Pair as Pair
from hinge.testing.pair import ServerSide as ServerSide
from hinge.testing.pair import memory_pair as memory_pair
from hinge.testing.recording import Recording as Recording
from hinge.testing.scripted_peer import ScriptedPeer as ScriptedPeer
from hinge.testing.scripted_peer import channel_pair as channel_pair
from hinge.testing.snapshots import Snapshots as Snapshots
from hinge.testing.wire_log import WireLog as WireLog
from hinge.testing.wire_log import WireMessage as WireMessage

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
