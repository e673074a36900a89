"""LlamaIndex: the tools of a client for agents, prompts as chat messages, resources as documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gemel.adapters.tools import (
    AnyClient,
    AnySyncClient,
    AsyncTools,
    Include,
    SyncTools,
    description_of,
    missing_package,
    structured_of,
    text_for_model,
)
from gemel.client.content import content_to_text
from gemel.errors import DefinitionError
from gemel.schema.content import AudioContent, ImageContent, contents_of
from gemel.schema.content import ContentBlock as GemelBlock
from gemel.schema.resources import Resource
from gemel.schema.tools import CallToolResult, Tool

try:
    from llama_index.core.base.llms.types import (
        AudioBlock,
        ChatMessage,
        ContentBlock,
        DocumentBlock,
        ImageBlock,
        TextBlock,
    )
    from llama_index.core.bridge.pydantic import BaseModel, ConfigDict
    from llama_index.core.schema import Document
    from llama_index.core.tools import AsyncBaseTool, ToolMetadata, ToolOutput
except ModuleNotFoundError as exc:
    raise missing_package(exc, "llama_index.core", "llama-index-core", "llama-index") from None

__all__ = ["documents", "messages", "sync_tools", "tools"]


async def tools(
    client: AnyClient, *, include: Include | None = None, resources: bool = False, model_names: bool = True
) -> list[AsyncBaseTool]:
    """List the tools of a client as LlamaIndex's.

    A result has text, image, audio and document blocks; `raw_output` is the structured content, or the text. The error of
    a tool is an output with `is_error`. Errors of the connection are raised; agents show them to the model. Call this again
    after a change of the list.

    Args:
        client: A connected client or client group; the tools are called in its event loop.
        include: The names of the tools to use, or a function of a tool; all by default.
        resources: Whether there is also a tool `read_resource`, for links in results.
        model_names: Whether a tool with a name that models don't take gets a short one.

    Returns:
        The tools, for `FunctionAgent` and other workflows.

    Raises:
        DefinitionError: `include` names a tool that is not listed.
        CallError: The tools could not be listed.

    Example:
        >>> async with Client("weather.py") as client:
        ...     agent = FunctionAgent(tools=await tools(client), llm=llm)
    """
    source: AsyncTools[AsyncBaseTool] = AsyncTools(
        client,
        lambda tool: _LlamaIndexAsyncTool(source, tool),
        include=include,
        resources=resources,
        model_names=model_names,
    )
    return await source.list()


def sync_tools(
    client: AnySyncClient, *, include: Include | None = None, resources: bool = False, model_names: bool = True
) -> list[AsyncBaseTool]:
    """List the tools of a client of `gemel.sync`, for code without async; see `tools`.

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
    source: SyncTools[AsyncBaseTool] = SyncTools(
        client,
        lambda tool: _LlamaIndexSyncTool(source, tool),
        include=include,
        resources=resources,
        model_names=model_names,
    )
    return source.list()


async def messages(client: AnyClient, prompt: str, arguments: Mapping[str, str] | None = None) -> list[ChatMessage]:
    """Get a prompt as chat messages.

    Args:
        client: A connected client or client group.
        prompt: The name of the prompt.
        arguments: Its arguments.

    Returns:
        The messages.

    Raises:
        CallError: There is no such prompt, or the server failed.
        InvalidResponse: The data of a block is not base64.
    """
    found = (await client.get_prompt(prompt, arguments)).messages
    return [ChatMessage(role=message.role, blocks=[_block(message.content)]) for message in found]


async def documents(client: AnyClient, resources: Iterable[str | Resource]) -> list[Document]:
    """Read the text of resources as documents, with their URIs as ids.

    Args:
        client: A connected client or client group.
        resources: URIs or listed resources. Contents that are not text are left out.

    Returns:
        The documents, in order.

    Raises:
        CallError: A resource could not be read.
    """
    return [
        Document(id_=contents.uri, text=contents.text, metadata={"uri": contents.uri, "mime_type": contents.mime_type})
        for resource in resources
        for contents in (await client.read_resource(resource)).contents
        if contents.text is not None
    ]


class _Arguments(BaseModel):
    """What stands for the arguments where a class is demanded; the schema of the tool describes them."""

    model_config = ConfigDict(extra="allow")


class _Metadata(ToolMetadata):
    """A description with the JSON Schema of the server."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(description=description_of(tool), name=tool.name, fn_schema=_Arguments)
        self._schema = tool.input_schema

    def get_parameters_dict(self) -> dict[str, Any]:
        return self._schema


class _LlamaIndexTool(AsyncBaseTool):
    def __init__(self, tool: Tool) -> None:
        self._metadata = _Metadata(tool)
        self._name = tool.name

    @property
    def metadata(self) -> ToolMetadata:
        return self._metadata


class _LlamaIndexAsyncTool(_LlamaIndexTool):
    def __init__(self, source: AsyncTools[AsyncBaseTool], tool: Tool) -> None:
        super().__init__(tool)
        self._source = source

    def call(self, /, *args: Any, **arguments: Any) -> ToolOutput:
        raise DefinitionError(
            f"The tool {self._name!r} has an async client: use `acall`, or sync_tools() with a client of gemel.sync"
        )

    async def acall(self, /, *args: Any, **arguments: Any) -> ToolOutput:
        return _output(self._name, arguments, await self._source.call(self._name, arguments))


class _LlamaIndexSyncTool(_LlamaIndexTool):
    def __init__(self, source: SyncTools[AsyncBaseTool], tool: Tool) -> None:
        super().__init__(tool)
        self._source = source

    def call(self, /, *args: Any, **arguments: Any) -> ToolOutput:
        return _output(self._name, arguments, self._source.call(self._name, arguments))

    async def acall(self, /, *args: Any, **arguments: Any) -> ToolOutput:
        return _output(self._name, arguments, await self._source.call_in_thread(self._name, arguments))


def _output(name: str, arguments: dict[str, Any], result: CallToolResult) -> ToolOutput:
    text = text_for_model(result)
    blocks = [_block(block) for block in result.content]
    return ToolOutput(
        tool_name=name,
        blocks=blocks or [TextBlock(text=text)],
        raw_input=arguments,
        raw_output=text if structured_of(result) is None else structured_of(result),
        is_error=result.is_error,
    )


def _block(block: GemelBlock) -> ContentBlock:
    if isinstance(block, AudioContent):
        return AudioBlock(audio=block.decoded, format=block.mime_type.partition("/")[2])
    contents = contents_of(block)
    if contents is None or contents.blob is None:
        return TextBlock(text=content_to_text(block))
    if isinstance(block, ImageContent) or (contents.mime_type or "").startswith("image/"):
        return ImageBlock(image=contents.decoded, image_mimetype=contents.mime_type)
    return DocumentBlock(data=contents.decoded, document_mimetype=contents.mime_type, title=contents.uri)
