"""A small host: a chat in the terminal that uses the tools of several servers. `python examples/host.py [CONFIG]`.

Start `gemel run examples/host_servers.py:cafe --http` in another terminal to see a server that is reached over HTTP; the
host works without it. `Rules` takes the place of a language model: it calls the tool that is named, as in
`forecast city=Oslo`. Asking the user needs the extra `cli`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gemel import (
    Changed,
    ChangesLost,
    ClientGroup,
    CreateMessageParams,
    GemelError,
    LogParams,
    ProgressParams,
    StartError,
    Terminal,
    Tool,
    content_to_text,
    save_contents,
    tools_for_model,
)

HELP = """\
  TOOL name=value …         call a tool; asks for missing arguments
  /servers                  list the servers and their state
  /tools                    list the tools of all servers
  /prompts                  list the prompts
  /prompt NAME name=value … get the messages of a prompt
  /resources                list the resources
  /read URI                 read a resource
  /quit                     leave; Ctrl-C and Ctrl-D do the same"""


class Choice(NamedTuple):
    """A model's decision: which tool to call, with which arguments."""

    tool: Tool
    arguments: dict[str, Any]


class Model(Protocol):
    """What this host needs from a model. Implement it with yours."""

    def choose(self, said: str, tools: Sequence[Tool]) -> Choice | None:
        """Choose a tool for what the user typed; None if none fits."""
        ...

    async def answer(self, request: CreateMessageParams) -> str:
        """Answer a sampling request of a server."""
        ...


class Rules:
    """A stand-in for a model: calls a tool by its name, and gives servers the same answer every time."""

    def choose(self, said: str, tools: Sequence[Tool]) -> Choice | None:
        """Choose the tool with the name that was typed."""
        name, *words = shlex.split(said)
        tool = next((tool for tool in tools if tool.name == name), None)
        return None if tool is None else Choice(tool, arguments_of(words))

    async def answer(self, request: CreateMessageParams) -> str:
        """Always recommend the same book."""
        return f"“The Hound”, since you said: {request.messages[-1].text}"


class Host:
    """Connects the servers, the model and the user at the terminal."""

    def __init__(self, config: Path, model: Model, terminal: Terminal) -> None:
        self.model = model
        self.terminal = terminal
        self.tools: dict[str, Tool] = {}
        callbacks = {**terminal.callbacks, "on_sample": terminal.sample_with(model.answer)}
        self.servers = ClientGroup.from_config(config, on_change=self.changed, on_log=self.log, **callbacks)

    async def run(self) -> None:
        """Run the chat until the user leaves."""
        async with self.servers:
            self.tools = {tool.name: tool for tool in tools_for_model(await self.servers.list_tools())}
            self.show_servers()
            self.terminal.show("Say /help for help.")
            while (line := await self.terminal.read_line("you> ")) not in (None, "/quit"):
                if line.strip():
                    await self.terminal.interruptible(self.turn(line))

    async def turn(self, line: str) -> None:
        """Handle one line. An error is shown and doesn't end the chat."""
        try:
            command, _, rest = line.strip().partition(" ")
            if command.startswith("/"):
                await self.command(command, rest.strip())
            else:
                await self.call(line)
        except (GemelError, OSError, ValueError) as exc:
            self.terminal.show(f"! {exc}")

    # ---------------------------------------------------------------- input

    async def call(self, line: str) -> None:
        """Call the tool that the model chooses; ask for consent unless it is read-only."""
        choice = self.model.choose(line, list(self.tools.values()))
        if choice is None:
            self.terminal.show("! Which tool? /tools shows them.")
            return
        tool = choice.tool
        arguments = await self.terminal.complete_arguments(tool, choice.arguments)
        if arguments is None:
            return
        read_only = tool.annotations is not None and tool.annotations.read_only_hint
        if not read_only and not await self.terminal.confirm(f"Call {tool.name} with {json.dumps(arguments)}?"):
            return
        result = await self.servers.call_tool(tool.name, arguments, on_progress=self.progress, raise_on_error=False)
        self.terminal.show(f"{self.servers.origin(tool.name).server}: {content_to_text(result)}")
        for path in save_contents(result, "saved"):
            self.terminal.show(f"saved {path}")

    async def command(self, name: str, rest: str) -> None:
        """Run a command."""
        if name == "/servers":
            self.show_servers()
        elif name == "/tools":
            for tool in self.tools.values():
                self.show_item(tool.name, self.servers.origin(tool.name).server, tool.description)
        elif name == "/prompts":
            for prompt in await self.servers.list_prompts():
                self.show_item(prompt.name, self.servers.origin(prompt.name, "prompts").server, prompt.description)
        elif name == "/prompt":
            await self.prompt(*shlex.split(rest))
        elif name == "/resources":
            for resource in await self.servers.list_resources():
                self.show_item(resource.uri, resource.name, resource.description)
        elif name == "/read":
            self.terminal.show(content_to_text(await self.servers.read_resource(rest)))
        else:
            self.terminal.show(HELP)

    async def prompt(self, name: str = "", *words: str) -> None:
        """Show the messages of a prompt, which a real host would give to the model."""
        found = next((prompt for prompt in await self.servers.list_prompts() if prompt.name == name), None)
        arguments = arguments_of(words)
        if found is not None:
            arguments = await self.terminal.complete_arguments(found, arguments) or {}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
        self.terminal.show(content_to_text(await self.servers.get_prompt(name, texts)))

    # ---------------------------------------------------------------- output

    def show_servers(self) -> None:
        """Show the state of each server, and why it isn't ready."""
        for name, server in self.servers.servers.items():
            self.terminal.show(f"  {name:12} {server.state}{f': {server.reason}' if server.reason else ''}")

    def show_item(self, name: str, where: str, text: str | None) -> None:
        """Show one line of a list."""
        self.terminal.show(f"  {name:20} {where:10} {(text or '').partition(chr(10))[0]}")

    async def changed(self, change: Changed | ChangesLost, server: str) -> None:
        """Show which tools changed when a server changes its lists, connects late or reconnects."""
        before, after = self.tools, {tool.name: tool for tool in await self.servers.list_tools(cache="refresh")}
        self.tools = after
        news = [f"+{name}" for name in after if name not in before] + [
            f"-{name}" for name in before if name not in after
        ]
        if news:
            self.terminal.show(f"* {server} changed the tools: {' '.join(news)}")

    def log(self, params: LogParams, server: str) -> None:
        """Show a log message of a server."""
        self.terminal.show(f"* {server} says: {params.data}")

    def progress(self, params: ProgressParams) -> None:
        """Show the progress of a call."""
        self.terminal.show(f"  … {params.message or f'{params.progress:g}'}")


def arguments_of(words: Sequence[str]) -> dict[str, Any]:
    """Parse `name=value` words; a value that isn't JSON is text."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is not an argument: write name=value")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


class OnTerminal(logging.Handler):
    """Shows warnings of the library, such as a lost connection, in the terminal."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self.terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """Show a warning."""
        self.terminal.show(f"* {record.getMessage()}")


def main(config: Path) -> None:
    """Run the host."""
    terminal = Terminal(output=sys.stdout)
    logging.getLogger("gemel").addHandler(OnTerminal(terminal))
    try:
        asyncio.run(Host(config, Rules(), terminal).run())
    except StartError as exc:
        sys.exit(f"{exc}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("host.json"))
