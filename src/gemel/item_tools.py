"""Tools that list and get prompts and resources, for clients that know only tools."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any

import msgspec

from gemel.errors import ResourceNotFound, ToolError, shorten
from gemel.schema.content import ResourceContents, TextContent
from gemel.schema.tools import ToolAnnotations
from gemel.server.context import Context
from gemel.server.router import Router

_READS = ToolAnnotations(read_only_hint=True)


def prompt_tools(*, structured_text: bool = False) -> Router:
    """Make the tools `list_prompts` and `get_prompt`, to be included in a server whose clients don't know prompts.

    They serve what the caller may see, through the middleware of the server. Both return JSON text.

    Args:
        structured_text: As for a Router.

    Returns:
        A router with the two tools.

    Example:
        server.include(prompt_tools())
    """
    return _router(structured_text, list_prompts=_list_prompts, get_prompt=_get_prompt)


def resource_tools(*, structured_text: bool = False) -> Router:
    """Make the tools `list_resources` and `read_resource`, to be included in a server whose clients don't know resources.

    They serve what the caller may see, through the middleware of the server. The list is JSON text. A resource is its text, or
    its bytes in Base64; if it has several contents, JSON text with all of them.

    Args:
        structured_text: As for a Router.

    Returns:
        A router with the two tools.

    Example:
        server.include(resource_tools())
    """
    return _router(structured_text, list_resources=_list_resources, read_resource=_read_resource)


def _router(structured_text: bool, **tools: Callable[..., Awaitable[str]]) -> Router:
    router = Router(structured_text=structured_text)
    for name, function in tools.items():
        router.tool(function, name=name, annotations=_READS)
    return router


async def _list_prompts(ctx: Context[Any]) -> str:
    """List the prompts of this server with their arguments, as JSON."""
    return _json(
        [
            {
                "name": prompt.name,
                "description": prompt.description,
                "arguments": [
                    {"name": argument.name, "description": argument.description, "required": bool(argument.required)}
                    for argument in prompt.arguments or ()
                ],
            }
            for prompt in await ctx.list_prompts()
        ]
    )


async def _get_prompt(
    ctx: Context[Any],
    name: Annotated[str, msgspec.Meta(description="Name of the prompt")],
    arguments: Annotated[
        dict[str, Any] | None, msgspec.Meta(description="Arguments of the prompt, by their names")
    ] = None,
) -> str:
    """Get the messages of a prompt, as JSON."""
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in (arguments or {}).items()}
    result = await ctx.get_prompt(name, texts)
    return _json(
        {
            "messages": [
                {"role": message.role, "content": _plain_content(message.content)} for message in result.messages
            ]
        }
    )


async def _list_resources(ctx: Context[Any]) -> str:
    """List the resources of this server with their URIs, and the URI templates of further resources, as JSON."""
    listed: list[Mapping[str, Any]] = [
        {
            "uri": resource.uri,
            "name": resource.name,
            "description": resource.description,
            "mime_type": resource.mime_type,
        }
        for resource in await ctx.list_resources()
    ]
    listed += [
        {"uri_template": template.uri_template, "name": template.name, "description": template.description}
        for template in await ctx.list_resource_templates()
    ]
    return _json(listed)


async def _read_resource(
    ctx: Context[Any],
    uri: Annotated[str, msgspec.Meta(description="URI of the resource, or of a template with its variables filled in")],
) -> str:
    """Read a resource: its text, or binary data in Base64."""
    try:
        contents = (await ctx.read_resource(uri)).contents
    except ResourceNotFound as exc:
        raise ToolError(f"There is no resource {shorten(uri)!r}") from exc
    if len(contents) == 1:
        return _text(contents[0])
    return _json([{"content": _text(each), "mime_type": each.mime_type} for each in contents])


def _text(contents: ResourceContents) -> str:
    return contents.text if isinstance(contents.text, str) else str(contents.blob)


def _plain_content(content: object) -> Any:
    return content.text if isinstance(content, TextContent) else msgspec.to_builtins(content)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
