"""The arguments of the commands that use a server: list, call, read, prompt, complete, listen, ping, bench, skills, tasks."""

from __future__ import annotations

import argparse

from gemel.cli.arguments.command import KEY_VALUE, Command, CommandParser
from gemel.cli.arguments.target import ERAS, add_result, add_target, add_timeout, seconds


def _list(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("--json", action="store_true", help="print the lists as JSON")


def _call(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("name", metavar="TOOL")
    _add_arguments(command)
    command.add_argument("--task", action="store_true", help="call it as a task, whose id is printed, and wait for it")
    command.add_argument("--no-wait", action="store_true", help="with --task: end when the server has the task")
    add_result(command)


def _add_arguments(command: CommandParser) -> None:
    command.add_argument(
        "arguments",
        nargs="*",
        metavar=KEY_VALUE,
        help="an argument, converted to the type in the schema of the tool; KEY:=JSON for a JSON value, KEY=@FILE to "
        "read a file, A.B=VALUE for a member of an object, the same KEY again for a list",
    )


def _read(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("name", metavar="URI")
    add_result(command)


def _prompt(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("name", metavar="NAME")
    command.add_argument("arguments", nargs="*", metavar=KEY_VALUE, help="an argument; KEY=@FILE to read a file")
    add_result(command)


def _complete(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("name", metavar="NAME", help="a prompt, or a resource template such as shop://{item}")
    command.add_argument(
        "argument",
        metavar="ARGUMENT",
        help="an argument of the prompt, a variable of the template; ARGUMENT=PREFIX is the same as two words",
    )
    command.add_argument("prefix", nargs="?", default="", metavar="PREFIX", help="what the values begin with")
    command.add_argument(
        "--context",
        action="append",
        default=[],
        metavar=KEY_VALUE,
        help="the value of another argument; may be repeated",
    )
    command.add_argument("--json", action="store_true", help="print the values as JSON")
    add_timeout(command)


def _listen(command: CommandParser) -> None:
    from gemel.schema.notifications import LOGGING_LEVELS

    add_target(command)
    command.add_argument("uris", nargs="*", metavar="URI", help="a resource to watch, besides the lists")
    command.add_argument(
        "--log-level", choices=LOGGING_LEVELS, default="info", help="the lowest level to show (default: %(default)s)"
    )
    command.add_argument("--json", action="store_true", help="print each message as a line of JSON")
    command.set_defaults(json_lines=True)


def _ping(command: CommandParser) -> None:
    add_target(command)
    command.add_argument(
        "--count",
        type=_count,
        default=4,
        metavar="N",
        help="how many requests; 0 for no end but Ctrl-C (default: %(default)s)",
    )
    command.add_argument(
        "--interval",
        type=seconds,
        default=1.0,
        metavar="SECONDS",
        help="the pause between two requests (default: %(default)g)",
    )
    command.add_argument(
        "--timeout",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long to wait for the connection, and for each answer (default: %(default)g)",
    )
    command.add_argument("--json", action="store_true", help="print all times and their summary as JSON")


def _bench(command: CommandParser) -> None:
    add_target(command, eras=False)
    command.add_argument("name", nargs="?", metavar="TOOL", help="the tool to call; without it, pings are sent")
    _add_arguments(command)
    command.add_argument(
        "--era",
        choices=(*ERAS, "both"),
        default="auto",
        help="the protocol era (default: negotiated); both measures one after the other",
    )
    command.add_argument(
        "--concurrency",
        type=_at_least_one,
        default=16,
        metavar="N",
        help="how many callers there are, each with one call under way (default: %(default)s)",
    )
    command.add_argument("--seconds", type=seconds, metavar="SECONDS", help="how long to measure (default: 5)")
    command.add_argument(
        "--calls", type=_at_least_one, metavar="N", help="end after this many calls, or --seconds if that is sooner"
    )
    command.add_argument(
        "--warm-up",
        type=seconds,
        default=0.5,
        metavar="SECONDS",
        help="how long to make calls first that are not measured, 0 for none (default: %(default)g)",
    )
    command.add_argument(
        "--pid", type=_at_least_one, metavar="PID", help="the process of a server on this machine that has a URL"
    )
    command.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="connecting and each call fail after this time"
    )
    command.add_argument("--json", action="store_true", help="print the figures as JSON")


def _skills(command: CommandParser) -> None:
    command.add_argument(
        "action", choices=("list", "get"), metavar="ACTION", help="list, or get (print or save a skill)"
    )
    add_target(command)
    command.add_argument("name", nargs="?", metavar="SKILL", help="for get: the name of the skill, or its URI")
    command.add_argument("path", nargs="?", metavar="FILE", help="for get: a file of the skill (default: SKILL.md)")
    command.add_argument("--save", metavar="DIR", help="for get: save all files of the skill in this folder")
    command.add_argument("--json", action="store_true", help="print the entries as JSON")
    add_timeout(command)


def _tasks(command: CommandParser) -> None:
    actions = ("list", "get", "result", "cancel")
    command.add_argument(
        "action", choices=actions, metavar="ACTION", help="list, get (the state), result (wait for it), or cancel"
    )
    add_target(command)
    command.add_argument("id", nargs="?", metavar="ID", help="the id of the task; none for list")
    add_result(command)


def _count(text: str) -> int:
    count = int(text)
    if count < 0:
        raise argparse.ArgumentTypeError("use a whole number, 0 or more")
    return count


def _at_least_one(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError("use a whole number, 1 or more")
    return count


COMMANDS = {
    "list": Command(
        "list the tools, prompts and resources of a server",
        _list,
        ("list weather.py", "list https://example.com/mcp --json", "list mcp.json:weather", "list package.weather"),
        "list",
    ),
    "call": Command(
        "call a tool",
        _call,
        (
            "call weather.py forecast city=Oslo days=3",
            'call https://example.com/mcp search query:=\'{"word": "tea"}\'',
            'call "npx -y some-server" greet name=Ada --env TOKEN',
            "call https://example.com/mcp report year=2025 --task --no-wait",
        ),
        "call",
    ),
    "read": Command(
        "read a resource",
        _read,
        ("read weather.py weather://oslo/today", "read https://example.com/mcp file:///logo.png > logo.png"),
        "read",
    ),
    "prompt": Command("get the messages of a prompt", _prompt, ("prompt weather.py advice city=Oslo",), "prompt"),
    "complete": Command(
        "get suggestions for an argument of a prompt or a resource template",
        _complete,
        (
            "complete weather.py advice city Os",
            "complete https://example.com/mcp 'weather://{country}/{city}' city --context country=NO",
        ),
        "complete",
    ),
    "listen": Command(
        "show changes, resource updates and log messages of a server",
        _listen,
        ("listen https://example.com/mcp", "listen weather.py weather://oslo/today --json"),
        "listen",
    ),
    "ping": Command(
        "measure how long a server takes to answer",
        _ping,
        ("ping https://example.com/mcp", "ping weather.py --count 1 --json"),
        "ping",
    ),
    "bench": Command(
        "measure calls per second, latencies, CPU time and memory of a server",
        _bench,
        (
            "bench weather.py forecast city=Oslo",
            "bench https://example.com/mcp search query=tea --concurrency 64 --seconds 20",
            "bench weather.py forecast city=Oslo --era both --calls 10000 --json",
            "bench http://127.0.0.1:8000/mcp --pid 4711",
        ),
        "bench",
    ),
    "skills": Command(
        "list the skills of a server, print or save one",
        _skills,
        (
            "skills list https://example.com/mcp",
            "skills get https://example.com/mcp refunds",
            "skills get https://example.com/mcp refunds templates/invoice.md",
            "skills get https://example.com/mcp skill://acme/refunds/SKILL.md --save skills/",
        ),
        "skills",
    ),
    "tasks": Command(
        "list the tasks at a server, show one, wait for its result, or cancel it",
        _tasks,
        (
            "tasks list https://example.com/mcp",
            "tasks get https://example.com/mcp ID --json",
            "tasks result https://example.com/mcp ID --timeout 60",
            "tasks cancel https://example.com/mcp ID",
        ),
        "tasks",
    ),
}
