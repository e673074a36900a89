"""The arguments of the commands about what a server offers: lock, diff, doctor, policy, stubs."""

from __future__ import annotations

from gemel.cli.arguments.command import Command, CommandParser
from gemel.cli.arguments.target import add_target, add_timeout


def _lock(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("-o", "--output", default="gemel.lock", metavar="FILE", help="the file (default: %(default)s)")
    command.add_argument(
        "--only", metavar="SECTIONS", help="some of tools, prompts, resources, resourceTemplates (default: all)"
    )


def _diff(command: CommandParser) -> None:
    command.add_argument("lock", metavar="LOCK", help="a file that `gemel lock` wrote")
    add_target(command, also=", or another lock file")
    command.add_argument("--json", action="store_true", help="print the changes as JSON")
    command.add_argument(
        "--fail-on",
        choices=("harmless", "text", "may-break", "breaking"),
        default="harmless",
        help="exit with 0 if all changes are less severe (default: %(default)s)",
    )


def _doctor(command: CommandParser) -> None:
    from gemel.doctor.hosts import HOSTS

    add_target(command)
    command.add_argument(
        "--host",
        action="append",
        default=[],
        choices=list(HOSTS),
        metavar="HOST",
        help=f"{', '.join(HOSTS)}; may be repeated (default: all, those on this machine first)",
    )
    command.add_argument("--json", action="store_true", help="print the findings as JSON")
    command.add_argument(
        "--fail-on",
        choices=("note", "degrades", "breaks", "never"),
        default="breaks",
        help="exit with 3 if something is at least as severe (default: %(default)s)",
    )


def _policy(command: CommandParser) -> None:
    command.add_argument("action", choices=("check",), metavar="ACTION", help="check: print what happens to each tool")
    command.add_argument("policy", metavar="POLICY", help="a TOML file with the rules")
    add_target(command)
    command.add_argument("--principal", metavar="NAME", help="the caller that is authenticated (default: nobody)")
    command.add_argument("--scopes", default="", metavar="SCOPES", help="the scopes of the caller, separated by spaces")
    command.add_argument(
        "--server",
        metavar="NAME",
        help="the name of the server in the gateway or client group (default: its tools are those of the server with the policy)",
    )
    command.add_argument("--trust-hints", action="store_true", help="trust what the servers say about their tools")
    command.add_argument("--json", action="store_true", help="print the rulings as JSON")
    add_timeout(command)


def _stubs(command: CommandParser) -> None:
    add_target(command)
    command.add_argument("--sync", action="store_true", help="for gemel.sync, without async")
    command.add_argument("--name", metavar="CLASS", help="the name of the class (default: made of the server's name)")


COMMANDS = {
    "lock": Command(
        "write the contract of a server to a file, to notice changes",
        _lock,
        ("lock weather.py -o weather.lock",),
        "contracts.lock",
    ),
    "diff": Command(
        "show what changed since a contract was written, and what it breaks",
        _diff,
        ("diff weather.lock weather.py", "diff weather.lock weather.py --fail-on breaking"),
        "contracts.diff",
    ),
    "doctor": Command(
        "show what known hosts don't support in a server",
        _doctor,
        ("doctor weather.py", "doctor https://example.com/mcp --host gemini-cli --fail-on degrades"),
        "contracts.doctor",
    ),
    "policy": Command(
        "show which tools of a server a policy allows, denies or asks about",
        _policy,
        (
            "policy check policy.toml weather.py",
            "policy check policy.toml mcp.json --principal anna --scopes 'notes:write'",
            "policy check policy.toml https://example.com/mcp --server github --json",
        ),
        "policy",
    ),
    "stubs": Command(
        "print a typed Python module for a server", _stubs, ("stubs weather.py > weather_client.py",), "contracts.stubs"
    ),
}
