"""LangChain: the tools of a client for agents, prompts as messages, resources as blobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from gemel.adapters.tools import (
    AnyClient,
    AnySyncClient,
    AsyncTools,
    Include,
    SyncTools,
    description_of,
    metadata_of,
    missing_package,
    structured_of,
    text_for_model,
)
from gemel.client.content import content_to_text
from gemel.errors import DefinitionError
from gemel.schema.content import (
    AudioContent,
    ContentBlock,
    ImageContent,
    ResourceContents,
    TextContent,
    contents_of,
)
from gemel.schema.prompts import PromptMessage
from gemel.schema.resources import Resource
from gemel.schema.tools import CallToolResult, Tool

try:
    from langchain_core.documents.base import Blob
    from langchain_core.messages import AIMessage, HumanMessage
    from langchain_core.messages.content import (
        ContentBlock as LangChainBlock,
    )
    from langchain_core.messages.content import (
        create_audio_block,
        create_file_block,
        create_image_block,
        create_text_block,
    )
    from langchain_core.tools import BaseTool, ToolException
    from pydantic import PrivateAttr
except ModuleNotFoundError as exc:
    raise missing_package(exc, "langchain_core", "langchain-core", "langchain") from None

__all__ = ["blobs", "messages", "sync_tools", "tools"]


async def tools(
    client: AnyClient, *, include: Include | None = None, resources: bool = False, model_names: bool = True
) -> list[BaseTool]:
    """List the tools of a client as LangChain's.

    A result is text, or standard content blocks if it has more than text; structured content is the artifact, as
    `{"structured_content": …}`. The error of a tool becomes a `ToolMessage` with status "error". Errors of the connection
    are raised. Call this again after a change of the list.

    Args:
        client: A connected client or client group; the tools are called in its event loop.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`, for links in results.
        model_names: Whether a tool with a name that models don't take gets a short one.

    Returns:
        The tools, for `create_agent`, `bind_tools` or `ToolNode`.

    Raises:
        DefinitionError: `include` names a tool that is not listed.
        CallError: The tools could not be listed.

    Example:
        >>> async with Client("weather.py") as client:
        ...     agent = create_agent("openai:gpt-5", await tools(client))
    """
    source: AsyncTools[BaseTool] = AsyncTools(
        client,
        lambda tool: _LangChainAsyncTool(source, tool),
        include=include,
        resources=resources,
        model_names=model_names,
    )
    return await source.list()


def sync_tools(
    client: AnySyncClient, *, include: Include | None = None, resources: bool = False, model_names: bool = True
) -> list[BaseTool]:
    """List the tools of a client of `gemel.sync`, for agents that run without async; see `tools`.

    Args:
        client: A connected client or client group of `gemel.sync`.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`, for links in results.
        model_names: Whether a tool with a name that models don't take gets a short one.

    Returns:
        The tools, which can also be awaited.

    Raises:
        DefinitionError: `include` names a tool that is not listed.
        CallError: The tools could not be listed.
    """
    source: SyncTools[BaseTool] = SyncTools(
        client,
        lambda tool: _LangChainSyncTool(source, tool),
        include=include,
        resources=resources,
        model_names=model_names,
    )
    return source.list()


async def messages(
    client: AnyClient, prompt: str, arguments: Mapping[str, str] | None = None
) -> list[HumanMessage | AIMessage]:
    """Get a prompt as messages.

    Args:
        client: A connected client or client group.
        prompt: The name of the prompt.
        arguments: Its arguments.

    Returns:
        The messages.

    Raises:
        CallError: There is no such prompt, or the server failed.
    """
    return [_message(message) for message in (await client.get_prompt(prompt, arguments)).messages]


async def blobs(client: AnyClient, resources: Iterable[str | Resource]) -> list[Blob]:
    """Read resources as blobs, whose metadata has the `uri`.

    Args:
        client: A connected client or client group.
        resources: URIs or listed resources.

    Returns:
        The contents, in order.

    Raises:
        CallError: A resource could not be read.
    """
    return [_blob(contents) for one in resources for contents in (await client.read_resource(one)).contents]


class _LangChainTool(BaseTool):
    """A tool whose arguments are those of its JSON Schema, whatever their names."""

    response_format: Literal["content", "content_and_artifact"] = "content_and_artifact"
    handle_tool_error: Any = True

    def __init__(self, tool: Tool) -> None:
        super().__init__(
            name=tool.name,
            description=description_of(tool),
            args_schema=tool.input_schema,
            metadata=metadata_of(tool) or None,
        )


class _LangChainAsyncTool(_LangChainTool):
    _source: AsyncTools[BaseTool] = PrivateAttr()

    def __init__(self, source: AsyncTools[BaseTool], tool: Tool) -> None:
        super().__init__(tool)
        self._source = source

    def _run(self, /, *args: Any, **arguments: Any) -> Any:
        raise DefinitionError(
            f"The tool {self.name!r} has an async client: use `ainvoke`, or sync_tools() with a client of gemel.sync"
        )

    async def _arun(self, /, *args: Any, **arguments: Any) -> Any:
        return _content_and_artifact(await self._source.call(self.name, arguments))


class _LangChainSyncTool(_LangChainTool):
    _source: SyncTools[BaseTool] = PrivateAttr()

    def __init__(self, source: SyncTools[BaseTool], tool: Tool) -> None:
        super().__init__(tool)
        self._source = source

    def _run(self, /, *args: Any, **arguments: Any) -> Any:
        return _content_and_artifact(self._source.call(self.name, arguments))

    async def _arun(self, /, *args: Any, **arguments: Any) -> Any:
        return _content_and_artifact(await self._source.call_in_thread(self.name, arguments))


def _content_and_artifact(result: CallToolResult) -> tuple[str | list[LangChainBlock], dict[str, Any] | None]:
    if result.is_error:
        raise ToolException(text_for_model(result))
    structured = structured_of(result)
    return _content(result), None if structured is None else {"structured_content": structured}


def _content(result: CallToolResult) -> str | list[LangChainBlock]:
    """Text as a string, which all models take; content blocks if there is more."""
    blocks = [_tool_block(block) for block in result.content]
    if all(block["type"] == "text" for block in blocks):
        return text_for_model(result)
    return blocks


def _tool_block(block: ContentBlock) -> LangChainBlock:
    """The block of a tool's result; LangChain writes a result with an audio block as one string."""
    if isinstance(block, AudioContent):
        return create_file_block(base64=block.data, mime_type=block.mime_type)
    return _block(block)


def _block(block: ContentBlock) -> LangChainBlock:
    if isinstance(block, AudioContent):
        return create_audio_block(base64=block.data, mime_type=block.mime_type)
    contents = contents_of(block)
    if contents is None or contents.blob is None:
        return create_text_block(text=content_to_text(block))
    is_image = isinstance(block, ImageContent) or (contents.mime_type or "").startswith("image/")
    create = create_image_block if is_image else create_file_block
    return create(base64=contents.blob, mime_type=contents.mime_type)


def _message(message: PromptMessage) -> HumanMessage | AIMessage:
    make = HumanMessage if message.role == "user" else AIMessage
    if isinstance(message.content, TextContent):
        return make(message.content.text)
    return make(content_blocks=[_block(message.content)])


def _blob(contents: ResourceContents) -> Blob:
    data = contents.text if contents.blob is None else contents.decoded
    return Blob.from_data(data or "", mime_type=contents.mime_type, metadata={"uri": contents.uri})
