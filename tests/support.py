"""Internals that many tests need, in one place: a test imports them from here, so that a moved module changes one line.

Tests of the behaviour of one module import that module. What is public comes from `gemel`.
"""

from gemel import jsonrpc as jsonrpc
from gemel.channel import Channel as Channel
from gemel.channel import ChannelKind as ChannelKind
from gemel.channel import Serve as Serve
from gemel.jsonrpc import Failure as Failure
from gemel.jsonrpc import Notification as Notification
from gemel.jsonrpc import Request as Request
from gemel.jsonrpc import Response as Response
from gemel.protocol.eras.base import EraName as EraName
from gemel.protocol.http.request import Headers as Headers
from gemel.protocol.http.request import Refusal as Refusal
from gemel.protocol.limits import DEFAULT_LIMITS as DEFAULT_LIMITS
from gemel.protocol.records import UNKNOWN_ORIGIN as UNKNOWN_ORIGIN
from gemel.protocol.records import Batch as Batch
from gemel.protocol.records import Call as Call
from gemel.protocol.records import Inbound as Inbound
from gemel.protocol.records import LostAnswer as LostAnswer
from gemel.protocol.records import Origin as Origin
from gemel.protocol.records import Outgoing as Outgoing
from gemel.protocol.records import Pending as Pending
from gemel.schema.base import CLIENT_CAPABILITIES as CLIENT_CAPABILITIES
from gemel.schema.base import CLIENT_INFO as CLIENT_INFO
from gemel.schema.base import LOG_LEVEL as LOG_LEVEL
from gemel.schema.base import PROTOCOL_VERSION as PROTOCOL_VERSION
from gemel.schema.base import SERVER_INFO as SERVER_INFO
from gemel.schema.base import SUBSCRIPTION_ID as SUBSCRIPTION_ID
from gemel.schema.base import Annotations as Annotations
from gemel.schema.base import EmptyResult as EmptyResult
from gemel.schema.base import Implementation as Implementation
from gemel.schema.base import Model as Model
from gemel.schema.base import Result as Result
from gemel.schema.revisions import FIRST as FIRST
from gemel.schema.revisions import HANDSHAKE_REVISIONS as HANDSHAKE_REVISIONS
from gemel.schema.revisions import REVISIONS as REVISIONS
from gemel.schema.revisions import STATELESS_REVISIONS as STATELESS_REVISIONS
from gemel.schema.revisions import V2025_03 as V2025_03
from gemel.schema.revisions import V2025_06 as V2025_06
from gemel.schema.revisions import V2025_11 as V2025_11
from gemel.schema.revisions import V2026_07 as V2026_07
from tests.protocol.http.heads import head_of as head_of
