"""The command line: which commands there are and what they take. Loads none of them."""

from __future__ import annotations

import argparse
from importlib import import_module, metadata
from typing import Any

_ERAS = ("auto", "2025", "2026")


def parser() -> argparse.ArgumentParser:
    """The whole command line of `hinge`."""
    top = argparse.ArgumentParser(prog="hinge", description="The Model Context Protocol: run and call servers.")
    top.add_argument("--version", action="version", version=f"hinge {metadata.version('hinge')}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Command)
    _run(commands)
    _list(commands)
    _call(commands)
    _read(commands)
    _prompt(commands)
    _bridge(commands)
    _record(commands)
    _replay(commands)
    _lock(commands)
    _diff(commands)
    _stubs(commands)
    return top


class _Command(argparse.ArgumentParser):
    """A command whose options may stand anywhere: also between its arguments, and behind them. Their names stand whole."""

    _mixing = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "allow_abbrev": False})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # it overloads
        """What argparse asks of a command, which it takes for one whose options come first."""
        if self._mixing:
            return super().parse_known_args(args, namespace)
        self._mixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._mixing = False


def _lazily(module: str) -> Any:
    def command(options: argparse.Namespace) -> int:
        code: int = import_module(module).run(options)
        return code

    return command


def _run(commands: Any) -> None:
    found = commands.add_parser("run", help="run the server that a file defines")
    found.add_argument(
        "target", metavar="FILE[:NAME]", help="a Python file or module, and the name of the server in it"
    )
    found.add_argument("--http", action="store_true", help="serve over HTTP instead of stdio")
    found.add_argument("--socket", metavar="PATH", help="serve on a Unix socket instead of stdio")
    _address(found)
    found.add_argument("--workers", type=int, help="processes that serve together (with --http)")
    found.add_argument("--reload", action="store_true", help="start again when a Python file changes (with --http)")
    found.set_defaults(command=_lazily("hinge.cli.run"))


def _list(commands: Any) -> None:
    found = commands.add_parser("list", help="show what a server offers")
    _target(found)
    found.add_argument("--json", action="store_true", help="print everything as JSON")
    found.set_defaults(command=_lazily("hinge.cli.list"))


def _call(commands: Any) -> None:
    found = commands.add_parser("call", help="call a tool")
    _target(found)
    found.add_argument("name", metavar="TOOL")
    found.add_argument(
        "arguments",
        nargs="*",
        metavar="KEY=VALUE",
        help="an argument, read by the type that the tool declares: KEY:=JSON for JSON as it stands, KEY=@FILE from a "
        "file, A.B=VALUE for a member of an object, a KEY twice for a list",
    )
    _result(found)
    found.set_defaults(command=_lazily("hinge.cli.call"))


def _read(commands: Any) -> None:
    found = commands.add_parser("read", help="read a resource")
    _target(found)
    found.add_argument("name", metavar="URI")
    _result(found)
    found.set_defaults(command=_lazily("hinge.cli.read"))


def _prompt(commands: Any) -> None:
    found = commands.add_parser("prompt", help="get the messages of a prompt")
    _target(found)
    found.add_argument("name", metavar="NAME")
    found.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="an argument; KEY=@FILE from a file")
    _result(found)
    found.set_defaults(command=_lazily("hinge.cli.prompt"))


def _result(found: argparse.ArgumentParser) -> None:
    found.add_argument("--json", action="store_true", help="print the whole result as JSON")
    found.add_argument("--save", metavar="DIR", help="write pictures, sounds and resources of the result there")
    found.add_argument("--timeout", type=float, default=None, metavar="SECONDS", help="give up after this long")
    found.add_argument("--root", action="append", default=[], metavar="DIR", help="a folder that the server may know")
    found.add_argument(
        "--no-input", action="store_true", help="ask nothing, also on a terminal: the server is told that it can't ask"
    )


def _bridge(commands: Any) -> None:
    found = commands.add_parser("bridge", help="offer a server on another transport, to clients of both eras")
    _target(found)
    found.add_argument(
        "--to", choices=("stdio", "http"), help="where to offer it (default: stdio for a URL, else http)"
    )
    _address(found)
    found.add_argument("--sse-path", metavar="PATH", help="also offer HTTP+SSE, the first revision's transport, here")
    found.add_argument(
        "--env", action="append", default=[], metavar="NAME[=VALUE]", help="an environment variable for the command"
    )
    found.add_argument(
        "--single-user",
        action="store_true",
        help="all callers are one person: questions may reach any call of theirs",
    )
    found.set_defaults(command=_lazily("hinge.cli.bridge"))


def _record(commands: Any) -> None:
    found = commands.add_parser("record", help="stand between a client and a server, and record what they say")
    found.add_argument("file", metavar="FILE", help="the recording")
    _target(found, eras=False)
    found.add_argument("--add", action="store_true", help="answer from the recording what is in it, and add the rest")
    _door(found)
    found.set_defaults(command=_lazily("hinge.cli.replay"))


def _replay(commands: Any) -> None:
    found = commands.add_parser("replay", help="play the server of a recording")
    found.add_argument("file", metavar="FILE", help="the recording")
    found.add_argument("--repeat", action="store_true", help="answer what is asked again as the last time")
    _door(found)
    found.set_defaults(command=_lazily("hinge.cli.replay"), target=None)


def _lock(commands: Any) -> None:
    found = commands.add_parser("lock", help="write down what a server offers, to notice when it changes")
    _target(found)
    found.add_argument("-o", "--output", default="hinge.lock", metavar="FILE", help="the lock (default: %(default)s)")
    found.add_argument("--only", metavar="WHAT", help="tools, prompts, resources, resourceTemplates: some of them")
    found.set_defaults(command=_lazily("hinge.cli.lock"))


def _diff(commands: Any) -> None:
    found = commands.add_parser("diff", help="tell what changed since a lock was written, and what that breaks")
    found.add_argument("lock", metavar="LOCK", help="a file that `hinge lock` wrote")
    _target(found, also=", or another lock")
    found.add_argument("--json", action="store_true", help="print the changes as JSON")
    found.add_argument(
        "--fail-on",
        choices=("harmless", "text", "may-break", "breaking"),
        default="harmless",
        help="lighter changes than these end with exit code 0 (default: %(default)s)",
    )
    found.set_defaults(command=_lazily("hinge.cli.diff"))


def _stubs(commands: Any) -> None:
    found = commands.add_parser("stubs", help="print a typed Python module for a server")
    _target(found)
    found.add_argument("--sync", action="store_true", help="for hinge.sync: without async")
    found.add_argument("--name", metavar="CLASS", help="what the class is called (default: after the server)")
    found.set_defaults(command=_lazily("hinge.cli.stubs"))


def _address(found: argparse.ArgumentParser) -> None:
    found.add_argument("--host", help="address to bind, for HTTP (default: 127.0.0.1)")
    found.add_argument("--port", type=int, help="port to bind, for HTTP (default: 8000)")
    found.add_argument("--path", help="path of the endpoint, for HTTP (default: /mcp)")


def _door(found: argparse.ArgumentParser) -> None:
    found.add_argument("--http", action="store_true", help="serve over HTTP instead of stdio")
    _address(found)


def _target(found: argparse.ArgumentParser, *, eras: bool = True, also: str = "") -> None:
    what = f"a URL, FILE.py[:NAME], CONFIG.json[:NAME], or a command line in quotes{also}"
    found.add_argument("target", metavar="TARGET", help=what)
    if eras:
        found.add_argument("--era", choices=_ERAS, default="auto", help="the protocol era (default: found out)")
    found.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="an HTTP header to send")
