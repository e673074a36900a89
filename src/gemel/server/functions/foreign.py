"""Classes of FastMCP and the official SDK, which are refused where Gemel would ignore them or take them for data."""

from __future__ import annotations

_LIBRARIES = {"fastmcp": "FastMCP", "mcp": "the official SDK", "mcp_types": "the official SDK"}

#: What takes the place of a class, by its name: a name of Gemel. Classes that have the same name here stand with their own.
_COUNTERPARTS = {
    **{
        name: name
        for name in (
            *(
                "Annotations",
                "Audio",
                "AudioContent",
                "CallToolResult",
                "Context",
                "ContentBlock",
                "CreateMessageResult",
            ),
            *(
                "EmbeddedResource",
                "File",
                "GetPromptResult",
                "Icon",
                "Image",
                "ImageContent",
                "Message",
                "PromptMessage",
            ),
            *(
                "ReadResourceResult",
                "ResourceContents",
                "ResourceLink",
                "Root",
                "TextContent",
                "Tool",
                "ToolAnnotations",
            ),
            *("ToolError",),
        )
    },
    "AssistantMessage": "Message",
    "BlobResourceContents": "ResourceContents",
    "ContentResult": "CallToolResult",
    "FastMCP": "Server",
    "MCPServer": "Server",
    "PromptResult": "Message",
    "ResourceContent": "ResourceContents",
    "ResourceResult": "ReadResourceResult",
    "ServerSession": "Context",
    "TextResourceContents": "ResourceContents",
    "ToolResult": "CallToolResult",
    "UserMessage": "Message",
}


def foreign_class(cls: type) -> type | None:
    """The class of another library that a class is or extends; None for other classes."""
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] in _LIBRARIES:
            return base
    return None


def library_of(cls: type) -> str:
    """The name of the library that a class belongs to."""
    package = cls.__module__.partition(".")[0]
    return _LIBRARIES.get(package, package)


def explain_foreign(cls: type) -> str:
    """What a class of another library is, and what to write instead, for messages."""
    name = cls.__name__.lstrip("_")
    counterpart = _COUNTERPARTS.get(name)
    advice = (
        f"write `from gemel import {counterpart}`"
        if counterpart
        else "`gemel migrate` and its guide have the counterpart"
    )
    return f"`{name}`, a class of {library_of(cls)}, which means nothing here; {advice}"


def foreign_value(value: object) -> type | None:
    """The class of another library that a value, or an item of a list, is an instance of; None for others."""
    kinds = {type(value)} | ({*map(type, value)} if isinstance(value, list | tuple) else set())
    return next(filter(None, map(foreign_class, kinds)), None)
