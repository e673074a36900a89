"""Hinge, the Model Context Protocol for Python: the public names, each loaded when it is first used.

Importing this module imports nothing else. A name stands in two places below: in the table that the interpreter reads,
and in the imports that type checkers read; a test holds them together.
"""

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` for it would cost more than all the rest

if TYPE_CHECKING:
    from hinge.bridge.proxy import proxy as proxy
    from hinge.client.answers import Refused as Refused
    from hinge.client.client import Client as Client
    from hinge.client.contents import in_words as in_words
    from hinge.client.contents import save_content as save_content
    from hinge.client.contents import save_contents as save_contents
    from hinge.client.contract import contract_of as contract_of
    from hinge.client.extensions import ClientExtension as ClientExtension
    from hinge.client.extensions import ClientMethod as ClientMethod
    from hinge.client.extensions import SentMethod as SentMethod
    from hinge.client.features import is_not_found as is_not_found
    from hinge.client.hosts import Hosts as Hosts
    from hinge.client.listening import Listening as Listening
    from hinge.client.middleware import ClientContext as ClientContext
    from hinge.client.negotiate import Discovery as Discovery
    from hinge.client.pool import Pool as Pool
    from hinge.client.required_pages import UrlElicitationRequired as UrlElicitationRequired
    from hinge.client.terminal import Terminal as Terminal
    from hinge.errors import CallError as CallError
    from hinge.errors import CallTimeout as CallTimeout
    from hinge.errors import ChannelClosed as ChannelClosed
    from hinge.errors import ConnectFailed as ConnectFailed
    from hinge.errors import ConnectionLost as ConnectionLost
    from hinge.errors import ContractDrift as ContractDrift
    from hinge.errors import DefinitionError as DefinitionError
    from hinge.errors import ErrorObject as ErrorObject
    from hinge.errors import HeaderMismatch as HeaderMismatch
    from hinge.errors import HingeError as HingeError
    from hinge.errors import HttpStatus as HttpStatus
    from hinge.errors import InternalError as InternalError
    from hinge.errors import InvalidArguments as InvalidArguments
    from hinge.errors import InvalidEnvelope as InvalidEnvelope
    from hinge.errors import InvalidParams as InvalidParams
    from hinge.errors import InvalidRequest as InvalidRequest
    from hinge.errors import InvalidResponse as InvalidResponse
    from hinge.errors import MethodNotFound as MethodNotFound
    from hinge.errors import MissingClientCapability as MissingClientCapability
    from hinge.errors import NotSent as NotSent
    from hinge.errors import Outcome as Outcome
    from hinge.errors import Overloaded as Overloaded
    from hinge.errors import ParseError as ParseError
    from hinge.errors import PeerError as PeerError
    from hinge.errors import ProtocolError as ProtocolError
    from hinge.errors import ResourceNotFound as ResourceNotFound
    from hinge.errors import SessionEnded as SessionEnded
    from hinge.errors import StartError as StartError
    from hinge.errors import ToolError as ToolError
    from hinge.errors import ToolFailed as ToolFailed
    from hinge.errors import UnsupportedVersion as UnsupportedVersion
    from hinge.lock.comparing import Difference as Difference
    from hinge.lock.contract import Contract as Contract
    from hinge.protocol.changes import Changed as Changed
    from hinge.protocol.changes import Lost as Lost
    from hinge.protocol.http import Principal as Principal
    from hinge.protocol.http import Refusal as Refusal
    from hinge.protocol.limits import Limits as Limits
    from hinge.schema.base import Annotations as Annotations
    from hinge.schema.base import Icon as Icon
    from hinge.schema.base import Implementation as Implementation
    from hinge.schema.completion import Completion as Completion
    from hinge.schema.content import AudioContent as AudioContent
    from hinge.schema.content import ContentBlock as ContentBlock
    from hinge.schema.content import EmbeddedResource as EmbeddedResource
    from hinge.schema.content import ImageContent as ImageContent
    from hinge.schema.content import ResourceContents as ResourceContents
    from hinge.schema.content import ResourceLink as ResourceLink
    from hinge.schema.content import TextContent as TextContent
    from hinge.schema.elicitation import ElicitFormParams as ElicitFormParams
    from hinge.schema.elicitation import ElicitResult as ElicitResult
    from hinge.schema.elicitation import ElicitUrlParams as ElicitUrlParams
    from hinge.schema.input_required import InputRequiredResult as InputRequiredResult
    from hinge.schema.notifications import LogParams as LogParams
    from hinge.schema.notifications import ProgressParams as ProgressParams
    from hinge.schema.prompts import GetPromptResult as GetPromptResult
    from hinge.schema.prompts import Prompt as Prompt
    from hinge.schema.prompts import PromptMessage as PromptMessage
    from hinge.schema.resources import ReadResourceResult as ReadResourceResult
    from hinge.schema.resources import Resource as Resource
    from hinge.schema.resources import ResourceTemplate as ResourceTemplate
    from hinge.schema.roots import Root as Root
    from hinge.schema.sampling import CreateMessageParams as CreateMessageParams
    from hinge.schema.sampling import CreateMessageResult as CreateMessageResult
    from hinge.schema.sampling import SamplingMessage as SamplingMessage
    from hinge.schema.tools import CallToolResult as CallToolResult
    from hinge.schema.tools import Tool as Tool
    from hinge.schema.tools import ToolAnnotations as ToolAnnotations
    from hinge.server.apps import Apps as Apps
    from hinge.server.apps import Csp as Csp
    from hinge.server.asking import Declined as Declined
    from hinge.server.caching import CacheHint as CacheHint
    from hinge.server.call_log import CallLog as CallLog
    from hinge.server.client_log import LogToClient as LogToClient
    from hinge.server.context import Context as Context
    from hinge.server.current import current_context as current_context
    from hinge.server.depends import Ask as Ask
    from hinge.server.depends import Depends as Depends
    from hinge.server.extensions import Extension as Extension
    from hinge.server.extensions import Method as Method
    from hinge.server.extensions import Topic as Topic
    from hinge.server.extensions import require_client_extension as require_client_extension
    from hinge.server.forms import Titled as Titled
    from hinge.server.media import Audio as Audio
    from hinge.server.media import File as File
    from hinge.server.media import Image as Image
    from hinge.server.middleware import CallNext as CallNext
    from hinge.server.middleware import Middleware as Middleware
    from hinge.server.rate_limit import RateLimit as RateLimit
    from hinge.server.resource import ResourceOptions as ResourceOptions
    from hinge.server.result_limit import ResultLimit as ResultLimit
    from hinge.server.router import Router as Router
    from hinge.server.server import Server as Server
    from hinge.server.tool_changes import ArgumentChange as ArgumentChange
    from hinge.server.tool_changes import ToolChange as ToolChange
    from hinge.server.tool_changes import ToolChanges as ToolChanges
    from hinge.server.uri_template import UriTemplate as UriTemplate
    from hinge.server.visibility import Caller as Caller
    from hinge.server.visibility import Item as Item

__version__ = "0.1.0"

_HOME = {
    "Annotations": "hinge.schema.base",
    "Apps": "hinge.server.apps",
    "ArgumentChange": "hinge.server.tool_changes",
    "Ask": "hinge.server.depends",
    "Audio": "hinge.server.media",
    "AudioContent": "hinge.schema.content",
    "CacheHint": "hinge.server.caching",
    "CallError": "hinge.errors",
    "CallLog": "hinge.server.call_log",
    "CallNext": "hinge.server.middleware",
    "CallTimeout": "hinge.errors",
    "CallToolResult": "hinge.schema.tools",
    "Caller": "hinge.server.visibility",
    "Changed": "hinge.protocol.changes",
    "ChannelClosed": "hinge.errors",
    "Client": "hinge.client.client",
    "ClientContext": "hinge.client.middleware",
    "ClientExtension": "hinge.client.extensions",
    "ClientMethod": "hinge.client.extensions",
    "Completion": "hinge.schema.completion",
    "ConnectFailed": "hinge.errors",
    "ConnectionLost": "hinge.errors",
    "ContentBlock": "hinge.schema.content",
    "Context": "hinge.server.context",
    "Contract": "hinge.lock.contract",
    "ContractDrift": "hinge.errors",
    "CreateMessageParams": "hinge.schema.sampling",
    "CreateMessageResult": "hinge.schema.sampling",
    "Csp": "hinge.server.apps",
    "Declined": "hinge.server.asking",
    "DefinitionError": "hinge.errors",
    "Depends": "hinge.server.depends",
    "Difference": "hinge.lock.comparing",
    "Discovery": "hinge.client.negotiate",
    "ElicitFormParams": "hinge.schema.elicitation",
    "ElicitResult": "hinge.schema.elicitation",
    "ElicitUrlParams": "hinge.schema.elicitation",
    "EmbeddedResource": "hinge.schema.content",
    "ErrorObject": "hinge.errors",
    "Extension": "hinge.server.extensions",
    "File": "hinge.server.media",
    "GetPromptResult": "hinge.schema.prompts",
    "HeaderMismatch": "hinge.errors",
    "HingeError": "hinge.errors",
    "Hosts": "hinge.client.hosts",
    "HttpStatus": "hinge.errors",
    "Icon": "hinge.schema.base",
    "Image": "hinge.server.media",
    "ImageContent": "hinge.schema.content",
    "Implementation": "hinge.schema.base",
    "InputRequiredResult": "hinge.schema.input_required",
    "InternalError": "hinge.errors",
    "InvalidArguments": "hinge.errors",
    "InvalidEnvelope": "hinge.errors",
    "InvalidParams": "hinge.errors",
    "InvalidRequest": "hinge.errors",
    "InvalidResponse": "hinge.errors",
    "Item": "hinge.server.visibility",
    "Limits": "hinge.protocol.limits",
    "Listening": "hinge.client.listening",
    "LogParams": "hinge.schema.notifications",
    "LogToClient": "hinge.server.client_log",
    "Lost": "hinge.protocol.changes",
    "Method": "hinge.server.extensions",
    "MethodNotFound": "hinge.errors",
    "Middleware": "hinge.server.middleware",
    "MissingClientCapability": "hinge.errors",
    "NotSent": "hinge.errors",
    "Outcome": "hinge.errors",
    "Overloaded": "hinge.errors",
    "ParseError": "hinge.errors",
    "PeerError": "hinge.errors",
    "Pool": "hinge.client.pool",
    "Principal": "hinge.protocol.http",
    "ProgressParams": "hinge.schema.notifications",
    "Prompt": "hinge.schema.prompts",
    "PromptMessage": "hinge.schema.prompts",
    "ProtocolError": "hinge.errors",
    "RateLimit": "hinge.server.rate_limit",
    "ReadResourceResult": "hinge.schema.resources",
    "Refusal": "hinge.protocol.http",
    "Refused": "hinge.client.answers",
    "Resource": "hinge.schema.resources",
    "ResourceContents": "hinge.schema.content",
    "ResourceLink": "hinge.schema.content",
    "ResourceNotFound": "hinge.errors",
    "ResourceOptions": "hinge.server.resource",
    "ResourceTemplate": "hinge.schema.resources",
    "ResultLimit": "hinge.server.result_limit",
    "Root": "hinge.schema.roots",
    "Router": "hinge.server.router",
    "SamplingMessage": "hinge.schema.sampling",
    "SentMethod": "hinge.client.extensions",
    "Server": "hinge.server.server",
    "SessionEnded": "hinge.errors",
    "StartError": "hinge.errors",
    "Terminal": "hinge.client.terminal",
    "TextContent": "hinge.schema.content",
    "Titled": "hinge.server.forms",
    "Tool": "hinge.schema.tools",
    "ToolAnnotations": "hinge.schema.tools",
    "ToolChange": "hinge.server.tool_changes",
    "ToolChanges": "hinge.server.tool_changes",
    "ToolError": "hinge.errors",
    "ToolFailed": "hinge.errors",
    "Topic": "hinge.server.extensions",
    "UnsupportedVersion": "hinge.errors",
    "UriTemplate": "hinge.server.uri_template",
    "UrlElicitationRequired": "hinge.client.required_pages",
    "contract_of": "hinge.client.contract",
    "current_context": "hinge.server.current",
    "in_words": "hinge.client.contents",
    "is_not_found": "hinge.client.features",
    "proxy": "hinge.bridge.proxy",
    "require_client_extension": "hinge.server.extensions",
    "save_content": "hinge.client.contents",
    "save_contents": "hinge.client.contents",
}

__all__ = tuple(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # the table is the list; the imports above say it to checkers

if not TYPE_CHECKING:  # a checker that saw __getattr__ would believe in every name

    def __getattr__(name):
        if name not in _HOME:
            raise AttributeError(f"module 'hinge' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOME})
