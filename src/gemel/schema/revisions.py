"""The published revisions in order, and what each added or removed: behaviours, types, members. Data only.

Revision names compare like dates. What is not listed exists in all revisions. Structs are named, not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

FIRST = "2024-11-05"
V2025_03 = "2025-03-26"
V2025_06 = "2025-06-18"
V2025_11 = "2025-11-25"
V2026_07 = "2026-07-28"

#: The handshake revisions, oldest first. No more will be published.
HANDSHAKE_REVISIONS = (FIRST, V2025_03, V2025_06, V2025_11)
#: The stateless revisions, oldest first.
STATELESS_REVISIONS = (V2026_07,)
REVISIONS = HANDSHAKE_REVISIONS + STATELESS_REVISIONS
LATEST = REVISIONS[-1]

#: The first and the last revision that have something.
Window: TypeAlias = tuple[str, str]

ALWAYS: Window = (FIRST, LATEST)
NEVER: Window = ("", "")
SINCE_03: Window = (V2025_03, LATEST)
SINCE_06: Window = (V2025_06, LATEST)
SINCE_11: Window = (V2025_11, LATEST)
SINCE_26: Window = (V2026_07, LATEST)
UNTIL_11: Window = (FIRST, V2025_11)
ONLY_11: Window = (V2025_11, V2025_11)

Behaviour = Literal[
    "batches",
    "argument results",
    "version header",
    "priming event",
    "any structured content",
    "several blocks",
    "rich forms",
]

_BEHAVIOURS: Mapping[str, Window] = {
    # a JSON array of messages
    "batches": (V2025_03, V2025_03),
    # invalid arguments are a result that the model reads, not a protocol error
    "argument results": SINCE_11,
    # requests over HTTP carry MCP-Protocol-Version
    "version header": SINCE_06,
    # a stream opens with an id and empty data
    "priming event": ONLY_11,
    # structured content of any JSON type, output schemas with any root; before, objects only
    "any structured content": SINCE_26,
    # a sampling message may hold a list of blocks
    "several blocks": SINCE_11,
    # titled choices as `oneOf`, choices of several, defaults of all kinds
    "rich forms": SINCE_11,
}
assert set(_BEHAVIOURS) == set(get_args(Behaviour))

#: Types by the names of their structs.
TYPES: Mapping[str, Window] = {
    "AudioContent": SINCE_03,
    "ToolAnnotations": SINCE_03,
    "CompletionContext": SINCE_06,
    "ElicitFormParams": SINCE_06,
    "ElicitResult": SINCE_06,
    "Elicitation": SINCE_06,
    "ResourceLink": SINCE_06,
    "ElicitUrlParams": SINCE_11,
    "Icon": SINCE_11,
    "ToolChoice": SINCE_11,
    "ToolResultContent": SINCE_11,
    "ToolUseContent": SINCE_11,
    "AcknowledgedParams": SINCE_26,
    "DiscoverResult": SINCE_26,
    "InputRequest": SINCE_26,
    "InputRequiredResult": SINCE_26,
    "ListenParams": SINCE_26,
    "ListenResult": SINCE_26,
    "SubscriptionFilter": SINCE_26,
    "InitializeParams": UNTIL_11,
    "InitializeResult": UNTIL_11,
    "InitializedParams": UNTIL_11,
    "SetLevelParams": UNTIL_11,
    "SubscribeParams": UNTIL_11,
    "ElicitationCompleteParams": ONLY_11,
}

_TITLE_META_ICONS: Mapping[str, Window] = {"title": SINCE_06, "meta": SINCE_06, "icons": SINCE_11}
_RETRY: Mapping[str, Window] = {"input_responses": SINCE_26, "request_state": SINCE_26}
#: A response to an input request has no result type and no `_meta` in the stateless era.
_BARE: Mapping[str, Window] = {"result_type": NEVER, "meta": UNTIL_11}

#: Members, by the names of their structs and their Python names. A struct inherits the rows of its bases.
MEMBERS: Mapping[str, Mapping[str, Window]] = {
    # what all features share
    "Implementation": {"title": SINCE_06, "description": SINCE_11, "website_url": SINCE_11, "icons": SINCE_11},
    "Annotations": {"last_modified": SINCE_06},
    "RequestMeta": {
        "protocol_version": SINCE_26,
        "client_capabilities": SINCE_26,
        "client_info": SINCE_26,
        "log_level": SINCE_26,
        "subscription_id": SINCE_26,
    },
    "Result": {"result_type": SINCE_26},
    "CacheableResult": {"ttl_ms": SINCE_26, "cache_scope": SINCE_26},
    # content
    "_Block": {"meta": SINCE_06},
    "ResourceLink": {"icons": SINCE_11},
    "ResourceContents": {"meta": SINCE_06},
    # lifecycle
    "ServerCapabilities": {"completions": SINCE_03, "tasks": ONLY_11},
    "ClientCapabilities": {"elicitation": SINCE_06, "tasks": ONLY_11},
    "RootsCapability": {"list_changed": UNTIL_11},
    "Elicitation": {"form": SINCE_11, "url": SINCE_11},
    "Sampling": {"tools": SINCE_11, "context": SINCE_11},
    # tools, resources, prompts, completion, progress
    "Tool": {**_TITLE_META_ICONS, "annotations": SINCE_03, "output_schema": SINCE_06, "execution": ONLY_11},
    "CallToolParams": _RETRY,
    "CallToolResult": {"structured_content": SINCE_06},
    "Resource": _TITLE_META_ICONS,
    "ResourceTemplate": _TITLE_META_ICONS,
    "ReadResourceParams": _RETRY,
    "Prompt": _TITLE_META_ICONS,
    "PromptArgument": {"title": SINCE_06},
    "GetPromptParams": _RETRY,
    "PromptReference": {"title": SINCE_06},
    "CompleteParams": {"context": SINCE_06},
    "ProgressParams": {"message": SINCE_03},
    # requests of the server
    "SamplingMessage": {"meta": SINCE_11},
    "CreateMessageParams": {"tools": SINCE_11, "tool_choice": SINCE_11},
    "CreateMessageResult": {"result_type": NEVER},
    "ElicitFormParams": {"mode": SINCE_11},
    "ElicitUrlParams": {"elicitation_id": ONLY_11},
    "ElicitResult": _BARE,
    "Root": {"meta": SINCE_06},
    "ListRootsResult": _BARE,
}

#: Reserved `_meta` keys that not every revision has.
META_KEYS: Mapping[str, Window] = {
    "io.modelcontextprotocol/serverInfo": SINCE_26,
    "io.modelcontextprotocol/subscriptionId": SINCE_26,
}

_TEXTS: Mapping[str, Window] = {"type": SINCE_06, "title": SINCE_06, "description": SINCE_06}
_LIMITS: Mapping[str, Window] = {"minimum": SINCE_06, "maximum": SINCE_06, "default": SINCE_11}
#: The keywords of a form's fields, by JSON type.
FORM_WORDS: Mapping[str, Mapping[str, Window]] = {
    "string": {
        **_TEXTS,
        **dict.fromkeys(("minLength", "maxLength", "format", "enum", "enumNames"), SINCE_06),
        **dict.fromkeys(("oneOf", "default"), SINCE_11),
    },
    "number": {**_TEXTS, **_LIMITS},
    "integer": {**_TEXTS, **_LIMITS},
    "boolean": {**_TEXTS, "default": SINCE_06},
    "array": {
        **dict.fromkeys(_TEXTS, SINCE_11),
        **dict.fromkeys(("items", "minItems", "maxItems", "default"), SINCE_11),
    },
}
#: Keywords at the root of a tool's schema or a form that not every revision has.
SCHEMA_WORDS: Mapping[str, Window] = {"$schema": SINCE_11}


def within(revision: str, window: Window) -> bool:
    """Whether the revision is within the window."""
    return window[0] <= revision <= window[1]


def knows(revision: str, behaviour: Behaviour) -> bool:
    """Whether the revision has this behaviour."""
    return within(revision, _BEHAVIOURS[behaviour])
