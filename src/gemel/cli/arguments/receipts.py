"""The arguments of the command about receipts."""

from __future__ import annotations

from gemel.cli.arguments.command import Command, CommandParser


def _receipts(command: CommandParser) -> None:
    from gemel.receipts.entries import OUTCOMES

    command.add_argument(
        "action",
        choices=("verify", "show"),
        metavar="ACTION",
        help="verify (that no line was changed, removed or moved), or show (the receipts)",
    )
    command.add_argument("file", metavar="FILE", help="the file that was given to Receipts")
    verify = command.add_argument_group("verify")
    verify.add_argument(
        "--key-env",
        action="append",
        default=[],
        metavar="NAME",
        help="an environment variable with the key; may be repeated, if the key was changed",
    )
    verify.add_argument(
        "--key-file", action="append", default=[], metavar="KEYFILE", help="a file with the key; may be repeated"
    )
    verify.add_argument(
        "--head",
        action="append",
        default=[],
        metavar="HASH",
        help="a hash that verify printed before, whose line must still be there; may be repeated",
    )
    show = command.add_argument_group("show")
    show.add_argument("--tool", metavar="PATTERN", help="of tools with such names, such as 'delete_*'")
    show.add_argument("--server", metavar="PATTERN", help="of servers with such names")
    show.add_argument("--client", metavar="PATTERN", help="of clients with such names")
    show.add_argument("--principal", metavar="PATTERN", help="of such principals")
    show.add_argument("--outcome", action="append", choices=OUTCOMES, help="with this outcome; may be repeated")
    show.add_argument("--effect", choices=("allow", "deny", "ask"), help="for which a policy decided this")
    show.add_argument("--since", metavar="TIME", help="since then: 2h, 30m, 7d, or 2026-11-29T12:00:00Z")
    show.add_argument("--until", metavar="TIME", help="before then")
    show.add_argument(
        "--abandoned-after",
        type=float,
        default=600.0,
        metavar="SECONDS",
        help="when a call whose client was asked for input counts as abandoned (default: %(default)g)",
    )
    command.add_argument("--json", action="store_true", help="print JSON: verify one object, show one line each")


COMMANDS = {
    "receipts": Command(
        "verify the receipts of tool calls, or show them",
        _receipts,
        (
            "receipts verify receipts.jsonl --key-env RECEIPTS_KEY",
            "receipts show receipts.jsonl --tool 'delete_*' --since 2h",
            "receipts show receipts.jsonl --outcome unknown --json",
        ),
        "receipts",
    ),
}
