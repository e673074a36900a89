"""Completion of prompt arguments and template variables."""

from __future__ import annotations

from gemel.schema.base import Model, Result

#: Values in one result at most.
MAX_VALUES = 100


class PromptReference(Model, tag_field="type", tag="ref/prompt", kw_only=True):
    """A prompt by name."""

    name: str
    title: str | None = None


class ResourceReference(Model, tag_field="type", tag="ref/resource", kw_only=True):
    """A resource or template by URI."""

    uri: str


class CompletionArgument(Model, kw_only=True):
    """The argument that is being typed, and its value so far."""

    name: str
    value: str


class CompletionContext(Model, kw_only=True):
    """The values of other arguments that were chosen before."""

    arguments: dict[str, str] | None = None


class CompleteParams(Model, kw_only=True):
    """Params of `completion/complete`."""

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Model, kw_only=True):
    """Completions of an argument.

    Args:
        values: At most 100, best first.
        total: How many there are, if known.
        has_more: Whether there are more.
    """

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """Result of `completion/complete`."""

    completion: Completion
