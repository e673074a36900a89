"""The arguments of the commands that serve: run, dev, proxy, record, replay."""

from __future__ import annotations

from gemel.cli.arguments.command import Command, CommandParser
from gemel.cli.arguments.options import HTTP, TLS, add_http, add_options
from gemel.cli.arguments.target import ERAS, add_code, add_module, add_program, add_target


def _run(command: CommandParser) -> None:
    command.add_argument(
        "target",
        metavar="FILE[:NAME]",
        help="a Python file or module, and the name of the server in it, or of a function that returns it",
    )
    add_module(command)
    command.add_argument("--http", action="store_true", help="serve HTTP instead of stdio")
    command.add_argument("--socket", metavar="PATH", help="serve a Unix socket instead of stdio")
    add_code(command, "list a few tools in place of all: one finds the others, one runs scripts that call them")
    add_http(command, *HTTP, *TLS)
    from gemel.cli.program.options import RunOptions

    add_options(command, RunOptions, "limit", "log_level", "metrics_token")
    command.add_argument(
        "--metrics", action="store_true", help="answer /metrics, in the format of Prometheus; with HTTP"
    )
    command.add_argument("--reload", action="store_true", help="restart when a Python file changes; with HTTP")
    add_program(command)


def _dev(command: CommandParser) -> None:
    add_target(command, eras=False, limits=False)
    command.add_argument(
        "--era", choices=ERAS, default="auto", help="connect in this protocol era only (default: in both)"
    )
    command.add_argument("--host", default="127.0.0.1", metavar="HOST", help="the address of the page")
    command.add_argument(
        "--port",
        type=int,
        default=None,
        metavar="PORT",
        help="the port of the page (default: 6274, or the next free one)",
    )
    command.add_argument("--no-open", action="store_true", help="don't open the page in the browser")
    command.add_argument("--no-reload", action="store_true", help="don't start the program again when a file changes")


def _proxy(command: CommandParser) -> None:
    add_target(command, also="; CONFIG.json without a name is all servers in it, each with its name as prefix")
    command.add_argument(
        "--to", choices=("stdio", "http"), help="the transport to serve (default: stdio for a URL, otherwise http)"
    )
    add_code(command, "list a few tools in place of all: one finds the others, one runs scripts that call them")
    command.add_argument(
        "--policy", metavar="FILE", help="a TOML file with rules that allow, deny or ask about calls of tools"
    )
    command.add_argument(
        "--trust-hints",
        action="append",
        default=[],
        metavar="NAME",
        help="believe what this server says about its tools (a glob; repeat it): for --policy, and for query_code of --code",
    )
    command.add_argument("--receipts", metavar="FILE", help="write a line to this file for each tool call that ended")
    command.add_argument(
        "--receipts-key-env", metavar="NAME", help="an environment variable with the key of the receipts"
    )
    add_http(command, *HTTP)
    from gemel.server.options import ProxyOptions

    add_options(command, ProxyOptions, "shared", "single_user", "strict", "backend")


def _record(command: CommandParser) -> None:
    command.add_argument("file", metavar="FILE", help="the recording")
    add_target(command, eras=False)
    command.add_argument(
        "--add", action="store_true", help="replay what FILE contains, and add what it does not contain"
    )
    _add_replay(command)


def _replay(command: CommandParser) -> None:
    command.add_argument("file", metavar="FILE", help="the recording")
    command.add_argument("--repeat", action="store_true", help="answer repeated requests with the last recorded answer")
    _add_replay(command)
    command.set_defaults(target=None)


def _add_replay(command: CommandParser) -> None:
    command.add_argument("--http", action="store_true", help="serve HTTP instead of stdio")
    add_http(command, "host", "port", "path")


COMMANDS = {
    "run": Command(
        "run the server that a file defines",
        _run,
        (
            "run weather.py",
            "run weather.py:make_server --http --port 8080",
            "run -m package.weather --env-file .env",
        ),
        "run",
    ),
    "dev": Command(
        "look at a server, try it and debug it, in the browser",
        _dev,
        ("dev weather.py", "dev https://example.com/mcp", "dev 'npx -y some-server' --era 2025 --no-open"),
        "dev",
    ),
    "proxy": Command(
        "serve a server over another transport, to clients of both eras",
        _proxy,
        (
            'proxy "npx -y some-server" --to http --port 8000',
            "proxy https://example.com/mcp --to stdio",
            "proxy mcp.json --to stdio --code",
            "proxy mcp.json --to stdio --policy policy.toml --receipts receipts.jsonl",
        ),
        "proxy",
    ),
    "record": Command(
        "proxy a server and record the messages",
        _record,
        ("record weather.jsonl weather.py",),
        "replay",
    ),
    "replay": Command("replay the server of a recording", _replay, ("replay weather.jsonl",), "replay"),
}
