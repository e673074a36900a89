"""Gemel, the Model Context Protocol for Python: the public names, each loaded when it is first used.

Importing this module imports nothing else. A name stands in two places below: in the table that the interpreter reads,
and in the imports that type checkers read; a test holds them together.
"""

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` for it would cost more than all the rest

if TYPE_CHECKING:
    from gemel.client.callbacks import SamplingRejected as SamplingRejected
    from gemel.client.client import Client as Client
    from gemel.client.content import content_to_text as content_to_text
    from gemel.client.content import save_content as save_content
    from gemel.client.content import save_contents as save_contents
    from gemel.client.extensions import ClientExtension as ClientExtension
    from gemel.client.extensions import ClientMethod as ClientMethod
    from gemel.client.extensions import SentMethod as SentMethod
    from gemel.client.extensions import declared_extension as declared_extension
    from gemel.client.group.group import ClientGroup as ClientGroup
    from gemel.client.methods import ClientContext as ClientContext
    from gemel.client.methods import is_not_found as is_not_found
    from gemel.client.negotiation import Discovery as Discovery
    from gemel.client.pool import ClientPool as ClientPool
    from gemel.client.subscriptions import Subscription as Subscription
    from gemel.client.tasks import TaskInfo as TaskInfo
    from gemel.client.tasks import ToolTask as ToolTask
    from gemel.client.terminal.terminal import Terminal as Terminal
    from gemel.client.url_elicitation import UrlElicitationRequired as UrlElicitationRequired
    from gemel.contracts.contract import Contract as Contract
    from gemel.contracts.fetch import fetch_contract as fetch_contract
    from gemel.errors import AuthorizationFailed as AuthorizationFailed
    from gemel.errors import BackendError as BackendError
    from gemel.errors import CallError as CallError
    from gemel.errors import CallTimeout as CallTimeout
    from gemel.errors import ChannelClosed as ChannelClosed
    from gemel.errors import ConnectFailed as ConnectFailed
    from gemel.errors import ConnectionLost as ConnectionLost
    from gemel.errors import ContractDrift as ContractDrift
    from gemel.errors import DefinitionError as DefinitionError
    from gemel.errors import Difference as Difference
    from gemel.errors import ErrorObject as ErrorObject
    from gemel.errors import GemelError as GemelError
    from gemel.errors import HeaderMismatch as HeaderMismatch
    from gemel.errors import HttpStatus as HttpStatus
    from gemel.errors import InsufficientScope as InsufficientScope
    from gemel.errors import InternalError as InternalError
    from gemel.errors import InvalidArguments as InvalidArguments
    from gemel.errors import InvalidEnvelope as InvalidEnvelope
    from gemel.errors import InvalidParams as InvalidParams
    from gemel.errors import InvalidRequest as InvalidRequest
    from gemel.errors import InvalidResponse as InvalidResponse
    from gemel.errors import LeaseLost as LeaseLost
    from gemel.errors import LogConflict as LogConflict
    from gemel.errors import MethodNotFound as MethodNotFound
    from gemel.errors import MissingClientCapability as MissingClientCapability
    from gemel.errors import NoSession as NoSession
    from gemel.errors import NotFinished as NotFinished
    from gemel.errors import NotSent as NotSent
    from gemel.errors import Outcome as Outcome
    from gemel.errors import Overloaded as Overloaded
    from gemel.errors import ParseError as ParseError
    from gemel.errors import PeerError as PeerError
    from gemel.errors import ProtocolError as ProtocolError
    from gemel.errors import ResourceNotFound as ResourceNotFound
    from gemel.errors import SessionEnded as SessionEnded
    from gemel.errors import StartError as StartError
    from gemel.errors import ToolCallError as ToolCallError
    from gemel.errors import ToolError as ToolError
    from gemel.errors import UnsupportedVersion as UnsupportedVersion
    from gemel.errors import WrongUrl as WrongUrl
    from gemel.extensions.apps import Apps as Apps
    from gemel.extensions.apps import Csp as Csp
    from gemel.extensions.apps import tools_for_model as tools_for_model
    from gemel.extensions.base import Extension as Extension
    from gemel.extensions.skills.client import LoadedSkill as LoadedSkill
    from gemel.extensions.skills.client import SkillRejected as SkillRejected
    from gemel.extensions.skills.client import SkillsClient as SkillsClient
    from gemel.extensions.tasks.client import TasksClient as TasksClient
    from gemel.extensions.tasks.limits import TaskLimits as TaskLimits
    from gemel.extensions.tasks.tasks import Tasks as Tasks
    from gemel.item_tools import prompt_tools as prompt_tools
    from gemel.item_tools import resource_tools as resource_tools
    from gemel.protocol.changes import Changed as Changed
    from gemel.protocol.changes import ChangesLost as ChangesLost
    from gemel.protocol.deviations import Deviation as Deviation
    from gemel.protocol.http.request import Principal as Principal
    from gemel.protocol.http.request import Refusal as Refusal
    from gemel.protocol.limits import Limits as Limits
    from gemel.protocol.records import RefusedMessage as RefusedMessage
    from gemel.schema.base import Annotations as Annotations
    from gemel.schema.base import Icon as Icon
    from gemel.schema.base import Implementation as Implementation
    from gemel.schema.completion import Completion as Completion
    from gemel.schema.content import AudioContent as AudioContent
    from gemel.schema.content import ContentBlock as ContentBlock
    from gemel.schema.content import EmbeddedResource as EmbeddedResource
    from gemel.schema.content import ImageContent as ImageContent
    from gemel.schema.content import ResourceContents as ResourceContents
    from gemel.schema.content import ResourceLink as ResourceLink
    from gemel.schema.content import TextContent as TextContent
    from gemel.schema.elicitation import ElicitFormParams as ElicitFormParams
    from gemel.schema.elicitation import ElicitResult as ElicitResult
    from gemel.schema.elicitation import ElicitUrlParams as ElicitUrlParams
    from gemel.schema.input_required import InputRequiredResult as InputRequiredResult
    from gemel.schema.notifications import LogParams as LogParams
    from gemel.schema.notifications import ProgressParams as ProgressParams
    from gemel.schema.prompts import GetPromptResult as GetPromptResult
    from gemel.schema.prompts import Prompt as Prompt
    from gemel.schema.prompts import PromptMessage as PromptMessage
    from gemel.schema.resources import ReadResourceResult as ReadResourceResult
    from gemel.schema.resources import Resource as Resource
    from gemel.schema.resources import ResourceTemplate as ResourceTemplate
    from gemel.schema.roots import Root as Root
    from gemel.schema.sampling import CreateMessageParams as CreateMessageParams
    from gemel.schema.sampling import CreateMessageResult as CreateMessageResult
    from gemel.schema.sampling import SamplingMessage as SamplingMessage
    from gemel.schema.sampling import ToolChoice as ToolChoice
    from gemel.schema.sampling import ToolResultContent as ToolResultContent
    from gemel.schema.sampling import ToolUseContent as ToolUseContent
    from gemel.schema.skills import Skill as Skill
    from gemel.schema.skills import SkillFile as SkillFile
    from gemel.schema.tools import CallToolResult as CallToolResult
    from gemel.schema.tools import Tool as Tool
    from gemel.schema.tools import ToolAnnotations as ToolAnnotations
    from gemel.server.composition.transform import ArgumentChange as ArgumentChange
    from gemel.server.composition.transform import ToolChange as ToolChange
    from gemel.server.composition.transform import ToolChanges as ToolChanges
    from gemel.server.context import Context as Context
    from gemel.server.context import current_context as current_context
    from gemel.server.dispatch import CallNext as CallNext
    from gemel.server.elicitation.elicit import Declined as Declined
    from gemel.server.elicitation.forms import Titled as Titled
    from gemel.server.elicitation.roots import path_in_roots as path_in_roots
    from gemel.server.extensions import Method as Method
    from gemel.server.extensions import Topic as Topic
    from gemel.server.extensions import require_client_extension as require_client_extension
    from gemel.server.features.caching import CacheHint as CacheHint
    from gemel.server.features.content import Audio as Audio
    from gemel.server.features.content import File as File
    from gemel.server.features.content import Image as Image
    from gemel.server.features.options import ResourceOptions as ResourceOptions
    from gemel.server.features.prompts import Message as Message
    from gemel.server.features.uri_templates import UriTemplate as UriTemplate
    from gemel.server.features.visibility import Caller as Caller
    from gemel.server.features.visibility import Item as Item
    from gemel.server.injection import Ask as Ask
    from gemel.server.injection import Depends as Depends
    from gemel.server.log_to_client import LogToClient as LogToClient
    from gemel.server.metrics import metrics_app as metrics_app
    from gemel.server.middleware.access_log import AccessLog as AccessLog
    from gemel.server.middleware.chain import Middleware as Middleware
    from gemel.server.middleware.rate_limit import RateLimit as RateLimit
    from gemel.server.middleware.result_limit import ResultLimit as ResultLimit
    from gemel.server.middleware.result_pages import Spill as Spill
    from gemel.server.router import Router as Router
    from gemel.server.server import Server as Server
    from gemel.server.session_state import SessionState as SessionState

__version__: str  # in gemel/version.py

_HOME = {
    "AccessLog": "gemel.server.middleware.access_log",
    "Annotations": "gemel.schema.base",
    "Apps": "gemel.extensions.apps",
    "ArgumentChange": "gemel.server.composition.transform",
    "Ask": "gemel.server.injection",
    "Audio": "gemel.server.features.content",
    "AudioContent": "gemel.schema.content",
    "AuthorizationFailed": "gemel.errors",
    "BackendError": "gemel.errors",
    "CacheHint": "gemel.server.features.caching",
    "CallError": "gemel.errors",
    "CallNext": "gemel.server.dispatch",
    "CallTimeout": "gemel.errors",
    "CallToolResult": "gemel.schema.tools",
    "Caller": "gemel.server.features.visibility",
    "Changed": "gemel.protocol.changes",
    "ChangesLost": "gemel.protocol.changes",
    "ChannelClosed": "gemel.errors",
    "Client": "gemel.client.client",
    "ClientContext": "gemel.client.methods",
    "ClientExtension": "gemel.client.extensions",
    "ClientGroup": "gemel.client.group.group",
    "ClientMethod": "gemel.client.extensions",
    "ClientPool": "gemel.client.pool",
    "Completion": "gemel.schema.completion",
    "ConnectFailed": "gemel.errors",
    "ConnectionLost": "gemel.errors",
    "ContentBlock": "gemel.schema.content",
    "Context": "gemel.server.context",
    "Contract": "gemel.contracts.contract",
    "ContractDrift": "gemel.errors",
    "CreateMessageParams": "gemel.schema.sampling",
    "CreateMessageResult": "gemel.schema.sampling",
    "Csp": "gemel.extensions.apps",
    "Declined": "gemel.server.elicitation.elicit",
    "DefinitionError": "gemel.errors",
    "Depends": "gemel.server.injection",
    "Deviation": "gemel.protocol.deviations",
    "Difference": "gemel.errors",
    "Discovery": "gemel.client.negotiation",
    "ElicitFormParams": "gemel.schema.elicitation",
    "ElicitResult": "gemel.schema.elicitation",
    "ElicitUrlParams": "gemel.schema.elicitation",
    "EmbeddedResource": "gemel.schema.content",
    "ErrorObject": "gemel.errors",
    "Extension": "gemel.extensions.base",
    "File": "gemel.server.features.content",
    "GemelError": "gemel.errors",
    "GetPromptResult": "gemel.schema.prompts",
    "HeaderMismatch": "gemel.errors",
    "HttpStatus": "gemel.errors",
    "Icon": "gemel.schema.base",
    "Image": "gemel.server.features.content",
    "ImageContent": "gemel.schema.content",
    "Implementation": "gemel.schema.base",
    "InputRequiredResult": "gemel.schema.input_required",
    "InsufficientScope": "gemel.errors",
    "InternalError": "gemel.errors",
    "InvalidArguments": "gemel.errors",
    "InvalidEnvelope": "gemel.errors",
    "InvalidParams": "gemel.errors",
    "InvalidRequest": "gemel.errors",
    "InvalidResponse": "gemel.errors",
    "Item": "gemel.server.features.visibility",
    "LeaseLost": "gemel.errors",
    "Limits": "gemel.protocol.limits",
    "LoadedSkill": "gemel.extensions.skills.client",
    "LogConflict": "gemel.errors",
    "LogParams": "gemel.schema.notifications",
    "LogToClient": "gemel.server.log_to_client",
    "Message": "gemel.server.features.prompts",
    "Method": "gemel.server.extensions",
    "MethodNotFound": "gemel.errors",
    "Middleware": "gemel.server.middleware.chain",
    "MissingClientCapability": "gemel.errors",
    "NoSession": "gemel.errors",
    "NotFinished": "gemel.errors",
    "NotSent": "gemel.errors",
    "Outcome": "gemel.errors",
    "Overloaded": "gemel.errors",
    "ParseError": "gemel.errors",
    "PeerError": "gemel.errors",
    "Principal": "gemel.protocol.http.request",
    "ProgressParams": "gemel.schema.notifications",
    "Prompt": "gemel.schema.prompts",
    "PromptMessage": "gemel.schema.prompts",
    "ProtocolError": "gemel.errors",
    "RateLimit": "gemel.server.middleware.rate_limit",
    "ReadResourceResult": "gemel.schema.resources",
    "Refusal": "gemel.protocol.http.request",
    "RefusedMessage": "gemel.protocol.records",
    "Resource": "gemel.schema.resources",
    "ResourceContents": "gemel.schema.content",
    "ResourceLink": "gemel.schema.content",
    "ResourceNotFound": "gemel.errors",
    "ResourceOptions": "gemel.server.features.options",
    "ResourceTemplate": "gemel.schema.resources",
    "ResultLimit": "gemel.server.middleware.result_limit",
    "Root": "gemel.schema.roots",
    "Router": "gemel.server.router",
    "SamplingMessage": "gemel.schema.sampling",
    "SamplingRejected": "gemel.client.callbacks",
    "SentMethod": "gemel.client.extensions",
    "Server": "gemel.server.server",
    "SessionEnded": "gemel.errors",
    "SessionState": "gemel.server.session_state",
    "Skill": "gemel.schema.skills",
    "SkillFile": "gemel.schema.skills",
    "SkillRejected": "gemel.extensions.skills.client",
    "SkillsClient": "gemel.extensions.skills.client",
    "Spill": "gemel.server.middleware.result_pages",
    "StartError": "gemel.errors",
    "Subscription": "gemel.client.subscriptions",
    "TaskInfo": "gemel.client.tasks",
    "TaskLimits": "gemel.extensions.tasks.limits",
    "Tasks": "gemel.extensions.tasks.tasks",
    "TasksClient": "gemel.extensions.tasks.client",
    "Terminal": "gemel.client.terminal.terminal",
    "TextContent": "gemel.schema.content",
    "Titled": "gemel.server.elicitation.forms",
    "Tool": "gemel.schema.tools",
    "ToolAnnotations": "gemel.schema.tools",
    "ToolCallError": "gemel.errors",
    "ToolChange": "gemel.server.composition.transform",
    "ToolChanges": "gemel.server.composition.transform",
    "ToolChoice": "gemel.schema.sampling",
    "ToolError": "gemel.errors",
    "ToolResultContent": "gemel.schema.sampling",
    "ToolTask": "gemel.client.tasks",
    "ToolUseContent": "gemel.schema.sampling",
    "Topic": "gemel.server.extensions",
    "UnsupportedVersion": "gemel.errors",
    "UriTemplate": "gemel.server.features.uri_templates",
    "UrlElicitationRequired": "gemel.client.url_elicitation",
    "WrongUrl": "gemel.errors",
    "content_to_text": "gemel.client.content",
    "current_context": "gemel.server.context",
    "declared_extension": "gemel.client.extensions",
    "fetch_contract": "gemel.contracts.fetch",
    "is_not_found": "gemel.client.methods",
    "metrics_app": "gemel.server.metrics",
    "path_in_roots": "gemel.server.elicitation.roots",
    "prompt_tools": "gemel.item_tools",
    "require_client_extension": "gemel.server.extensions",
    "resource_tools": "gemel.item_tools",
    "save_content": "gemel.client.content",
    "save_contents": "gemel.client.content",
    "tools_for_model": "gemel.extensions.apps",
}

__all__ = tuple(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # the table is the list; the imports above say it to checkers

if not TYPE_CHECKING:  # a checker that saw __getattr__ would believe in every name

    def __getattr__(name):
        home = "gemel.version" if name == "__version__" else _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'gemel' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOME})
