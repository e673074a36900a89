"""`gemel complete`: ask a server for the values of an argument of a prompt or of a variable of a resource template."""

from __future__ import annotations

import argparse

from gemel.cli.connect import client_for, time_limits
from gemel.cli.console import Console, as_json
from gemel.cli.values import parse_strings
from gemel.client.client import Client
from gemel.errors import DefinitionError, StartError
from gemel.options import hint


async def run(options: argparse.Namespace) -> int:
    """Print a line for each suggestion; on standard error whether there are more."""
    context = parse_strings(options.context) if options.context else None
    is_template = "{" in options.name or "://" in options.name
    prompt, resource = (None, options.name) if is_template else (options.name, None)
    argument, prefix = options.argument, options.prefix
    if "=" in argument and not prefix:
        argument, _, prefix = argument.partition("=")
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            completion = await client.complete(
                argument=argument,
                value=prefix,
                prompt=prompt,
                resource=resource,
                given=context,
                **time_limits(options),
            )
            if not completion.values:
                await _check_argument(client, options.name, argument, is_template=is_template)
        if options.json:
            console.print(as_json(completion))
            return 0
        if completion.values:
            console.print("\n".join(completion.values))
        if completion.has_more or (completion.total or 0) > len(completion.values):
            total = "" if completion.total is None else f" of {completion.total}"
            console.note(f"These are {len(completion.values)}{total}; a longer PREFIX gives others.")
    return 0


async def _check_argument(client: Client, name: str, argument: str, *, is_template: bool) -> None:
    """Raise StartError for an argument that a prompt or template does not have: servers have no suggestions for it."""
    if is_template:
        from gemel.server.features.uri_templates import UriTemplate

        templates = [each.uri_template for each in await client.list_resource_templates() if each.uri_template == name]
        try:
            arguments = [list(UriTemplate(each).names) for each in templates]
        except DefinitionError:  # a template of another implementation
            return
    else:
        prompts = [each for each in await client.list_prompts() if each.name == name]
        arguments = [[each.name for each in prompt.arguments or ()] for prompt in prompts]
    if arguments and argument not in arguments[0]:
        raise StartError(f"{name} has no argument {argument!r}: {hint(argument, arguments[0])}")
