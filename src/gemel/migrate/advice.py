"""What to do by hand about names and options that have no counterpart; data only."""

from __future__ import annotations

#: Where the low-level server is explained.
SDK_GUIDE = "docs/migration/from-official-sdk.md"

_CACHING = (
    "let clients cache, with cache={'tools/list': CacheHint(ttl=…)} and @server.resource(uri, ttl=…), and cache slow work in "
    "its function; see docs/migration/from-fastmcp.md"
)
_FOLDER = "give each file a Router and include() it; gemel run --reload watches; see docs/migration/from-fastmcp.md"
_RETRYING = (
    "write a function `async def middleware(ctx, call_next)`; retry in the tool, which knows what may be repeated: see "
    "docs/migration/from-fastmcp.md"
)
_VERSION = "give each version a name, such as 'search_v2', or a server of its own; see docs/migration/from-fastmcp.md"
_VERSIONS = "make a server for each version, and include() what they share; see docs/migration/from-fastmcp.md"

#: Where clients register at the server, which sends its users to the provider, and where they register with the provider.
_PROXY = "write auth=OAuthProxy({}client_id=…, client_secret=…), url=…) of gemel.auth"
_JWT = "write auth=JWTAuth(issuer=…, audience=…) of gemel.auth"
_ENDPOINTS = (
    "write auth=OAuthProxy(Provider(client_id=…, authorization_endpoint=…, token_endpoint=…, userinfo_endpoint=…), url=…) of "
    "gemel.auth"
)
#: Module or name below `fastmcp.server.auth`.
_AUTH = {
    "JWTVerifier": f"{_JWT}, with keys= in place of jwks_uri= or public_key=",
    "OAuthProxy": _ENDPOINTS,
    "OIDCProxy": _PROXY.format("OpenID(issuer=…, "),
    "StaticTokenVerifier": "write auth=StaticTokens(…) of gemel.auth",
    "oauth_proxy": _ENDPOINTS,
    "oidc_proxy": _PROXY.format("OpenID(issuer=…, "),
    "providers": _PROXY.format("OpenID(issuer=…, "),
    "providers.auth0": _PROXY.format("Auth0(domain=…, audience=…, "),
    "providers.auth0.Auth0MCPProvider": f"{_JWT}: clients register with Auth0",
    "providers.aws": _PROXY.format("Cognito(user_pool=…, "),
    "providers.azure": _PROXY.format("EntraID(tenant=…, "),
    "providers.azure.AzureJWTVerifier": _JWT,
    "providers.clerk": _PROXY.format("Clerk(domain=…, "),
    "DebugTokenVerifier": "write auth=TokenAuth(verify) of gemel.auth, with a function from a token to a Principal or None",
    "providers.debug": "write auth=TokenAuth(verify) of gemel.auth, with a function from a token to a Principal or None",
    "providers.descope": f"{_JWT}: clients register with Descope",
    "providers.discord": _PROXY.format("Discord("),
    "providers.github": _PROXY.format("GitHub("),
    "providers.google": _PROXY.format("Google("),
    "providers.huggingface": _PROXY.format("HuggingFace("),
    "providers.in_memory": "write auth=StaticTokens(…) of gemel.auth; Gemel keeps no accounts itself",
    "providers.introspection": "write auth=IntrospectionAuth(…) of gemel.auth",
    "providers.jwt": f"{_JWT}, with keys= in place of jwks_uri= or public_key=",
    "providers.jwt.StaticTokenVerifier": "write auth=StaticTokens(…) of gemel.auth",
    "providers.keycloak": f"{_JWT}, with the URL of the realm as the issuer: clients register with Keycloak",
    "providers.oci": _PROXY.format("OCI(domain=…, "),
    "providers.propelauth": "write auth=IntrospectionAuth(…) of gemel.auth: clients register with PropelAuth",
    "providers.scalekit": f"{_JWT}: clients register with Scalekit",
    "providers.supabase": f"{_JWT}: clients register with Supabase",
    "providers.workos": _PROXY.format("WorkOS(domain=…, "),
    "providers.workos.AuthKitProvider": f"{_JWT}: clients register with AuthKit",
}

#: What a function of the official SDK returns to be called again with the answer.
_INPUT_REQUESTS = {
    "CreateMessageRequest": "ask with await ctx.sample(messages, max_tokens=…)",
    "ElicitRequest": "ask with await ctx.elicit(message, form)",
    "ListRootsRequest": "ask with await ctx.list_roots()",
}
#: The beginning of a full name to what to do; the longest that fits counts.
NAME_ADVICE = {
    "fastmcp": "it has no counterpart in Gemel; see docs/migration/from-fastmcp.md",
    "fastmcp.apps": "write gemel.Apps, or PrefabApps of gemel.extensions.prefab; see docs/migration/from-fastmcp.md",
    "fastmcp.apps.approval": "await ctx.elicit(question, bool) in the tool; see docs/migration/from-fastmcp.md",
    "fastmcp.apps.choice": "await ctx.elicit(question, Literal['a', 'b']) in the tool; see docs/migration/from-fastmcp.md",
    "fastmcp.apps.file_upload": "write a page that calls a tool with the files; see docs/migration/from-fastmcp.md",
    "fastmcp.apps.form": "await ctx.elicit(question, Model) in the tool; see docs/migration/from-fastmcp.md",
    "fastmcp.apps.generative": "return the interface from a tool, with PrefabApps; see docs/migration/from-fastmcp.md",
    "fastmcp.client.auth": "write Client(url, auth='oauth'), or auth= one of the objects of gemel.auth",
    "fastmcp.client.transports": "give Client the URL, file or command line itself, with headers=, env= and cwd=",
    "fastmcp.dependencies": "use Annotated[…, Depends(function)]; a function with a Context parameter reads the rest",
    "fastmcp.exceptions": "use the errors of gemel: ToolError in tools, ProtocolError for requests, CallError in clients",
    "fastmcp.prompts.prompt": "collect prompts in a Router: @router.prompt, and server.include(router)",
    "fastmcp.resources.resource": "collect resources in a Router: @router.resource(uri), and server.include(router)",
    "fastmcp.tools.tool": "collect tools in a Router: @router.tool, and server.include(router)",
    "fastmcp.server.auth": "write Server(auth=…) with gemel.auth: JWTAuth, IntrospectionAuth, TokenAuth, or OAuthProxy(provider)",
    **{f"fastmcp.server.auth.{name}": text for name, text in _AUTH.items()},
    "fastmcp.server.providers.FileSystemProvider": _FOLDER,
    "fastmcp.server.providers.filesystem": _FOLDER,
    "fastmcp.server.providers.skills": "write server.add_skills(folder) for each folder",
    "fastmcp.server.tasks": "write server.add_extension(Tasks()), and @server.tool(task=True)",
    "fastmcp.skills": "write server.add_skills(folder) for each folder; clients use SkillsClient",
    "fastmcp.tools": "register the function: server.tool(function)",
    "fastmcp.utilities.tasks": "write server.add_extension(Tasks()), and @server.tool(task=True)",
    "fastmcp_tasks": "write server.add_extension(Tasks()), and @server.tool(task=True)",
    "fastmcp.server.context": "gemel.Context has what the context of a call has",
    "fastmcp.server.http": "server.http_app() is an ASGI app",
    "fastmcp.settings": "give options to Server(…), run(…) or http_app()",
    "fastmcp.server.dependencies": "take a Context parameter: ctx.headers, ctx.principal, ctx.scopes",
    "fastmcp.server.dependencies.get_access_token": "take a Context parameter: ctx.caller has claims and scopes of the token",
    "mcp.server.auth.middleware.auth_context": "take a Context parameter: ctx.caller has claims and scopes of the token",
    "mcp.server.auth.provider.OAuthAuthorizationServerProvider": "write auth=OAuthProxy(provider); Gemel keeps no accounts",
    "fastmcp.server.elicitation": "ctx.elicit() returns the answer itself and raises gemel.Declined without one",
    "fastmcp.server.middleware": "write a function `async def middleware(ctx, call_next)`, see docs/servers/middleware.md",
    "fastmcp.server.middleware.caching": _CACHING,
    "fastmcp.server.middleware.error_handling": _RETRYING,
    "fastmcp.server.middleware.tool_injection": "write server.include(router), server.include(prompt_tools()), …(resource_tools())",
    "fastmcp.server.providers": "use Router and include(), mount(), add_files(), add_skills(folder), or Server.from_client()",
    "fastmcp.server.transforms.PromptsAsTools": "write server.include(prompt_tools())",
    "fastmcp.server.transforms.ResourcesAsTools": "write server.include(resource_tools())",
    "fastmcp.server.transforms.VersionFilter": _VERSIONS,
    "fastmcp.server.transforms.prompts_as_tools": "write server.include(prompt_tools())",
    "fastmcp.server.transforms.resources_as_tools": "write server.include(resource_tools())",
    "fastmcp.server.transforms.version_filter": _VERSIONS,
    "fastmcp.server.transforms": "use mount(…, tools={…}) or the middleware ToolChanges",
    "mcp": "it has no counterpart in Gemel; see docs/migration/from-official-sdk.md",
    "mcp.ClientSessionGroup": "use ClientGroup",
    "mcp.client.session_group": "use ClientGroup",
    "mcp.client.CacheConfig": "write cache=Store, see docs/clients/calling.md",
    "mcp.client.ResultClaim": "Gemel's client extensions are subclasses of gemel.ClientExtension",
    "mcp.client.ClientRequestContext": "callbacks of Client get the parameters of the request; see docs/clients/callbacks.md",
    "mcp.client.auth": "write Client(url, auth='oauth'), or auth= one of the objects of gemel.auth",
    "mcp.client.subscriptions": "use `async with client.listen(…) as changes`",
    "mcp.client": "give Client the URL, file or command line itself",
    "mcp.McpError": "on a client catch gemel.PeerError; on a server raise a subclass of gemel.ProtocolError",
    "mcp.MCPError": "on a client catch gemel.PeerError; on a server raise a subclass of gemel.ProtocolError",
    "mcp.shared.exceptions": "on a client catch gemel.PeerError; on a server raise a subclass of gemel.ProtocolError",
    "mcp.server.Server": "write @server.tool(name, input_schema={…}) for each tool, or @server.request('tools/call')",
    "mcp.server.lowlevel": "write @server.tool(name, input_schema={…}) for each tool, or @server.request('tools/call')",
    "mcp.server.apps": "apps are objects of gemel.Apps: page(), add_page() and tool()",
    "mcp.server.caching": "write cache={'tools/list': CacheHint(ttl=…)} with gemel.CacheHint",
    "mcp.server.context": "write a function `async def middleware(ctx, call_next)`, see docs/servers/middleware.md",
    "mcp.server.extension": "Gemel's extensions are subclasses of gemel.Extension",
    "mcp.server.lowlevel.helper_types": "return the text from a function with @server.resource(uri)",
    "mcp.server.mcpserver.AcceptedElicitation": "ctx.elicit() returns the answer, and raises gemel.Declined without one",
    "mcp.server.mcpserver.CancelledElicitation": "ctx.elicit() raises gemel.Declined without an answer; its action tells which",
    "mcp.server.mcpserver.DeclinedElicitation": "ctx.elicit() raises gemel.Declined without an answer; its action tells which",
    "mcp.server.mcpserver.Elicit": "take a Context in the dependency, and await ctx.elicit(…) there",
    "mcp.server.mcpserver.ElicitationResult": "ctx.elicit() returns the answer, and raises gemel.Declined without one",
    "mcp.server.mcpserver.InvalidRequestState": "remove it: a state that was changed is refused before the function runs",
    "mcp.server.mcpserver.ListRoots": "take a Context in the dependency, and await ctx.list_roots() there",
    "mcp.server.mcpserver.RequestStateSecurity": "write state_keys=[secret]",
    "mcp.server.mcpserver.ResourceSecurity": "write @server.resource(uri, screen=False) to accept values such as '..'",
    "mcp.server.mcpserver.Sample": "take a Context in the dependency, and await ctx.sample(…) there",
    "mcp.server.mcpserver.prompts.Prompt": "register the function: server.prompt(function)",
    "fastmcp.prompts.Prompt": "register the function: server.prompt(function)",
    "fastmcp.resources.TextResource": "register a function that returns the text: server.resource(uri)",
    "fastmcp.resources.FileResource": "register a function with server.resource(uri), or a folder with server.add_files()",
    "fastmcp.resources.FunctionResource": "register the function: server.resource(uri)(function)",
    "mcp.server.mcpserver.prompts.base.Prompt": "register the function: server.prompt(function)",
    "mcp.server.mcpserver.resources": "register a function with @server.resource(uri), or a folder with server.add_files()",
    "mcp.server.session": "ctx.sample(), ctx.elicit() and server.notify(Changed(…)) do what the session did",
    "mcp.shared.auth": "gemel.auth has the objects for logins and tokens; see docs/authorization.md",
    "mcp.shared.path_security": "values such as '..' are refused before the function runs; else use pathlib's is_relative_to()",
    "mcp.shared.uri_template": "give the template itself to @server.resource(uri)",
    "mcp.server.auth": "write Server(auth=…) with gemel.auth: JWTAuth, IntrospectionAuth, TokenAuth, or OAuthProxy(provider)",
    "mcp.server.transport_security": "name the hosts in allowed_hosts=, the pages in allowed_origins= of http_app() or run()",
    "mcp.server.elicitation": "ctx.elicit() returns the answer itself and raises gemel.Declined without one",
    "mcp.server.streamable_http.EventStore": "remove it: events are kept for replay by themselves; processes share backend=…",
    "mcp.server.stdio": "await server.run_async() serves stdio",
    **{
        f"{module}.{name}": f"{text}; see {SDK_GUIDE}"
        for module in ("mcp.types", "mcp_types")
        for name, text in _INPUT_REQUESTS.items()
    },
    "mcp.types": "Gemel's wire types are in gemel and gemel.schema",
    "mcp_types": "Gemel's wire types are in gemel and gemel.schema",
}

SERVER_OPTIONS = {
    "auth": "write one of gemel.auth: OAuthProxy(GitHub(…)) and the like, JWTAuth, IntrospectionAuth, TokenAuth",
    "auth_server_provider": "write auth=OAuthProxy(provider) of gemel.auth; Gemel keeps no accounts itself",
    "cache_ttl": "write cache={'tools/list': CacheHint(ttl=…)}",
    "cache_scope": "write cache={'tools/list': CacheHint(ttl=…, scope=…)}",
    "extensions": "Gemel's extensions are subclasses of gemel.Extension",
    "middleware": "write each as a function `async def middleware(ctx, call_next)`",
    "providers": "use include(), mount(), add_files() or add_skills()",
    "request_state_security": "write state_keys=[secret]",
    "resources": "register each with @server.resource(uri)",
    "sampling_handler": "ctx.sample() asks the client's model only",
    "subscriptions": "remove it; several processes share subscriptions with backend=…",
    "experimental_capabilities": "write extensions=[…] with a gemel.Extension",
    "get_tool_input_schema": "remove it",
    "resource_security": "write @server.resource(uri, screen=False) to accept values such as '..'",
    "session_state_store": "write backend=…, which keeps ctx.session_state",
    "tasks": "write server.add_extension(Tasks()), and @server.tool(task=True)",
    "token_verifier": "write auth=TokenAuth(verify) of gemel.auth",
    "tool_serializer": "return the text from the tool",
    "tools": "register each with server.tool(function)",
    "transforms": "use mount(…, tools={…}) or the middleware ToolChanges",
}
#: Options that are left out because Gemel always, or never, behaves so.
DROPPED_SERVER_OPTIONS = frozenset(
    {
        "client_log_level",
        "debug",
        "dependencies",
        "dereference_schemas",
        "json_response",
        "log_level",
    }
)
#: Options with which a server does what those of both other libraries do by default: the argument that says the opposite, if any,
#: the value without it, and what the reader is told.
KEPT_OPTIONS = {
    "coerce": ("strict_input_validation", "True", 'coerce=True: the string "3" is accepted for an int'),
    "error_details": ("mask_error_details", "True", "error_details=True: the model reads the texts of exceptions"),
    "structured_text": ("", "True", "structured_text=True: tools that return texts list an output schema"),
}
#: Arguments that say what becomes of a second tool, prompt or resource of one name.
DUPLICATES = (
    "on_duplicate",
    "on_duplicate_tools",
    "on_duplicate_prompts",
    "on_duplicate_resources",
    "warn_on_duplicate_tools",
    "warn_on_duplicate_prompts",
    "warn_on_duplicate_resources",
)
DUPLICATE_WORDS = {"replace": "the second one counts", "keep": "the first one counts"}
VISIBILITY = (
    "it takes names and tags=; for a rule over kinds, versions or keys write a function with @server.visibility"
)
#: Options of `run` and of the HTTP app without a counterpart.
HTTP_LEFT = {
    "transport_security": "name the hosts in allowed_hosts=, the web pages in allowed_origins=; Host and Origin are always checked",
    "host_origin_protection": "name the hosts in allowed_hosts=, the web pages in allowed_origins=",
    "event_store": "events are kept for replay by themselves; give Server(backend=…) where several processes serve",
    "max_request_body_size": "write Server(limits=Limits(body=…))",
    "max_sessions": "write Server(limits=Limits(sessions=…))",
    "middleware": "wrap the app: Middleware(server.http_app()), and serve that",
    "mount_path": "mount server.http_app() in the outer app, which tells it its path",
    "session_idle_timeout": "write Server(limits=Limits(session_idle=…))",
    "uvicorn_config": "write the options of run('http', …), or serve server.http_app() with uvicorn",
    "stateless": "write sessions=False",
}
ANY_HOST = "every Host is accepted, as before; name the hosts instead, and web pages of other sites in allowed_origins="
_TOOL_MANAGER = (
    "use `async with Client(server) as client`: await client.list_tools(); to change a tool, give input_schema=, output_schema= "
    "and the like to tool(…)"
)
#: Members that servers of the other libraries have, and hardly anything else.
ANYWHERE = {
    "_lowlevel_server": "the server has no inner one: give version= and the like to Server(…)",
    "_mcp_server": "the server has no inner one: give version= and the like to Server(…)",
    "_tool_manager": _TOOL_MANAGER,
    "create_initialization_options": "remove it: await server.run_async() needs none",
    "custom_route": "give routes={path: asgi_app} to run('http', …) or http_app()",
    "import_server": "write server.include(…)",
    "run_http_async": "write await server.run_async('http', …)",
    "run_sse_async": "write await server.run_async('http', sse_path='/sse', …)",
    "run_stdio_async": "write await server.run_async()",
    "run_streamable_http_async": "write await server.run_async('http', …)",
    "sse_app": "write server.http_app(sse_path='/sse')",
    "streamable_http_app": "write server.http_app(…)",
}
APP_LIFESPAN = ".lifespan: remove it, as an outer app needs no lifespan of the server's app"
MEDIA_MEMBERS = {
    "to_image_content": "write image.content()",
    "to_audio_content": "write audio.content()",
    "to_resource_content": "write file.content()",
}
#: Options of the server that belong to running it over HTTP.
HTTP_OPTIONS = {
    "host": "host",
    "port": "port",
    "streamable_http_path": "path",
    "sse_path": "sse_path",
    "stateless_http": "sessions",
}

ITEM_OPTIONS = {
    "app": "write apps = server.add_extension(Apps()) where the server is made, and @apps.tool(ui=…) or @apps.page(uri)",
    "auth": 'write scopes=["scope"], without_scopes="hide"',
    "exclude_args": "take them out of the signature, or inject them with Annotated[…, Depends(function)]",
    "enabled": "call server.disable(name)",
    "serializer": "return the text from the tool",
    "security": "write screen=False to accept values such as '..'",
    "task": "write True, and server.add_extension(Tasks())",
    "version": _VERSION,
}

_ROUNDS = (
    "ask with await ctx.elicit(message, form), ctx.sample() or ctx.list_roots(), which return the answer, and go on behind it; see "
    "docs/migration/from-official-sdk.md"
)
CONTEXT_MEMBERS = {
    "input_responses": _ROUNDS,
    "request_state": _ROUNDS,
    "reset_visibility": "use @server.visibility",
    "notify_resource_updated": "use server.notify(Changed('resource', uri))",
    "notify_tools_changed": "register or remove the tool: clients are told",
    "notify_prompts_changed": "register or remove the prompt: clients are told",
    "notify_resources_changed": "register or remove the resource: clients are told",
    "client_id": "ctx.principal is who was authenticated",
    "disable_components": "use @server.visibility",
    "enable_components": "use @server.visibility",
    "fastmcp": "use the server object itself",
    "mcp_server": "use the server object itself",
    "request_context": "ctx.headers, ctx.meta, ctx.state and ctx.request_id have what it held",
    "sample_step": "write the loop around ctx.sample()",
    "send_notification": "use ctx.notify(method, params), or server.notify(Changed(…))",
    "session": "ctx.sample(), ctx.elicit() and ctx.list_roots() ask the client; server.notify(Changed(…)) and "
    "ctx.complete_elicitation() tell it",
    "session_id": "ctx.session_state keeps values for a session, which stateless clients lack; ctx.principal tells callers apart",
    "transport": "ctx.headers is empty unless the call came over HTTP",
}

#: Members of the session of the official SDK that contexts of Gemel have in another form.
SESSION_MEMBERS = {
    "client_params": "ctx.client_info and ctx.client_capabilities have its parts",
    "elicit": "use ctx.elicit(message, form)",
    "elicit_form": "use ctx.elicit(message, form)",
    "elicit_url": "use ctx.elicit_url(message, url)",
    "list_roots": "ctx.list_roots() returns the roots themselves",
    "send_log_message": "use ctx.log(level, data, logger=…)",
    "send_ping": "use ctx.ping()",
    "send_progress_notification": "use ctx.report_progress(progress, total, message)",
}
SERVER_MEMBERS = {
    "_custom_starlette_routes": "give routes={path: asgi_app} to run('http', …) or http_app()",
    "_lowlevel_server": "the server has no inner one: give version=, instructions= and the like to Server(…)",
    "_mcp_server": "the server has no inner one: give version=, instructions= and the like to Server(…)",
    "_prompt_manager": "use `async with Client(server) as client`: await client.list_prompts()",
    "_resource_manager": "use `async with Client(server) as client`: await client.list_resources()",
    "_tool_manager": _TOOL_MANAGER,
    "create_initialization_options": "remove it: await server.run_async() needs none",
    "middleware": "call server.add_middleware(function) for each",
    "providers": "use include(), mount(), add_files() or add_skills()",
    "request_context": "current_context() has what it held",
    "add_prompt": "register the function: server.prompt(function)",
    "add_provider": "use include(), mount(), add_files() or add_skills()",
    "add_resource": "register a function with @server.resource(uri), or a folder with server.add_files()",
    "add_template": "register the function: server.resource(uri)(function)",
    "add_transform": "use mount(…, tools={…}) or the middleware ToolChanges",
    "add_completion_handler": "use @function.complete('argument') below the prompt or template",
    "call_tool": "use `async with Client(server) as client`: await client.call_tool(…)",
    "completion": "use @function.complete('argument') below the prompt or template",
    "custom_route": "give routes={path: asgi_app} to run('http', …) or http_app()",
    "get_prompt": "use `async with Client(server) as client`",
    "get_prompts": "use `async with Client(server) as client`",
    "get_resource": "use `async with Client(server) as client`",
    "get_resources": "use `async with Client(server) as client`",
    "get_tool": "use `async with Client(server) as client`",
    "get_tools": "use `async with Client(server) as client`: await client.list_tools()",
    "local_provider": "the server itself has remove_tool(), remove_prompt() and remove_resource()",
    "read_resource": "use `async with Client(server) as client`",
    "render_prompt": "use `async with Client(server) as client`",
    "session_manager": "mount server.http_app(); it needs no lifespan of the outer app",
    "settings": "give host=, port= and the like to run('http', …)",
}

_AS_MIDDLEWARE = "write it as middleware, `async def middleware(ctx, call_next)`, and give that to add_middleware()"
#: Methods by which the other libraries serve, and which Gemel doesn't call: what a class that overrides one is told. FastMCP also
#: has them with an underscore in front, and with `_mcp` behind.
OVERRIDDEN = {
    **dict.fromkeys(
        (
            "call_tool",
            "get_prompt",
            "get_tool",
            "list_prompts",
            "list_resource_templates",
            "list_resources",
            "list_tools",
            "read_resource",
            "render_prompt",
        ),
        _AS_MIDDLEWARE,
    ),
    **dict.fromkeys(("sse_app", "streamable_http_app"), "override http_app(), which run('http', …) calls"),
    **dict.fromkeys(
        ("run_http_async", "run_sse_async", "run_stdio_async", "run_streamable_http_async"),
        "do the same where run() or run_async() is called",
    ),
}

CLIENT_OPTIONS = {
    "auth": "write auth='oauth', one of the objects of gemel.auth, or auth=lambda: 'Bearer …'",
    "cache": "write cache=Store, see docs/clients.md",
    "elicitation_callback": "write on_elicit=function: it gets the form and returns a dict, or None to decline",
    "elicitation_handler": "write on_elicit=function: it gets the form and returns a dict, or None to decline",
    "extensions": "Gemel's client extensions are subclasses of gemel.ClientExtension",
    "init_timeout": "write limits=Limits(connect=…)",
    "list_roots_callback": "write on_roots=function that returns folders",
    "log_handler": "write on_log=function: it gets LogParams with level, data and logger",
    "logging_callback": "write on_log=function: it gets LogParams with level, data and logger",
    "message_handler": "write on_notification=function(method, params), or on_change=",
    "mode": "write era='2025' or era='2026'",
    "progress_handler": "write on_progress=function: it gets one ProgressParams",
    "read_timeout_seconds": "give total= or idle= to the call",
    "sampling_callback": "write on_sample=function: it gets CreateMessageParams and returns a string",
    "sampling_handler": "write on_sample=function: it gets CreateMessageParams and returns a string",
    "timeout": "give total= or idle= to the call, or limits=Limits(…) here",
}
WRAPPED = (
    "structured content of the stateless era is not wrapped in a field `result`: use .data, which is the same in both eras, or "
    "write Client(…, era='2025')"
)
_ALL_PAGES = "the items of all pages are returned; remove the loop over pages"
_BY_CALLBACKS = "remove it: the callbacks of the client answer, and the call goes on by itself"
_LISTS = ("list_tools", "list_resources", "list_resource_templates", "list_prompts")
_LOGS = ("log", "debug", "info", "warning", "error")
#: Keywords of methods of contexts and clients that have another name in Gemel.
RENAMED_KEYWORDS: dict[str, dict[str, str]] = {
    "ctx.elicit": {"response_type": "form", "schema": "form"},
    **{f"ctx.{method}": {"message": "data", "logger_name": "logger"} for method in _LOGS},
    "client.call_tool": {"timeout": "total", "read_timeout_seconds": "idle"},
    "client.listen": {
        "tools_list_changed": "tools",
        "prompts_list_changed": "prompts",
        "resources_list_changed": "resource_list",
        "resource_subscriptions": "resources",
    },
    **{f"client.{method}": {"cache_mode": "cache"} for method in (*_LISTS, "read_resource")},
}
_IN_ROUNDS = {
    "input_responses": _BY_CALLBACKS,
    "request_state": _BY_CALLBACKS,
    "allow_input_required": _BY_CALLBACKS,
}
_TASK = {
    "task": "remove it; of tools it is call_tool(…, task=True)",
    "task_id": "remove it: the server makes the id",
    "ttl": "remove it; of tools it is task_ttl=, in seconds",
}
#: Those without a counterpart, and what to do.
KEYWORD_ADVICE: dict[str, dict[str, str]] = {
    "ctx.elicit": {
        "response_title": "write a class as the form, whose field is Annotated[…, Field(title=…)]",
        "response_description": "write a class as the form, whose field is Annotated[…, Field(description=…)]",
    },
    "ctx.elicit_url": {
        "elicitation_id": "Gemel makes the id: `page = ctx.elicit_url(…)`, `await page`, "
        "`await ctx.complete_elicitation(page.elicitation_id)`",
    },
    "ctx.sample": dict.fromkeys(
        ("result_type", "tools", "tool_concurrency", "mask_error_details", "max_steps"), "write the loop in the tool"
    ),
    **{f"ctx.{method}": {"extra": "give a dict in place of the text"} for method in _LOGS},
    "client.call_tool": {
        **_IN_ROUNDS,
        "progress_callback": "write on_progress=function: it gets one ProgressParams",
        "progress_handler": "write on_progress=function: it gets one ProgressParams",
        "task_id": _TASK["task_id"],
        "ttl": "write task_ttl=, in seconds",
        "allow_claimed": "Gemel's client extensions are subclasses of gemel.ClientExtension",
        "version": _VERSION,
    },
    "client.get_prompt": {**_IN_ROUNDS, **_TASK, "version": _VERSION},
    "client.read_resource": {**_IN_ROUNDS, **_TASK, "version": _VERSION},
    **{f"client.{method}": {"cursor": _ALL_PAGES, "max_pages": _ALL_PAGES, "params": _ALL_PAGES} for method in _LISTS},
    "client.set_logging_level": {"meta": "remove it"},
}
#: Keywords of these that are left out, since the call does the same without them, or nearly so.
LEFT_OUT_KEYWORDS = frozenset(
    {"elicitation_id", "response_title", "response_description", "extra", "cursor", "max_pages", "params"}
)
CLIENT_MEMBERS = {
    "call_tool_mcp": "call_tool(…, raise_on_error=False)",
    "complete": "write client.complete(prompt=…, argument=…, value=…)",
    "initialize_result": "client.server_info, client.server_capabilities and client.instructions have its parts",
    "list_tools_mcp": "list_tools() returns all tools",
    "list_resources_mcp": "list_resources() returns all resources",
    "list_prompts_mcp": "list_prompts() returns all prompts",
    "new": "make another Client",
    "read_resource_mcp": "read_resource() returns the whole result",
    "send_ping": "client.ping()",
    "send_roots_list_changed": "client.roots_changed()",
    "session": "the client itself has all methods",
    "subscribe_resource": "use `async with client.listen(resources=[uri]) as changes`",
    "transport": "options of the transport are arguments of Client",
}


#: Members of the objects of apps of the other libraries.
APPS_MEMBERS = {
    "add_resource": "write @apps.page(uri), or apps.add_page(uri, path)",
    "add_tool": "write apps.tool()(function)",
    "resources": "register pages with apps.page() or apps.add_page()",
    "run": "make a server: Server(name, extensions=[apps]).run()",
    "tools": "register tools with apps.tool()",
}
#: What is said of a program that has apps of its own beside those of its servers.
ONE_OF_APPS = "a server has one object of apps: register the tools and pages of both at one"
#: What is said once about tools that are for pages alone.
FOR_PAGES = (
    "clients that don't show pages neither list nor call the tools with audience='app'; a test declares that it shows them: see "
    "docs/servers/extensions.md"
)


def name_advice(full_name: str) -> str:
    """Return what to do about a name that has no counterpart."""
    parts = full_name.split(".")
    for length in range(len(parts), 0, -1):
        text = NAME_ADVICE.get(".".join(parts[:length]))
        if text is not None:
            return text
    return "it has no counterpart in Gemel"
