"""What the names of FastMCP and of the official SDK are called in Gemel; data only."""

from __future__ import annotations

from typing import NamedTuple


class Name(NamedTuple):
    """A name of Gemel and the module that it is imported from."""

    name: str
    module: str = "gemel"


#: The packages whose names are looked up.
PACKAGES = ("fastmcp", "fastmcp_tasks", "mcp", "mcp_types")

#: Where both packages export the same things. The last part of a name tells which; `_plain` removes the rest.
_TYPE_MODULES = ("mcp", "mcp.types", "mcp_types", "mcp.server.fastmcp", "mcp.server.mcpserver")

#: Wire types with the same name in `gemel`, and what their fields are called there.
WIRE_TYPES = {
    "Annotations": "gemel",
    "AudioContent": "gemel",
    "CallToolResult": "gemel",
    "ClientCapabilities": "gemel.schema.lifecycle",
    "CompleteResult": "gemel.schema.completion",
    "Completion": "gemel",
    "CompletionArgument": "gemel.schema.completion",
    "CompletionContext": "gemel.schema.completion",
    "ContentBlock": "gemel",
    "CreateMessageResult": "gemel",
    "ElicitResult": "gemel",
    "EmbeddedResource": "gemel",
    "EmptyResult": "gemel.schema.base",
    "GetPromptResult": "gemel",
    "Icon": "gemel",
    "ImageContent": "gemel",
    "Implementation": "gemel",
    "InputRequest": "gemel.schema.input_required",
    "InputRequiredResult": "gemel",
    "ListPromptsResult": "gemel.schema.prompts",
    "ListResourceTemplatesResult": "gemel.schema.resources",
    "ListResourcesResult": "gemel.schema.resources",
    "ListRootsResult": "gemel.schema.roots",
    "ListToolsResult": "gemel.schema.tools",
    "ModelHint": "gemel.schema.sampling",
    "ModelPreferences": "gemel.schema.sampling",
    "Prompt": "gemel",
    "PromptArgument": "gemel.schema.prompts",
    "PromptMessage": "gemel",
    "ReadResourceResult": "gemel",
    "Resource": "gemel",
    "ResourceLink": "gemel",
    "Result": "gemel.schema.base",
    "ResourceTemplate": "gemel",
    "Root": "gemel",
    "SamplingMessage": "gemel",
    "ServerCapabilities": "gemel.schema.lifecycle",
    "TextContent": "gemel",
    "Tool": "gemel",
    "ToolAnnotations": "gemel",
    "ToolChoice": "gemel.schema.sampling",
    "ToolResultContent": "gemel.schema.sampling",
    "ToolUseContent": "gemel.schema.sampling",
}
#: Wire types with another name.
_RENAMED_TYPES = {
    "CompleteRequestParams": Name("CompleteParams", "gemel.schema.completion"),
    "GetPromptRequestParams": Name("GetPromptParams", "gemel.schema.prompts"),
    "PaginatedRequestParams": Name("PageParams", "gemel.schema.base"),
    "PromptReference": Name("PromptReference", "gemel.schema.completion"),
    "ReadResourceRequestParams": Name("ReadResourceParams", "gemel.schema.resources"),
    "RequestParams": Name("BaseModel", "pydantic"),
    "RootsCapability": Name("RootsCapability", "gemel.schema.lifecycle"),
    "SamplingCapability": Name("Sampling", "gemel.schema.lifecycle"),
    "ResourceTemplateReference": Name("ResourceReference", "gemel.schema.completion"),
    "SetLevelRequestParams": Name("SetLevelParams", "gemel.schema.notifications"),
    "SubscriptionsListenRequestParams": Name("ListenParams", "gemel.schema.subscriptions"),
    "SubscribeRequestParams": Name("SubscribeParams", "gemel.schema.resources"),
    "UnsubscribeRequestParams": Name("SubscribeParams", "gemel.schema.resources"),
    "BlobResourceContents": Name("ResourceContents"),
    "CallToolRequestParams": Name("CallToolParams", "gemel.schema.tools"),
    "CreateMessageRequestParams": Name("CreateMessageParams"),
    "ElicitRequestFormParams": Name("ElicitFormParams"),
    "ElicitRequestParams": Name("ElicitFormParams"),
    "ElicitRequestURLParams": Name("ElicitUrlParams"),
    "ElicitationCapability": Name("Elicitation", "gemel.schema.lifecycle"),
    "LoggingMessageNotificationParams": Name("LogParams"),
    "ProgressNotificationParams": Name("ProgressParams"),
    "TextResourceContents": Name("ResourceContents"),
}

#: Full name to the name in Gemel. `Image` and its kind stand in several modules of both packages.
NAMES: dict[str, Name] = {
    "fastmcp.Client": Name("Client"),
    "fastmcp.client.Client": Name("Client"),
    "fastmcp.client.client.Client": Name("Client"),
    "fastmcp.client.logging.LogMessage": Name("LogParams"),
    "fastmcp.Context": Name("Context"),
    "fastmcp.server.Context": Name("Context"),
    "fastmcp.server.context.Context": Name("Context"),
    "fastmcp.FastMCP": Name("Server"),
    "fastmcp.server.FastMCP": Name("Server"),
    "fastmcp.server.server.FastMCP": Name("Server"),
    "fastmcp.dependencies.Depends": Name("Depends"),
    "fastmcp.server.dependencies.get_context": Name("current_context"),
    "fastmcp.exceptions.ToolError": Name("ToolError"),
    "fastmcp.exceptions.NotFoundError": Name("ResourceNotFound"),
    "fastmcp.prompts.Message": Name("Message"),
    "fastmcp.prompts.base.Message": Name("Message"),
    "fastmcp.prompts.prompt.Message": Name("Message"),
    "fastmcp.prompts.PromptMessage": Name("PromptMessage"),
    "fastmcp.prompts.prompt.PromptMessage": Name("PromptMessage"),
    "fastmcp.tools.ToolResult": Name("CallToolResult"),
    "fastmcp.tools.base.ToolResult": Name("CallToolResult"),
    "fastmcp.tools.tool.ToolResult": Name("CallToolResult"),
    "fastmcp.apps.ResourceCSP": Name("Csp"),
    "fastmcp.apps.config.ResourceCSP": Name("Csp"),
    "fastmcp.apps.UI_MIME_TYPE": Name("MIME_TYPE", "gemel.extensions.apps"),
    "fastmcp.apps.config.UI_MIME_TYPE": Name("MIME_TYPE", "gemel.extensions.apps"),
    "mcp.server.apps.APP_MIME_TYPE": Name("MIME_TYPE", "gemel.extensions.apps"),
    "mcp.server.apps.Apps": Name("Apps"),
    "mcp.server.apps.ResourceCsp": Name("Csp"),
    "mcp.server.mcpserver.require_client_extension": Name("require_client_extension"),
    "mcp.server.extension.Extension": Name("Extension"),
    "mcp.client.ClaimContext": Name("ClientContext"),
    "mcp.client.extension.ClaimContext": Name("ClientContext"),
    "mcp.client.ClientExtension": Name("ClientExtension"),
    "mcp.client.extension.ClientExtension": Name("ClientExtension"),
    "mcp.client.advertise": Name("declared_extension"),
    "mcp.client.extension.advertise": Name("declared_extension"),
    "fastmcp.server.auth.AccessToken": Name("Principal"),
    "fastmcp.server.auth.auth.AccessToken": Name("Principal"),
    "mcp.server.auth.provider.AccessToken": Name("Principal"),
    "mcp.Client": Name("Client"),
    "mcp.client.Client": Name("Client"),
    "mcp.client.client.Client": Name("Client"),
    "mcp.shared.memory.create_connected_server_and_client_session": Name("Client"),
    "mcp.server.CacheHint": Name("CacheHint"),
    "mcp.server.caching.CacheHint": Name("CacheHint"),
    "mcp.server.MCPServer": Name("Server"),
    "mcp.server.fastmcp.FastMCP": Name("Server"),
    "mcp.server.fastmcp.server.FastMCP": Name("Server"),
    "mcp.server.mcpserver.MCPServer": Name("Server"),
    "mcp.server.Server": Name("Server"),
    "mcp.server.lowlevel.Server": Name("Server"),
    "mcp.server.lowlevel.server.Server": Name("Server"),
    "mcp.server.ServerRequestContext": Name("Context"),
    "mcp.server.context.ServerRequestContext": Name("Context"),
    "mcp.server.context.CallNext": Name("CallNext"),
    "mcp.server.context.ServerMiddleware": Name("Middleware"),
    "mcp.server.context.HandlerResult": Name("Any", "typing"),
    "mcp.server.fastmcp.Context": Name("Context"),
    "mcp.server.fastmcp.server.Context": Name("Context"),
    "mcp.server.mcpserver.Context": Name("Context"),
    "mcp.server.mcpserver.context.Context": Name("Context"),
    "mcp.server.mcpserver.Message": Name("Message"),
    "mcp.server.mcpserver.prompts.Message": Name("Message"),
    "mcp.shared.uri_template.UriTemplate": Name("UriTemplate"),
    "mcp.server.mcpserver.Resolve": Name("Depends"),
    "mcp.server.mcpserver.resolve.Resolve": Name("Depends"),
    "fastmcp_tasks.TasksExtension": Name("Tasks"),
    "fastmcp.utilities.logging.get_logger": Name("getLogger", "logging"),
    "mcp.server.fastmcp.utilities.logging.get_logger": Name("getLogger", "logging"),
    "mcp.server.mcpserver.utilities.logging.get_logger": Name("getLogger", "logging"),
    "mcp.server.fastmcp.exceptions.ToolError": Name("ToolError"),
    "mcp.server.mcpserver.exceptions.ToolError": Name("ToolError"),
    "mcp.server.mcpserver.exceptions.ResourceNotFoundError": Name("ResourceNotFound"),
    "mcp.server.fastmcp.prompts.base.Message": Name("Message"),
    "mcp.server.mcpserver.prompts.base.Message": Name("Message"),
    **{
        f"{module}.{kind}": Name(kind)
        for module in ("fastmcp", "fastmcp.utilities.types", "mcp.server.fastmcp", "mcp.server.mcpserver")
        for kind in ("Image", "Audio", "File")
    },
    **{
        f"mcp.server.{package}.utilities.types.{kind}": Name(kind)
        for package in ("fastmcp", "mcpserver")
        for kind in ("Image", "Audio")
    },
    **{f"{module}.{name}": Name(name, home) for module in _TYPE_MODULES for name, home in WIRE_TYPES.items()},
    **{f"{module}.{old}": new for module in _TYPE_MODULES for old, new in _RENAMED_TYPES.items()},
}

#: Names that are members of a class in Gemel.
MEMBERS = {
    "fastmcp.apps.UI_EXTENSION_ID": ("Apps", "id"),
    "fastmcp.apps.config.UI_EXTENSION_ID": ("Apps", "id"),
    "mcp.server.apps.EXTENSION_ID": ("Apps", "id"),
    "mcp.server.apps.client_supports_apps": ("Apps", "shown_by"),
}

#: Names of the protocol in camel case, which are in snake case in Gemel.
FIELDS = {
    "cacheScope": "cache_scope",
    "destructiveHint": "destructive_hint",
    "hasMore": "has_more",
    "idempotentHint": "idempotent_hint",
    "inputSchema": "input_schema",
    "isError": "is_error",
    "lastModified": "last_modified",
    "maxTokens": "max_tokens",
    "mimeType": "mime_type",
    "nextCursor": "next_cursor",
    "openWorldHint": "open_world_hint",
    "outputSchema": "output_schema",
    "readOnlyHint": "read_only_hint",
    "requestedSchema": "requested_schema",
    "stopReason": "stop_reason",
    "structuredContent": "structured_content",
    "systemPrompt": "system_prompt",
    "uriTemplate": "uri_template",
    "websiteUrl": "website_url",
}

#: Types whose `type="…"` is fixed in Gemel and not an argument.
FIXED_TYPE = frozenset({"TextContent", "ImageContent", "AudioContent", "ResourceLink", "EmbeddedResource"})

#: The methods that run a server, each with its transport where it has but one.
RUNS: dict[str, str | None] = {
    "run": None,
    "run_async": None,
    "run_stdio_async": "stdio",
    "run_http_async": "http",
    "run_streamable_http_async": "http",
    "run_sse_async": "sse",
}

LOW_LEVEL = frozenset({"mcp.server.Server", "mcp.server.lowlevel.Server", "mcp.server.lowlevel.server.Server"})
SERVERS = frozenset(old for old, new in NAMES.items() if new.name == "Server") - LOW_LEVEL
CONTEXTS = frozenset(old for old, new in NAMES.items() if new.name == "Context")
MEDIA = frozenset(old for old, new in NAMES.items() if new.name in ("Image", "Audio", "File") and new.module == "gemel")
TOOL_RESULTS = frozenset(old for old in NAMES if old.endswith(".ToolResult"))
#: Clients that raise an error for a failed tool; those of the official SDK return its result.
RAISING_CLIENTS = frozenset(old for old in NAMES if old.startswith("fastmcp") and old.endswith(".Client"))
SESSIONS = frozenset(
    {
        "mcp.Client",
        "mcp.ClientSession",
        "mcp.client.Client",
        "mcp.client.client.Client",
        "mcp.client.session.ClientSession",
        "mcp.shared.memory.create_connected_server_and_client_session",
    }
)
#: Requests that a function of the official SDK returns, and their methods.
INPUT_REQUESTS = {
    f"{module}.{name}": method
    for module in ("mcp.types", "mcp_types")
    for name, method in (
        ("ElicitRequest", "elicitation/create"),
        ("CreateMessageRequest", "sampling/createMessage"),
        ("ListRootsRequest", "roots/list"),
    )
}
#: Options of clients that are callbacks, and how many parameters those have: the first of two is the context.
CALLBACKS = {"elicitation_callback": 2, "sampling_callback": 2, "logging_callback": 1}
PROCESS_TRANSPORTS = frozenset({"mcp.stdio_client", "mcp.client.stdio.stdio_client"})
URL_TRANSPORTS = frozenset(
    {
        "mcp.client.streamable_http.streamable_http_client",
        "mcp.client.streamable_http.streamablehttp_client",
        "mcp.client.sse.sse_client",
    }
)
PROCESS_PARAMETERS = frozenset({"mcp.StdioServerParameters", "mcp.client.stdio.StdioServerParameters"})
PROXIES = frozenset({"fastmcp.server.create_proxy", "fastmcp.server.proxy.create_proxy"})
TEMPLATE_PARSERS = frozenset({"mcp.shared.uri_template.UriTemplate.parse"})
#: The error that asks a client to open pages.
REQUIRED_PAGES = frozenset(f"{module}.UrlElicitationRequiredError" for module in ("mcp", "mcp.shared.exceptions"))
RESOURCE_SECURITY = frozenset(
    f"mcp.server.mcpserver{module}.ResourceSecurity" for module in ("", ".resources", ".resources.templates")
)
CURRENT_CONTEXT = frozenset({"fastmcp.dependencies.CurrentContext", "fastmcp.server.dependencies.CurrentContext"})
CACHE_HINTS = frozenset(old for old, new in NAMES.items() if new.name == "CacheHint")
#: Objects that hold apps; those of FastMCP show interfaces of prefab.
APPS = frozenset({"mcp.server.apps.Apps"})
PREFAB_APPS = frozenset({"fastmcp.FastMCPApp", "fastmcp.apps.FastMCPApp", "fastmcp.apps.app.FastMCPApp"})
APP_CONFIGS = frozenset({"fastmcp.apps.AppConfig", "fastmcp.apps.config.AppConfig"})
HEADERS = frozenset({"fastmcp.server.dependencies.get_http_headers"})
#: Access tokens of requests: the classes, the functions that return that of the current one, and dependencies that are filled with
#: one, or with one of its claims.
ACCESS_TOKENS = frozenset(old for old, new in NAMES.items() if new.name == "Principal")
CALLER = frozenset(
    {
        "fastmcp.server.dependencies.get_access_token",
        "mcp.server.auth.middleware.auth_context.get_access_token",
    }
)
CURRENT_TOKEN = frozenset(
    f"fastmcp{module}.dependencies.{name}"
    for module in ("", ".server")
    for name in ("CurrentAccessToken", "TokenClaim")
)
#: What their attributes are called in a `Principal`; for scopes an order is made.
TOKEN_FIELDS = {"claims": "claims", "client_id": "client", "expires_at": "expires"}
TOKEN_VERIFIERS = frozenset(
    {
        "fastmcp.server.auth.TokenVerifier",
        "fastmcp.server.auth.auth.TokenVerifier",
        "mcp.server.auth.provider.TokenVerifier",
    }
)
AUTH_SETTINGS = frozenset({"mcp.server.auth.settings.AuthSettings"})
DEPENDS = frozenset({"fastmcp.dependencies.Depends", "fastmcp.server.dependencies.Depends"})
#: What the dependencies of the official SDK return to ask the client: the method of a context, and the type of its answer.
QUESTIONS = {
    f"mcp.server.mcpserver{module}.{name}": (method, answer)
    for module in ("", ".resolve")
    for name, method, answer in (
        ("Elicit", "elicit", None),
        ("Sample", "sample", Name("CreateMessageResult")),
        ("ListRoots", "list_roots", Name("ListRootsResult", "gemel.schema.roots")),
    )
}
#: What marks a dependency in the official SDK.
RESOLVERS = frozenset(old for old in NAMES if old.endswith(".Resolve"))
#: Methods of contexts and of their sessions that tell the client of a change, and the kind of `Changed`.
NOTICES = {
    "send_resource_updated": "resource",
    "send_tool_list_changed": "tools",
    "send_prompt_list_changed": "prompts",
    "send_resource_list_changed": "resources",
    "notify_resource_updated": "resource",
    "notify_tools_changed": "tools",
    "notify_prompts_changed": "prompts",
    "notify_resources_changed": "resources",
}
#: Modules with the classes of answers, and the action that each class stands for.
_ANSWER_MODULES = (
    "fastmcp.server.elicitation",
    "fastmcp.server.context",
    "mcp.server.elicitation",
    "mcp.server.mcpserver",
    "mcp.server.mcpserver.resolve",
)
ANSWERS = {
    f"{module}.{name}": action
    for module in _ANSWER_MODULES
    for name, action in (
        ("AcceptedElicitation", "accept"),
        ("AcceptedUrlElicitation", "accept"),
        ("DeclinedElicitation", "decline"),
        ("CancelledElicitation", "cancel"),
    )
}
#: The union of these classes, as an annotation.
ANSWER_UNIONS = frozenset(f"{module}.ElicitationResult" for module in _ANSWER_MODULES)
PROTOCOL_ERRORS = frozenset(
    f"{module}.{name}"
    for module in ("mcp", "mcp.shared.exceptions", "fastmcp.exceptions")
    for name in ("McpError", "MCPError")
)
PROMPT_MESSAGES = {
    f"mcp.server.{home}.{old}": role
    for home in ("fastmcp.prompts.base", "mcpserver.prompts.base", "mcpserver.prompts", "mcpserver")
    for old, role in (("UserMessage", "user"), ("AssistantMessage", "assistant"))
}
