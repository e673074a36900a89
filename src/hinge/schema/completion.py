"""Completion of prompt arguments and template variables (COMP-01…COMP-05)."""

from __future__ import annotations

from hinge.schema.base import Model, Result

#: COMP-04
MAX_VALUES = 100


class PromptReference(Model, tag_field="type", tag="ref/prompt", kw_only=True):
    """A prompt by name."""

    name: str
    title: str | None = None


class ResourceReference(Model, tag_field="type", tag="ref/resource", kw_only=True):
    """A resource or template by URI."""

    uri: str


class CompletionArgument(Model, kw_only=True):
    """The argument being typed, and what stands there so far."""

    name: str
    value: str


class CompletionContext(Model, kw_only=True):
    """What was chosen for other arguments before (COMP-03)."""

    arguments: dict[str, str] | None = None


class CompleteParams(Model, kw_only=True):
    """What to complete."""

    ref: PromptReference | ResourceReference
    argument: CompletionArgument
    context: CompletionContext | None = None


class Completion(Model, kw_only=True):
    """Values, best first, at most 100; `total` if known, `has_more` if there are more."""

    values: list[str]
    total: int | None = None
    has_more: bool | None = None


class CompleteResult(Result, kw_only=True):
    """The answer to `completion/complete`."""

    completion: Completion
