"""Prompts: registering functions, listing them, getting their messages. Argument values are strings.

https://modelcontextprotocol.io/specification/2025-11-25/server/prompts
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias, get_args

from gemel.errors import DefinitionError, InvalidArguments, InvalidParams
from gemel.schema.base import PageParams
from gemel.schema.content import ContentBlock, Role
from gemel.schema.prompts import (
    GetPromptParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
)
from gemel.server.composition.namespace import called, suggest
from gemel.server.context import Context, served_call
from gemel.server.dependencies import Run, contexts_of, dependencies_of, inspect_handler
from gemel.server.features.caching import list_scope
from gemel.server.features.completion import RegisteredCompleter, of_choices
from gemel.server.features.content import Media, checked, is_list, returns_blocks, to_blocks
from gemel.server.features.options import PromptOptions, check_options, common_members, listed, make_item
from gemel.server.features.pagination import paginate
from gemel.server.features.visibility import Entries, Item, Visibility, require_scopes
from gemel.server.functions.signature import Signature
from gemel.server.lifespan import in_connection
from gemel.server.threads import Threads

PromptFunction: TypeAlias = Callable[..., Any]


class RegisteredPrompt:
    """A registered prompt."""

    __slots__ = ("_contexts", "_inline", "_threads", "function", "item", "run", "signature")

    def __init__(
        self, function: PromptFunction, item: Item, signature: Signature, threads: Threads, *, blocking: bool
    ) -> None:
        self.function = function
        self.item = item
        self.signature = signature
        self._threads = threads
        self._inline = signature.is_async or not blocking
        self._contexts = contexts_of(signature.injected)
        dependencies = dependencies_of(signature)
        self.run: Run[GetPromptResult] = (
            self._call if dependencies is None else dependencies.around(self._call, threads)
        )

    @property
    def prompt(self) -> Prompt:
        """Its entry in lists."""
        listed: Prompt = self.item.listing
        return listed

    async def get(self, ctx: Context[Any], given: Mapping[str, str]) -> GetPromptResult:
        """Call the function and return its messages."""
        try:
            arguments = self.signature.arguments.from_text(given)
        except InvalidArguments as exc:
            text = "; ".join(exc.errors)
            name = called(served_call(ctx).layers, "prompts", self.prompt.name)
            raise InvalidParams(f"Invalid arguments for prompt {name!r}: {text}") from None
        return await in_connection(ctx, self.run, arguments)

    async def _call(self, ctx: Context[Any], arguments: dict[str, Any]) -> GetPromptResult:
        for name in self._contexts:
            arguments[name] = ctx
        if self._inline:
            value = self.function(**arguments)
        else:
            value = await served_call(ctx).run_in_thread(self._threads, self.function, arguments)
        if isinstance(value, Awaitable):
            value = await value
        if isinstance(value, GetPromptResult):
            return checked(value)
        return GetPromptResult(messages=to_messages(value, self.prompt.name), description=self.prompt.description)


class Message:
    """A message that a prompt returns: `Message("Hello")` or `Message("Hello", role="assistant")`.

    Sent as a PromptMessage: https://modelcontextprotocol.io/specification/2025-11-25/schema#promptmessage

    Args:
        content: A text, a content block, or an Image, Audio or File.
        role: Who says it, "user" or "assistant".

    Raises:
        DefinitionError: Another role, or a content that isn't one of these.
    """

    __slots__ = ("content", "role")

    def __init__(self, content: str | ContentBlock | Media, role: Role = "user") -> None:
        given: Any = content
        blocks = None if isinstance(given, list | tuple) else to_blocks(given)
        if not blocks:
            raise DefinitionError(
                f"Message: content is {type(content).__name__}: use a text, a content block, or an Image"
            )
        if role not in get_args(Role):
            raise DefinitionError(f'Message: role={role!r} is not possible: use "user" or "assistant"')
        self.content: ContentBlock = blocks[0]
        self.role: Role = role


def _returns_messages(annotation: object) -> bool:
    return returns_blocks(annotation) or annotation is Message


def _not_messages(schema: Any) -> str:
    """The type of a return annotation that can't become messages; "" for others."""
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind == "array":
        inner = _not_messages(schema.get("items"))
        return f"a list of {inner}" if inner else ""
    return kind if kind in ("integer", "number", "boolean", "null") else ""


def to_messages(value: Any, name: str) -> list[PromptMessage]:
    """What a prompt function returned, as messages; those without a role are the user's. Raises DefinitionError."""
    if isinstance(value, PromptMessage):
        return [checked(value)]
    if isinstance(value, Message):
        return [PromptMessage(role=value.role, content=value.content)]
    blocks = None if isinstance(value, list | tuple) else to_blocks(value)
    if blocks:
        return [PromptMessage(role="user", content=block) for block in blocks]
    if is_list(value):
        return [message for item in value for message in to_messages(item, name)]
    raise DefinitionError(
        f"Prompt {name!r} returned {type(value).__name__}: return a string, a content block, a Message, or a list of these"
    )


class Prompts(Entries[RegisteredPrompt]):
    """The prompts of one server."""

    def __init__(
        self,
        threads: Threads,
        visibility: Visibility,
        changed: Callable[[], None],
        completers: dict[str, dict[str, RegisteredCompleter]],
        page_size: int | None,
    ) -> None:
        super().__init__(visibility, changed)
        self._threads = threads
        self._completers = completers
        self._page_size = page_size
        #: Names to suggest for an unknown one.
        self.offered_names: Callable[[Context[Any]], Iterable[str]] = self.names

    def add(self, function: PromptFunction, options: Mapping[str, Any]) -> RegisteredPrompt:
        """Register a function. Raises DefinitionError, which says what to change."""
        check_options("@server.prompt", options, PromptOptions)
        signature = inspect_handler(function, _returns_messages, options.get("name"))
        name = signature.name
        if wrong := _not_messages(signature.output_schema):
            raise signature.place.mistake(f"returns {wrong}; return a string, a Message, or a list of these")
        if name == "<lambda>":
            raise DefinitionError('A prompt needs a name: write server.prompt("name")(function)')
        prompt = Prompt(
            name=name,
            arguments=[
                PromptArgument(name=item.wire_name, description=item.description, required=item.required or None)
                for item in signature.parameters
            ]
            or None,
            **common_members(signature, options),
        )
        item = make_item("prompts", name, listed(prompt, f"Prompt {name!r}"), options)
        blocking = options.get("blocking", True)
        registered = RegisteredPrompt(function, item, signature, self._threads, blocking=blocking)
        if self.register(name, registered):
            self._completers[name] = of_choices(signature)
        return registered

    def remove(self, name: str) -> None:
        """Remove a prompt. Raises KeyError if there is none of that name."""
        super().remove(name)
        self._completers.pop(name, None)

    async def list(self, ctx: Context[Any], params: PageParams) -> ListPromptsResult:
        """`prompts/list`."""
        page, cursor = paginate(self.listings(ctx, Prompt), params.cursor, self._page_size)
        scope = list_scope(bool(self.restricted))
        return ListPromptsResult(prompts=page, next_cursor=cursor, cache_scope=scope)

    async def get(self, ctx: Context[Any], params: GetPromptParams) -> GetPromptResult:
        """`prompts/get`. An unknown prompt or wrong arguments are error -32602."""
        entry = self.find(ctx, params.name)
        if entry is None:
            raise InvalidParams(
                f"Unknown prompt: {suggest(served_call(ctx).layers, 'prompts', params.name, self.offered_names(ctx))}"
            )
        require_scopes(ctx, entry.item.scopes)
        return await entry.get(ctx, params.arguments or {})
