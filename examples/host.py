"""A small host: a conversation on the terminal, with the tools of several servers. `python examples/host.py [CONFIG]`.

It needs `hinge run examples/host_servers.py:cafe --http` in another terminal, and works without it. There is no language
model here: `Rules` stands where one would, and calls the tool that is named, as in `forecast city=Oslo`.
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

from hinge import (
    Changed,
    ChangesLost,
    ClientGroup,
    CreateMessageParams,
    HingeError,
    LogParams,
    ProgressParams,
    StartError,
    Terminal,
    Tool,
    content_to_text,
    save_contents,
)

HELP = """\
  TOOL name=value …         call a tool; what is missing is asked for
  /servers                  which servers there are, and how they are
  /tools                    what they offer together
  /prompts                  the same for prompts
  /prompt NAME name=value … get the messages of a prompt
  /resources                what can be read
  /read URI                 read it
  /quit                     leave; so do Ctrl-C and Ctrl-D"""


class Choice(NamedTuple):
    """What a model decides: which tool, with which arguments."""

    tool: Tool
    arguments: dict[str, Any]


class Model(Protocol):
    """What this host needs of a model. Put yours here."""

    def choose(self, said: str, tools: Sequence[Tool]) -> Choice | None:
        """The tool that serves what the user said, if one does."""
        ...

    async def answer(self, request: CreateMessageParams) -> str:
        """The answer to a question that a server has."""
        ...


class Rules:
    """No model at all: a tool is called by its name, and servers get the same answer every time."""

    def choose(self, said: str, tools: Sequence[Tool]) -> Choice | None:
        """The tool of that name."""
        name, *words = shlex.split(said)
        tool = next((tool for tool in tools if tool.name == name), None)
        return None if tool is None else Choice(tool, arguments_of(words))

    async def answer(self, request: CreateMessageParams) -> str:
        """Always the same book."""
        return f"“The Hound”, since you said: {request.messages[-1].text}"


class Host:
    """Servers, a model, and whoever sits at the terminal."""

    def __init__(self, config: Path, model: Model, terminal: Terminal) -> None:
        self.model = model
        self.terminal = terminal
        self.tools: dict[str, Tool] = {}
        answers = {**terminal.callbacks, "on_sample": terminal.sample_with(model.answer)}
        self.servers = ClientGroup.from_config(config, on_change=self.changed, on_log=self.log, **answers)

    async def run(self) -> None:
        """Talk until the user leaves."""
        async with self.servers:
            self.tools = {tool.name: tool for tool in await self.servers.list_tools()}
            self.show_servers()
            self.terminal.show("Say /help for help.")
            while (line := await self.terminal.read_line("you> ")) not in (None, "/quit"):
                if line.strip():
                    await self.terminal.interruptible(self.turn(line))

    async def turn(self, line: str) -> None:
        """One thing that the user said. Whatever fails, the conversation goes on."""
        try:
            command, _, rest = line.strip().partition(" ")
            if command.startswith("/"):
                await self.command(command, rest.strip())
            else:
                await self.call(line)
        except (HingeError, OSError, ValueError) as exc:
            self.terminal.show(f"! {exc}")

    # ---------------------------------------------------------------- what the user can say

    async def call(self, line: str) -> None:
        """Call the tool that the model chooses, with the user's consent if it may change something."""
        choice = self.model.choose(line, list(self.tools.values()))
        if choice is None:
            self.terminal.show("! Which tool? /tools shows them.")
            return
        tool = choice.tool
        arguments = await self.terminal.complete_arguments(tool, choice.arguments)
        if arguments is None:
            return
        harmless = tool.annotations is not None and tool.annotations.read_only_hint
        if not harmless and not await self.terminal.confirm(f"Call {tool.name} with {json.dumps(arguments)}?"):
            return
        result = await self.servers.call_tool(tool.name, arguments, on_progress=self.progress, raise_on_error=False)
        self.terminal.show(f"{self.servers.origin(tool.name).server}: {content_to_text(result)}")
        for path in save_contents(result, "saved"):
            self.terminal.show(f"saved {path}")

    async def command(self, name: str, rest: str) -> None:
        """One of the commands."""
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
        """Show the messages of a prompt; a model would be given them."""
        found = next((prompt for prompt in await self.servers.list_prompts() if prompt.name == name), None)
        arguments = arguments_of(words)
        if found is not None:
            arguments = await self.terminal.complete_arguments(found, arguments) or {}
        texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in arguments.items()}
        self.terminal.show(content_to_text(await self.servers.get_prompt(name, texts)))

    # ---------------------------------------------------------------- what the user sees

    def show_servers(self) -> None:
        """How each server is, and why it isn't ready."""
        for name, server in self.servers.servers.items():
            self.terminal.show(f"  {name:12} {server.state}{f': {server.reason}' if server.reason else ''}")

    def show_item(self, name: str, where: str, text: str | None) -> None:
        """One line of a list."""
        self.terminal.show(f"  {name:20} {where:10} {(text or '').partition(chr(10))[0]}")

    async def changed(self, change: Changed | ChangesLost, server: str) -> None:
        """A server changed what it offers, came late or came back: say what is new, also in the middle of a line."""
        before, after = self.tools, {tool.name: tool for tool in await self.servers.list_tools(cache="refresh")}
        self.tools = after
        news = [f"+{name}" for name in after if name not in before] + [
            f"-{name}" for name in before if name not in after
        ]
        if news:
            self.terminal.show(f"* {server} changed the tools: {' '.join(news)}")

    def log(self, params: LogParams, server: str) -> None:
        """A server's own log."""
        self.terminal.show(f"* {server} says: {params.data}")

    def progress(self, params: ProgressParams) -> None:
        """How far a call is."""
        self.terminal.show(f"  … {params.message or f'{params.progress:g}'}")


def arguments_of(words: Sequence[str]) -> dict[str, Any]:
    """`name=value` words: what reads as JSON is JSON, all else is text."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise ValueError(f"{word!r} is no argument: write name=value")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = text
    return found


class OnTerminal(logging.Handler):
    """Warnings of the library, such as a server that was lost, go to the terminal like all else."""

    def __init__(self, terminal: Terminal) -> None:
        super().__init__(logging.WARNING)
        self.terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        """One warning."""
        self.terminal.show(f"* {record.getMessage()}")


def main(config: Path) -> None:
    """Run the host."""
    terminal = Terminal(output=sys.stdout)
    logging.getLogger("hinge").addHandler(OnTerminal(terminal))
    try:
        asyncio.run(Host(config, Rules(), terminal).run())
    except StartError as exc:
        sys.exit(f"{exc}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("host.json"))
