"""Prompts: registering functions, listing them, getting their messages. Argument values come as strings (PRM-03)."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeAlias

from hinge.errors import DefinitionError, InvalidArguments, InvalidParams, shorten
from hinge.schema.base import PageParams
from hinge.schema.content import TextContent
from hinge.schema.prompts import (
    GetPromptParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
)
from hinge.server.completion import Completer
from hinge.server.context import Context
from hinge.server.pages import paginate
from hinge.server.registration import as_blocks, icons_of, is_context
from hinge.server.signature import Signature, inspect_function
from hinge.server.threads import Threads

PromptFunction: TypeAlias = Callable[..., Any]


class RegisteredPrompt:
    """A prompt as it is served."""

    __slots__ = ("_function", "_inline", "prompt", "signature")

    def __init__(self, function: PromptFunction, prompt: Prompt, signature: Signature, *, blocking: bool) -> None:
        self._function = function
        self.prompt = prompt
        self.signature = signature
        self._inline = signature.is_async or not blocking

    async def get(self, ctx: Context[Any], given: Mapping[str, str], threads: Threads) -> GetPromptResult:
        """Run the function and turn what it returns into messages."""
        try:
            arguments = self.signature.arguments_from_text(given)
        except InvalidArguments as exc:
            text = "; ".join(exc.problems)
            raise InvalidParams(f"Invalid arguments for prompt {self.prompt.name!r}: {text}") from None
        for name in self.signature.injected:
            arguments[name] = ctx
        if self._inline:
            value = self._function(**arguments)
        else:
            value = await threads.run(self._function, arguments)
        if isinstance(value, Awaitable):
            value = await value
        if isinstance(value, GetPromptResult):
            return value
        return GetPromptResult(messages=as_messages(value, self.prompt.name), description=self.prompt.description)


def as_messages(value: Any, name: str) -> list[PromptMessage]:
    """What a prompt function may return: a text, a content block, a message, or a list of these; texts are the user's."""
    if isinstance(value, PromptMessage):
        return [value]
    if isinstance(value, str):
        return [PromptMessage(role="user", content=TextContent(text=value))]
    blocks = as_blocks(value)
    if blocks:
        return [PromptMessage(role="user", content=block) for block in blocks]
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [message for item in value for message in as_messages(item, name)]
    raise DefinitionError(
        f"Prompt {name!r} returned {type(value).__name__}: return a text, a content block, a PromptMessage, or a list of these"
    )


class Prompts:
    """The prompts of one server."""

    def __init__(
        self,
        threads: Threads,
        changed: Callable[[], None],
        completers: dict[str, dict[str, Completer]],
        page_size: int | None,
    ) -> None:
        self._prompts: dict[str, RegisteredPrompt] = {}
        self._threads = threads
        self._changed = changed
        self._completers = completers
        self._page_size = page_size

    def __len__(self) -> int:
        return len(self._prompts)

    def add(
        self,
        function: PromptFunction,
        *,
        name: str | None = None,
        blocking: bool = True,
        listing: Mapping[str, Any],
    ) -> RegisteredPrompt:
        """Register a function. Raises DefinitionError with one line that says what to change."""
        signature = inspect_function(function, injected=is_context, name=name)
        found = signature.name
        if found == "<lambda>":
            raise DefinitionError('A prompt needs a name: write server.prompt("name")(function)')
        if found in self._prompts:
            raise DefinitionError(
                f"There is a prompt {found!r} already: give this one another name, or remove the first"
            )
        prompt = Prompt(
            name=found,
            title=listing.get("title"),
            description=listing.get("description") or signature.description,
            arguments=[
                PromptArgument(name=item.wire_name, description=item.description, required=item.required or None)
                for item in signature.parameters
            ]
            or None,
            icons=icons_of(listing.get("icons")),
            meta=listing.get("meta"),
        )
        registered = RegisteredPrompt(function, prompt, signature, blocking=blocking)
        self._prompts[found] = registered
        self._completers[found] = {}
        self._changed()
        return registered

    def remove(self, name: str) -> None:
        """Take a prompt away. Raises KeyError when there is none of that name."""
        del self._prompts[name]
        self._completers.pop(name, None)
        self._changed()

    async def list(self, ctx: Context[Any], params: PageParams) -> ListPromptsResult:
        """`prompts/list`, in the order of registration."""
        page, cursor = paginate([entry.prompt for entry in self._prompts.values()], params.cursor, self._page_size)
        return ListPromptsResult(prompts=page, next_cursor=cursor)

    async def get(self, ctx: Context[Any], params: GetPromptParams) -> GetPromptResult:
        """`prompts/get`. An unknown prompt or missing argument is -32602 (PRM-05)."""
        entry = self._prompts.get(params.name)
        if entry is None:
            near = difflib.get_close_matches(params.name[:128], self._prompts, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else ""
            raise InvalidParams(f"Unknown prompt: {shorten(params.name)}{hint}")
        return await entry.get(ctx, params.arguments or {}, self._threads)
