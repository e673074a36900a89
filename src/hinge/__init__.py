"""Hinge, the Model Context Protocol for Python: the public names, each loaded when it is first used.

Importing this module imports nothing else. A name stands in two places below: in the table that the interpreter reads,
and in the imports that type checkers read; a test holds them together.
"""

TYPE_CHECKING = False  # type checkers take it for True; importing `typing` for it would cost more than all the rest

if TYPE_CHECKING:
    from hinge.client.callbacks import SamplingRejected as SamplingRejected
    from hinge.client.client import Client as Client
    from hinge.client.content import content_to_text as content_to_text
    from hinge.client.content import save_content as save_content
    from hinge.client.content import save_contents as save_contents
    from hinge.client.extensions import ClientExtension as ClientExtension
    from hinge.client.extensions import ClientMethod as ClientMethod
    from hinge.client.extensions import SentMethod as SentMethod
    from hinge.client.group.group import ClientGroup as ClientGroup
    from hinge.client.methods import ClientContext as ClientContext
    from hinge.client.methods import is_not_found as is_not_found
    from hinge.client.negotiation import Discovery as Discovery
    from hinge.client.pool import ClientPool as ClientPool
    from hinge.client.subscriptions import Subscription as Subscription
    from hinge.client.tasks import TaskInfo as TaskInfo
    from hinge.client.tasks import ToolTask as ToolTask
    from hinge.client.terminal.terminal import Terminal as Terminal
    from hinge.client.url_elicitation import UrlElicitationRequired as UrlElicitationRequired
    from hinge.contracts.contract import Contract as Contract
    from hinge.contracts.fetch import fetch_contract as fetch_contract
    from hinge.errors import AuthorizationFailed as AuthorizationFailed
    from hinge.errors import BackendError as BackendError
    from hinge.errors import CallError as CallError
    from hinge.errors import CallTimeout as CallTimeout
    from hinge.errors import ChannelClosed as ChannelClosed
    from hinge.errors import ConnectFailed as ConnectFailed
    from hinge.errors import ConnectionLost as ConnectionLost
    from hinge.errors import ContractDrift as ContractDrift
    from hinge.errors import DefinitionError as DefinitionError
    from hinge.errors import Difference as Difference
    from hinge.errors import ErrorObject as ErrorObject
    from hinge.errors import HeaderMismatch as HeaderMismatch
    from hinge.errors import HingeError as HingeError
    from hinge.errors import HttpStatus as HttpStatus
    from hinge.errors import InsufficientScope as InsufficientScope
    from hinge.errors import InternalError as InternalError
    from hinge.errors import InvalidArguments as InvalidArguments
    from hinge.errors import InvalidEnvelope as InvalidEnvelope
    from hinge.errors import InvalidParams as InvalidParams
    from hinge.errors import InvalidRequest as InvalidRequest
    from hinge.errors import InvalidResponse as InvalidResponse
    from hinge.errors import LeaseLost as LeaseLost
    from hinge.errors import LogConflict as LogConflict
    from hinge.errors import MethodNotFound as MethodNotFound
    from hinge.errors import MissingClientCapability as MissingClientCapability
    from hinge.errors import NotFinished as NotFinished
    from hinge.errors import NotSent as NotSent
    from hinge.errors import Outcome as Outcome
    from hinge.errors import Overloaded as Overloaded
    from hinge.errors import ParseError as ParseError
    from hinge.errors import PeerError as PeerError
    from hinge.errors import ProtocolError as ProtocolError
    from hinge.errors import ResourceNotFound as ResourceNotFound
    from hinge.errors import SessionEnded as SessionEnded
    from hinge.errors import StartError as StartError
    from hinge.errors import ToolCallError as ToolCallError
    from hinge.errors import ToolError as ToolError
    from hinge.errors import UnsupportedVersion as UnsupportedVersion
    from hinge.extensions.apps import Apps as Apps
    from hinge.extensions.apps import Csp as Csp
    from hinge.extensions.apps import tools_for_model as tools_for_model
    from hinge.extensions.base import Extension as Extension
    from hinge.extensions.skills.client import LoadedSkill as LoadedSkill
    from hinge.extensions.skills.client import SkillRejected as SkillRejected
    from hinge.extensions.skills.client import SkillsClient as SkillsClient
    from hinge.extensions.tasks.client import TasksClient as TasksClient
    from hinge.extensions.tasks.tasks import Tasks as Tasks
    from hinge.protocol.changes import Changed as Changed
    from hinge.protocol.changes import ChangesLost as ChangesLost
    from hinge.protocol.http.request import Principal as Principal
    from hinge.protocol.http.request import Refusal as Refusal
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
    from hinge.schema.skills import Skill as Skill
    from hinge.schema.skills import SkillFile as SkillFile
    from hinge.schema.tools import CallToolResult as CallToolResult
    from hinge.schema.tools import Tool as Tool
    from hinge.schema.tools import ToolAnnotations as ToolAnnotations
    from hinge.server.composition.transform import ArgumentChange as ArgumentChange
    from hinge.server.composition.transform import ToolChange as ToolChange
    from hinge.server.composition.transform import ToolChanges as ToolChanges
    from hinge.server.context import Context as Context
    from hinge.server.context import current_context as current_context
    from hinge.server.dependencies import Ask as Ask
    from hinge.server.dependencies import Depends as Depends
    from hinge.server.elicitation.elicit import Declined as Declined
    from hinge.server.elicitation.forms import Titled as Titled
    from hinge.server.elicitation.roots import path_in_roots as path_in_roots
    from hinge.server.extensions import Method as Method
    from hinge.server.extensions import Topic as Topic
    from hinge.server.extensions import require_client_extension as require_client_extension
    from hinge.server.features.caching import CacheHint as CacheHint
    from hinge.server.features.content import Audio as Audio
    from hinge.server.features.content import File as File
    from hinge.server.features.content import Image as Image
    from hinge.server.features.options import ResourceOptions as ResourceOptions
    from hinge.server.features.prompts import Message as Message
    from hinge.server.features.uri_templates import UriTemplate as UriTemplate
    from hinge.server.features.visibility import Caller as Caller
    from hinge.server.features.visibility import Item as Item
    from hinge.server.log_to_client import LogToClient as LogToClient
    from hinge.server.metrics import metrics_app as metrics_app
    from hinge.server.middleware.access_log import AccessLog as AccessLog
    from hinge.server.middleware.chain import CallNext as CallNext
    from hinge.server.middleware.chain import Middleware as Middleware
    from hinge.server.middleware.rate_limit import RateLimit as RateLimit
    from hinge.server.middleware.result_limit import ResultLimit as ResultLimit
    from hinge.server.middleware.result_pages import Spill as Spill
    from hinge.server.router import Router as Router
    from hinge.server.server import Server as Server

__version__: str  # in hinge/version.py

_HOME = {
    "AccessLog": "hinge.server.middleware.access_log",
    "Annotations": "hinge.schema.base",
    "Apps": "hinge.extensions.apps",
    "ArgumentChange": "hinge.server.composition.transform",
    "Ask": "hinge.server.dependencies",
    "Audio": "hinge.server.features.content",
    "AudioContent": "hinge.schema.content",
    "AuthorizationFailed": "hinge.errors",
    "BackendError": "hinge.errors",
    "CacheHint": "hinge.server.features.caching",
    "CallError": "hinge.errors",
    "CallNext": "hinge.server.middleware.chain",
    "CallTimeout": "hinge.errors",
    "CallToolResult": "hinge.schema.tools",
    "Caller": "hinge.server.features.visibility",
    "Changed": "hinge.protocol.changes",
    "ChangesLost": "hinge.protocol.changes",
    "ChannelClosed": "hinge.errors",
    "Client": "hinge.client.client",
    "ClientContext": "hinge.client.methods",
    "ClientExtension": "hinge.client.extensions",
    "ClientGroup": "hinge.client.group.group",
    "ClientMethod": "hinge.client.extensions",
    "ClientPool": "hinge.client.pool",
    "Completion": "hinge.schema.completion",
    "ConnectFailed": "hinge.errors",
    "ConnectionLost": "hinge.errors",
    "ContentBlock": "hinge.schema.content",
    "Context": "hinge.server.context",
    "Contract": "hinge.contracts.contract",
    "ContractDrift": "hinge.errors",
    "CreateMessageParams": "hinge.schema.sampling",
    "CreateMessageResult": "hinge.schema.sampling",
    "Csp": "hinge.extensions.apps",
    "Declined": "hinge.server.elicitation.elicit",
    "DefinitionError": "hinge.errors",
    "Depends": "hinge.server.dependencies",
    "Difference": "hinge.errors",
    "Discovery": "hinge.client.negotiation",
    "ElicitFormParams": "hinge.schema.elicitation",
    "ElicitResult": "hinge.schema.elicitation",
    "ElicitUrlParams": "hinge.schema.elicitation",
    "EmbeddedResource": "hinge.schema.content",
    "ErrorObject": "hinge.errors",
    "Extension": "hinge.extensions.base",
    "File": "hinge.server.features.content",
    "GetPromptResult": "hinge.schema.prompts",
    "HeaderMismatch": "hinge.errors",
    "HingeError": "hinge.errors",
    "HttpStatus": "hinge.errors",
    "Icon": "hinge.schema.base",
    "Image": "hinge.server.features.content",
    "ImageContent": "hinge.schema.content",
    "Implementation": "hinge.schema.base",
    "InputRequiredResult": "hinge.schema.input_required",
    "InsufficientScope": "hinge.errors",
    "InternalError": "hinge.errors",
    "InvalidArguments": "hinge.errors",
    "InvalidEnvelope": "hinge.errors",
    "InvalidParams": "hinge.errors",
    "InvalidRequest": "hinge.errors",
    "InvalidResponse": "hinge.errors",
    "Item": "hinge.server.features.visibility",
    "LeaseLost": "hinge.errors",
    "Limits": "hinge.protocol.limits",
    "LoadedSkill": "hinge.extensions.skills.client",
    "LogConflict": "hinge.errors",
    "LogParams": "hinge.schema.notifications",
    "LogToClient": "hinge.server.log_to_client",
    "Message": "hinge.server.features.prompts",
    "Method": "hinge.server.extensions",
    "MethodNotFound": "hinge.errors",
    "Middleware": "hinge.server.middleware.chain",
    "MissingClientCapability": "hinge.errors",
    "NotFinished": "hinge.errors",
    "NotSent": "hinge.errors",
    "Outcome": "hinge.errors",
    "Overloaded": "hinge.errors",
    "ParseError": "hinge.errors",
    "PeerError": "hinge.errors",
    "Principal": "hinge.protocol.http.request",
    "ProgressParams": "hinge.schema.notifications",
    "Prompt": "hinge.schema.prompts",
    "PromptMessage": "hinge.schema.prompts",
    "ProtocolError": "hinge.errors",
    "RateLimit": "hinge.server.middleware.rate_limit",
    "ReadResourceResult": "hinge.schema.resources",
    "Refusal": "hinge.protocol.http.request",
    "Resource": "hinge.schema.resources",
    "ResourceContents": "hinge.schema.content",
    "ResourceLink": "hinge.schema.content",
    "ResourceNotFound": "hinge.errors",
    "ResourceOptions": "hinge.server.features.options",
    "ResourceTemplate": "hinge.schema.resources",
    "ResultLimit": "hinge.server.middleware.result_limit",
    "Root": "hinge.schema.roots",
    "Router": "hinge.server.router",
    "SamplingMessage": "hinge.schema.sampling",
    "SamplingRejected": "hinge.client.callbacks",
    "SentMethod": "hinge.client.extensions",
    "Server": "hinge.server.server",
    "SessionEnded": "hinge.errors",
    "Skill": "hinge.schema.skills",
    "SkillFile": "hinge.schema.skills",
    "SkillRejected": "hinge.extensions.skills.client",
    "SkillsClient": "hinge.extensions.skills.client",
    "Spill": "hinge.server.middleware.result_pages",
    "StartError": "hinge.errors",
    "Subscription": "hinge.client.subscriptions",
    "TaskInfo": "hinge.client.tasks",
    "Tasks": "hinge.extensions.tasks.tasks",
    "TasksClient": "hinge.extensions.tasks.client",
    "Terminal": "hinge.client.terminal.terminal",
    "TextContent": "hinge.schema.content",
    "Titled": "hinge.server.elicitation.forms",
    "Tool": "hinge.schema.tools",
    "ToolAnnotations": "hinge.schema.tools",
    "ToolCallError": "hinge.errors",
    "ToolChange": "hinge.server.composition.transform",
    "ToolChanges": "hinge.server.composition.transform",
    "ToolError": "hinge.errors",
    "ToolTask": "hinge.client.tasks",
    "Topic": "hinge.server.extensions",
    "UnsupportedVersion": "hinge.errors",
    "UriTemplate": "hinge.server.features.uri_templates",
    "UrlElicitationRequired": "hinge.client.url_elicitation",
    "content_to_text": "hinge.client.content",
    "current_context": "hinge.server.context",
    "fetch_contract": "hinge.contracts.fetch",
    "is_not_found": "hinge.client.methods",
    "metrics_app": "hinge.server.metrics",
    "path_in_roots": "hinge.server.elicitation.roots",
    "require_client_extension": "hinge.server.extensions",
    "save_content": "hinge.client.content",
    "save_contents": "hinge.client.content",
    "tools_for_model": "hinge.extensions.apps",
}

__all__ = tuple(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # the table is the list; the imports above say it to checkers

if not TYPE_CHECKING:  # a checker that saw __getattr__ would believe in every name

    def __getattr__(name):
        home = "hinge.version" if name == "__version__" else _HOME.get(name)
        if home is None:
            raise AttributeError(f"module 'hinge' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module(home), name)
        globals()[name] = value
        return value

    def __dir__():
        return sorted({*globals(), *_HOME})
