"""For tests of servers, clients and applications: recordings, a scripted peer, pairs in memory, both eras, the wire.

Needs no test framework. `import hinge` doesn't load it.
"""

from hinge.testing.comparing import Difference as Difference
from hinge.testing.eras import both_eras as both_eras
from hinge.testing.eras import in_both_eras as in_both_eras
from hinge.testing.pair import Pair as Pair
from hinge.testing.pair import ServerSide as ServerSide
from hinge.testing.pair import channel_pair as channel_pair
from hinge.testing.pair import memory_pair as memory_pair
from hinge.testing.recording import Recording as Recording
from hinge.testing.scripted import ScriptedPeer as ScriptedPeer
from hinge.testing.wire import Wire as Wire
from hinge.testing.wire import WireMessage as WireMessage

__all__ = [
    "Difference",
    "Pair",
    "Recording",
    "ScriptedPeer",
    "ServerSide",
    "Wire",
    "WireMessage",
    "both_eras",
    "channel_pair",
    "in_both_eras",
    "memory_pair",
]
