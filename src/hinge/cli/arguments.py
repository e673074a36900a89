"""The command line: the commands and their arguments. The arguments of a command are declared when it is used."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from importlib import import_module
from typing import Any, Literal, NoReturn, get_args, get_origin

from hinge.errors import StartError, shorten
from hinge.version import __version__

_ERAS = ("auto", "2025", "2026")
#: The options of `server.run("http")` that a command line can give.
_HTTP = (
    "host",
    "port",
    "path",
    "uds",
    "sse_path",
    "allowed_hosts",
    "allowed_origins",
    "trusted_proxies",
    "workers",
    "engine",
    "sessions",
    "access_log",
    "headers",
    "header_bytes",
    "body_wait",
    "requests",
    "retry",
)


_TLS = ("tls_cert", "tls_key")
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line without `hinge`. What follows `--` are arguments for the program that the target starts.

    Raises:
        SystemExit: The command line is wrong, or there was only something to print.
    """
    end = words.index("--") if "--" in words else len(words)
    options = parser().parse_args(words[:end])
    if end < len(words):
        if not hasattr(options, "program_arguments"):
            raise StartError("-- ARGS needs a command that starts a program")
        options.program_arguments = list(words[end + 1 :])
    return options


def parser() -> argparse.ArgumentParser:
    """Return the parser of the whole command line."""
    top = _Parser(prog="hinge", description="The Model Context Protocol: run and call servers.", allow_abbrev=False)
    top.add_argument("--version", action="version", version=f"hinge {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Command)
    for name, (text, declare, module) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, declare=declare)
        command.set_defaults(command=_run_module(module))
    return top


class _Parser(argparse.ArgumentParser):
    """Ends with one line for a wrong command line, which suggests what may have been meant."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and end with exit code 2."""
        from hinge.cli.errors import print_error

        if unknown := re.match(r"argument COMMAND: invalid choice: '(.*?)' ", message):
            message = f"unknown command {shorten(unknown[1])!r}{_suggest(unknown[1], _COMMANDS)}"
        elif unknown := re.match(r"unrecognized arguments: (--[^ =]+)", message):
            message += _suggest(unknown[1], self._option_string_actions)
        print_error(f"{message} (see {self.prog} --help)")
        raise SystemExit(2)


def _suggest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


class _Command(_Parser):
    """The parser of one command: options may stand anywhere, also behind arguments; they can't be abbreviated."""

    def __init__(self, *args: Any, declare: Callable[[Any], None], **options: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(*args, **{**options, "allow_abbrev": False, "formatter_class": formatter})
        self._declare: Callable[[Any], None] | None = declare
        self._intermixing = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]  # it overloads
        """Parse the arguments of the command, options between them included."""
        if self._declare is not None:
            self._declare(self)
            self._declare = None
            lines = [f"  hinge {example}" for example in _EXAMPLES.get(self.prog.rpartition(" ")[2], ())]
            examples = "\n".join(["examples:", *lines]) if lines else None
            self.epilog = "\n\n".join(filter(None, (self.epilog, examples)))
        if self._intermixing:
            return super().parse_known_args(args, namespace)
        self._intermixing = True
        try:
            namespace, unknown = self.parse_known_intermixed_args(args, namespace)
        finally:
            self._intermixing = False
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, unknown


def _run_module(module: str) -> Any:
    def command(options: argparse.Namespace) -> int:
        run: Callable[[argparse.Namespace], int | Coroutine[Any, Any, int]] = import_module(
            f"hinge.cli.commands.{module}"
        ).run
        code = run(options)
        if isinstance(code, int):
            return code
        import asyncio

        return asyncio.run(code)

    return command


def http_options(options: argparse.Namespace, *, http: bool, needs: str) -> dict[str, Any]:
    """Return the given options of HTTP for `server.run("http", …)`.

    Args:
        options: The parsed command line.
        http: Whether the command serves HTTP.
        needs: The option that makes it do so, for the error.

    Raises:
        StartError: One of them is given, and the command doesn't serve HTTP.
    """
    flags = [name for name in (*_HTTP, *_TLS) if getattr(options, name, None) is not None]
    if flags and not http:
        wrong = "no-sessions" if flags[0] == "sessions" else flags[0].replace("_", "-")
        raise StartError(f"--{wrong} needs {needs}")
    return table_options(options, *_HTTP) if http else {}


def table_options(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the values of those options that are given by a flag, or else by the environment variable HINGE_NAME.

    Raises:
        StartError: A variable has a value that the option does not take.
    """
    given: dict[str, Any] = {}
    for name in names:
        if not hasattr(options, name):
            continue
        value = getattr(options, name)
        variable = f"HINGE_{name.upper()}"
        if value is None and os.environ.get(variable):
            value = _parse_variable(variable, os.environ[variable], name)
        if value is not None:
            given[name] = value
    return given


def _parse_variable(variable: str, text: str, name: str) -> Any:
    from hinge.cli.program.options import RunOptions

    kind, choices = _kind(RunOptions, name)
    if kind is bool:
        word = text.strip().lower()
        if word not in _YES and word not in _NO:
            raise StartError(f"{variable}={text} is not possible: use 1 or 0")
        return word in _YES
    if kind is Sequence:
        return [part.strip() for part in text.split(",") if part.strip()]
    if choices and text not in choices:
        raise StartError(f"{variable}={text} is not possible: use {', '.join(choices)}")
    try:
        return kind(text)
    except ValueError:
        raise StartError(f"{variable}={text} is not possible: use a number") from None


# ---------------------------------------------------------------- commands


def _run(command: _Command) -> None:
    command.add_argument(
        "target",
        metavar="FILE[:NAME]",
        help="a Python file or module, and the name of the server in it, or of a function that returns it",
    )
    command.add_argument("--http", action="store_true", help="serve HTTP instead of stdio")
    command.add_argument("--socket", metavar="PATH", help="serve a Unix socket instead of stdio")
    _add_http(command, *_HTTP, *_TLS)
    from hinge.cli.program.options import RunOptions

    _add_options(command, RunOptions, "limit", "log_level")
    command.add_argument(
        "--metrics", action="store_true", help="answer /metrics, in the format of Prometheus; with HTTP"
    )
    command.add_argument("--reload", action="store_true", help="restart when a Python file changes; with HTTP")
    _add_program(command)


def _list(command: _Command) -> None:
    _add_target(command)
    command.add_argument("--json", action="store_true", help="print the lists as JSON")


def _call(command: _Command) -> None:
    _add_target(command)
    command.add_argument("name", metavar="TOOL")
    command.add_argument(
        "arguments",
        nargs="*",
        metavar="KEY=VALUE",
        help="an argument, converted to the type in the schema of the tool; KEY:=JSON for a JSON value, KEY=@FILE to "
        "read a file, A.B=VALUE for a member of an object, the same KEY again for a list",
    )
    _add_result(command)


def _read(command: _Command) -> None:
    _add_target(command)
    command.add_argument("name", metavar="URI")
    _add_result(command)


def _prompt(command: _Command) -> None:
    _add_target(command)
    command.add_argument("name", metavar="NAME")
    command.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="an argument; KEY=@FILE to read a file")
    _add_result(command)


def _proxy(command: _Command) -> None:
    _add_target(command)
    command.add_argument(
        "--to", choices=("stdio", "http"), help="the transport to serve (default: stdio for a URL, otherwise http)"
    )
    _add_http(command, *_HTTP)
    from hinge.server.options import ProxyOptions

    _add_options(command, ProxyOptions, "single_user")


def _record(command: _Command) -> None:
    command.add_argument("file", metavar="FILE", help="the recording")
    _add_target(command, eras=False)
    command.add_argument(
        "--add", action="store_true", help="replay what FILE contains, and add what it does not contain"
    )
    _add_replay(command)


def _replay(command: _Command) -> None:
    command.add_argument("file", metavar="FILE", help="the recording")
    command.add_argument("--repeat", action="store_true", help="answer repeated requests with the last recorded answer")
    _add_replay(command)
    command.set_defaults(target=None)


def _lock(command: _Command) -> None:
    _add_target(command)
    command.add_argument("-o", "--output", default="hinge.lock", metavar="FILE", help="the file (default: %(default)s)")
    command.add_argument(
        "--only", metavar="SECTIONS", help="some of tools, prompts, resources, resourceTemplates (default: all)"
    )


def _diff(command: _Command) -> None:
    command.add_argument("lock", metavar="LOCK", help="a file that `hinge lock` wrote")
    _add_target(command, also=", or another lock file")
    command.add_argument("--json", action="store_true", help="print the changes as JSON")
    command.add_argument(
        "--fail-on",
        choices=("harmless", "text", "may-break", "breaking"),
        default="harmless",
        help="exit with 0 if all changes are less severe (default: %(default)s)",
    )


def _stubs(command: _Command) -> None:
    _add_target(command)
    command.add_argument("--sync", action="store_true", help="for hinge.sync, without async")
    command.add_argument("--name", metavar="CLASS", help="the name of the class (default: made of the server's name)")


def _doctor(command: _Command) -> None:
    from hinge.doctor.hosts import HOSTS

    _add_target(command)
    command.add_argument(
        "--host",
        action="append",
        default=[],
        choices=list(HOSTS),
        help="a host; may be repeated (default: all of them)",
    )
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument(
        "--fail-on",
        choices=("note", "degrades", "breaks", "never"),
        default="breaks",
        help="exit with 3 if something is at least as severe (default: %(default)s)",
    )


def _migrate(command: _Command) -> None:
    command.add_argument("paths", nargs="+", metavar="PATH", help="a Python file, or a folder with Python files")
    command.add_argument("--write", action="store_true", help="change the files; without it, only the diff is shown")


#: Name: help, the function that declares the arguments, the module in `hinge.cli.commands` that runs it.
_COMMANDS: dict[str, tuple[str, Callable[[_Command], None], str]] = {
    "run": ("run the server that a file defines", _run, "run"),
    "list": ("list the tools, prompts and resources of a server", _list, "list"),
    "call": ("call a tool", _call, "call"),
    "read": ("read a resource", _read, "read"),
    "prompt": ("get the messages of a prompt", _prompt, "prompt"),
    "proxy": ("serve a server over another transport, to clients of both eras", _proxy, "proxy"),
    "record": ("proxy a server and record the messages", _record, "replay"),
    "replay": ("replay the server of a recording", _replay, "replay"),
    "lock": ("write the contract of a server to a file, to notice changes", _lock, "lock"),
    "diff": ("show what changed since a contract was written, and what it breaks", _diff, "diff"),
    "doctor": ("show what known hosts can't take of a server", _doctor, "doctor"),
    "stubs": ("print a typed Python module for a server", _stubs, "stubs"),
    "migrate": ("rewrite a program for FastMCP or the official SDK", _migrate, "migrate"),
}


#: Shown by `--help`, each after `hinge`.
_EXAMPLES: dict[str, tuple[str, ...]] = {
    "run": (
        "run weather.py",
        "run weather.py:make_server --http --port 8080",
        "run package.weather --env-file .env",
    ),
    "list": ("list weather.py", "list https://example.com/mcp --json", "list mcp.json:weather"),
    "call": (
        "call weather.py forecast city=Oslo days=3",
        'call https://example.com/mcp search query:=\'{"word": "tea"}\'',
        'call "npx -y some-server" greet name=Ada --env TOKEN',
    ),
    "read": ("read weather.py weather://oslo/today", "read https://example.com/mcp file:///logo.png > logo.png"),
    "prompt": ("prompt weather.py advice city=Oslo",),
    "proxy": ('proxy "npx -y some-server" --to http --port 8000', "proxy https://example.com/mcp --to stdio"),
    "record": ("record weather.jsonl weather.py",),
    "replay": ("replay weather.jsonl",),
    "lock": ("lock weather.py -o weather.lock",),
    "diff": ("diff weather.lock weather.py", "diff weather.lock weather.py --fail-on breaking"),
    "stubs": ("stubs weather.py > weather_client.py",),
}


# ---------------------------------------------------------------- arguments of several commands


def _add_http(command: _Command, *names: str) -> None:
    """Add the flags of an HTTP endpoint."""
    command.epilog = "The options of HTTP may also be set by variables, such as HINGE_PORT=8080.\n"
    from hinge.cli.program.options import RunOptions

    _add_options(command, RunOptions, *names, note="; with HTTP")


def _add_options(command: _Command, declaration: type, *names: str, note: str = "") -> None:
    """Add flags for options that a TypedDict declares. Without a value they are None.

    A flag for a sequence may be given several times; a Literal lists the values; a bool that is on by default gets `--no-`.
    """
    from hinge.options import options_of

    for name in names:
        option = options_of(declaration)[name]
        kind, choices = _kind(declaration, name)
        text = option.meaning.removesuffix(".")
        default = f" (default: {option.default})" if option.default and kind is not bool else ""
        flag, metavar = f"--{name.replace('_', '-')}", name.rpartition("_")[2].upper()
        meaning = f"{text[0].lower()}{text[1:]}{default}{note}".replace("%", "%%")
        if kind is bool and option.default:
            command.add_argument(
                flag.replace("--", "--no-"), dest=name, action="store_false", default=None, help=f"not: {meaning}"
            )
        elif kind is bool:
            command.add_argument(flag, action="store_true", default=None, help=meaning)
        elif choices:
            command.add_argument(flag, choices=choices, help=meaning)
        elif kind is Sequence:
            command.add_argument(flag, action="append", metavar=metavar, help=f"{meaning}; may be repeated")
        else:
            command.add_argument(flag, type=kind, metavar=metavar, help=meaning)


def _kind(declaration: type, name: str) -> tuple[Any, list[str]]:
    """Return how an option of a TypedDict is written: bool, int, float, Sequence or str; and its choices."""
    annotation = declaration.__annotations__[name].__origin__
    kinds = (annotation, *get_args(annotation))
    choices = [value for kind in kinds if get_origin(kind) is Literal for value in get_args(kind)]
    if get_origin(annotation) is Sequence:
        return Sequence, choices
    return next((kind for kind in (bool, int, float) if kind in kinds), str), choices


def _add_result(command: _Command) -> None:
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    command.add_argument("--save", metavar="DIR", help="save images, audio and resources of the result in this folder")
    command.add_argument("--timeout", type=float, default=None, metavar="SECONDS", help="fail after this time")
    command.add_argument("--root", action="append", default=[], metavar="DIR", help="a root to offer to the server")
    command.add_argument(
        "--no-input", action="store_true", help="never prompt: elicitation is not declared to the server"
    )


def _add_replay(command: _Command) -> None:
    command.add_argument("--http", action="store_true", help="serve HTTP instead of stdio")
    _add_http(command, "host", "port", "path")


def _add_target(command: _Command, *, eras: bool = True, also: str = "") -> None:
    what = f"a URL, FILE.py[:NAME], MODULE:NAME, CONFIG.json[:NAME], or a command line in quotes{also}"
    from hinge.client.targets import address_of

    command.add_argument("target", metavar="TARGET", type=address_of, help=what)
    if eras:
        command.add_argument("--era", choices=_ERAS, default="auto", help="the protocol era (default: negotiated)")
    command.add_argument("--header", action="append", default=[], metavar="NAME:VALUE", help="an HTTP header to send")
    from hinge.transports.http.client.options import HttpClientOptions

    _add_options(command, HttpClientOptions, "wire", note="; with a URL")
    _add_program(command)


def _add_program(command: _Command) -> None:
    """Add what the program that a TARGET starts gets."""
    command.epilog = f"{command.epilog or ''}After --, arguments for the program."
    command.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME[=VALUE]",
        help="an environment variable for the program; may be repeated",
    )
    command.add_argument(
        "--env-file",
        action="append",
        default=[],
        metavar="FILE",
        help="a file with a line NAME=VALUE for each variable",
    )
    command.add_argument("--cwd", metavar="DIR", help="the working directory of the program")
    command.set_defaults(program_arguments=[])
