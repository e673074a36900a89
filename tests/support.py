"""Internals that many tests need, in one place: a test imports them from here, so that a moved module changes one line.

Tests of the behaviour of one module import that module. What is public comes from `hinge`.
"""

from hinge import jsonrpc as jsonrpc
from hinge.channel import Channel as Channel
from hinge.channel import ChannelKind as ChannelKind
from hinge.channel import Serve as Serve
from hinge.jsonrpc import Failure as Failure
from hinge.jsonrpc import Notification as Notification
from hinge.jsonrpc import Request as Request
from hinge.jsonrpc import Response as Response
from hinge.protocol.eras.base import EraName as EraName
from hinge.protocol.http.request import Headers as Headers
from hinge.protocol.http.request import Refusal as Refusal
from hinge.protocol.limits import DEFAULT_LIMITS as DEFAULT_LIMITS
from hinge.protocol.records import UNKNOWN_ORIGIN as UNKNOWN_ORIGIN
from hinge.protocol.records import Batch as Batch
from hinge.protocol.records import Call as Call
from hinge.protocol.records import Inbound as Inbound
from hinge.protocol.records import Origin as Origin
from hinge.protocol.records import Outgoing as Outgoing
from hinge.protocol.records import Pending as Pending
from hinge.schema.base import CLIENT_CAPABILITIES as CLIENT_CAPABILITIES
from hinge.schema.base import CLIENT_INFO as CLIENT_INFO
from hinge.schema.base import LOG_LEVEL as LOG_LEVEL
from hinge.schema.base import PROTOCOL_VERSION as PROTOCOL_VERSION
from hinge.schema.base import SERVER_INFO as SERVER_INFO
from hinge.schema.base import SUBSCRIPTION_ID as SUBSCRIPTION_ID
from hinge.schema.base import Annotations as Annotations
from hinge.schema.base import EmptyResult as EmptyResult
from hinge.schema.base import Implementation as Implementation
from hinge.schema.base import Model as Model
from hinge.schema.base import Result as Result
from hinge.schema.revisions import FIRST as FIRST
from hinge.schema.revisions import HANDSHAKE_REVISIONS as HANDSHAKE_REVISIONS
from hinge.schema.revisions import REVISIONS as REVISIONS
from hinge.schema.revisions import STATELESS_REVISIONS as STATELESS_REVISIONS
from hinge.schema.revisions import V2025_03 as V2025_03
from hinge.schema.revisions import V2025_06 as V2025_06
from hinge.schema.revisions import V2025_11 as V2025_11
from hinge.schema.revisions import V2026_07 as V2026_07
from tests.protocol.http.heads import head_of as head_of
