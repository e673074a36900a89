"""`gemel install` and `gemel uninstall`: change the configuration of hosts, after showing the difference."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gemel.cli.connect import is_python
from gemel.cli.errors import print_error
from gemel.cli.network import parse_header
from gemel.cli.program.environment import referenced_environment, refuse_program_options, working_directory
from gemel.cli.program.load import load
from gemel.cli.program.own_program import own_program
from gemel.client.targets import command_line, is_address
from gemel.client.terminal.display import is_styled, is_terminal, write
from gemel.errors import StartError
from gemel.install import (
    HOSTS,
    SHORT_NAMES,
    Change,
    Host,
    Launch,
    as_name,
    check_name,
    entry_for,
    foreign_command,
    found_hosts,
    name_of,
    names_that_run,
    own_command,
    plan_install,
    plan_uninstall,
)
from gemel.visible import escape_line

#: The exit code when nothing was changed because nobody confirmed it, and of a command line without a host.
EXIT_CODE = 3
USAGE = 2

_COLOURS = {"+": "32", "-": "31", "@": "36"}


def run(options: argparse.Namespace) -> int:
    """Show and make the change for each host."""
    names = list(dict.fromkeys(SHORT_NAMES.get(name, name) for name in options.host)) or _ask_for_hosts()
    if names is None:
        return USAGE
    if not names:
        write(sys.stderr, "gemel: nothing is changed\n")
        return EXIT_CODE
    hosts = [HOSTS[name] for name in names]
    project = Path.cwd() if options.project else None
    paths = [host.path(sys.platform, os.environ, project=project) for host in hosts]
    codes = [0]
    if hasattr(options, "target"):
        launch = _launch(options)
        name = _name(options)
        for host, path in zip(hosts, paths, strict=True):
            entry = entry_for(host, launch, os.environ)
            change = plan_install(host, path, name, entry.value, force=options.force)
            if options.always_load and not host.always_load:
                write(sys.stderr, f"gemel: --always-load has no effect: {host.title} has no such setting\n")
            codes.append(_carry_out(change, host, path, options.yes, _warnings(host, entry.literals, options)))
    else:
        for host, path in zip(hosts, paths, strict=True):
            change = plan_uninstall(host, path, _installed_name(host, path, options.name), force=options.force)
            codes.append(_carry_out(change, host, path, options.yes, ""))
    return max(codes)


def _ask_for_hosts() -> list[str] | None:
    """Return the hosts that the user names, of those on this machine; None if nobody can be asked, after a line that says so."""
    found = found_hosts(sys.platform, os.environ)
    asks = is_terminal(sys.stdin) and is_terminal(sys.stdout)
    if not found:
        print_error(f"--host is missing, and no known host is on this machine: it takes {', '.join(HOSTS)}")
        return None
    rows = [(name, HOSTS[name].title, str(HOSTS[name].path(sys.platform, os.environ))) for name in found]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = (f"  {name:{widths[0]}}  {title:{widths[1]}}  {escape_line(path)}\n" for name, title, path in rows)
    write(sys.stdout if asks else sys.stderr, f"Hosts on this machine:\n{''.join(lines)}")
    if not asks:
        print_error(f"--host is missing: add one of them, such as --host {found[0]}")
        return None
    while True:
        try:
            answer = input("Which of them (names, separated by spaces; Enter for none)? ")
        except EOFError:
            return []
        names = [SHORT_NAMES.get(name, name) for name in answer.replace(",", " ").split() if name != "none"]
        unknown = [name for name in names if name not in HOSTS]
        if not unknown:
            return list(dict.fromkeys(names))
        write(sys.stdout, f"No such host: {escape_line(', '.join(unknown))}\n")


def _launch(options: argparse.Namespace) -> Launch:
    """What the TARGET is. Raises StartError."""
    if options.target.startswith(("http://", "https://")):
        refuse_program_options(options)
        _refuse_code(options)
        headers = dict(map(parse_header, options.header))
        return Launch(url=options.target, headers=headers, always_load=options.always_load)
    if options.header:
        raise StartError("--header needs a URL as the target")
    if is_address(options.target):
        raise StartError("Hosts take programs and URLs, no sockets")
    env, arguments = referenced_environment(options), options.program_arguments
    cwd = working_directory(options.cwd) if options.cwd is not None else None
    if _is_python(options):
        code = {None: [], "code": ["--code"], "search": ["--code=search"]}[options.code]
        program = own_program()
        words = own_command(options.target, arguments, module=options.module, cwd=cwd, program=program, options=code)
        return Launch(words, env, always_load=options.always_load or bool(code))
    _refuse_code(options)
    words = foreign_command([*command_line(options.target), *arguments])
    return Launch(words, env, cwd, always_load=options.always_load)


def _refuse_code(options: argparse.Namespace) -> None:
    if options.code is not None:
        raise StartError("--code needs a Python file or module as the target; --always-load goes with each")


def _is_python(options: argparse.Namespace) -> bool:
    """Whether it is a Python file, whose path may contain blanks, or a module."""
    file, dot, name = options.target.partition(".py")
    return is_python(options) or (bool(dot) and name[:1] in ("", ":") and os.path.exists(f"{file}.py"))


def _name(options: argparse.Namespace) -> str:
    if options.name is not None:
        return check_name(options.name)
    if not _is_python(options):
        raise StartError("--name is missing: a URL or a command line needs a name in the configuration")
    file = name_of(options.target)
    try:
        with _variables(options):
            server = load(options.target, is_module=options.module)
    except (StartError, SystemExit) as exc:
        write(sys.stderr, f"gemel: named after the file, since it can't be loaded here: {escape_line(str(exc))}\n")
        return file
    return check_name(as_name(server.name) or file)


@contextmanager
def _variables(options: argparse.Namespace) -> Iterator[None]:
    """While a file is loaded: the variables that its process is going to have."""
    before = os.environ.copy()
    given = {name: value for name, value in referenced_environment(options).items() if not value.startswith("${")}
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]


def _installed_name(host: Host, path: Path, name: str) -> str:
    """Return the name of the entry that is meant by its name, or by the file that it runs."""
    place, dot, _ = name.partition(".py")
    if not dot:
        return name_of(name) if "." in name else name  # of a module; no name of an entry has a dot
    names = names_that_run(host, path, os.path.abspath(f"{place}.py"))
    if len(names) > 1:
        raise StartError(f"{path} has several servers that run {place}.py: name one of {', '.join(names)}")
    return names[0] if names else name_of(name)


def _warnings(host: Host, literals: dict[str, str], options: argparse.Namespace) -> str:
    if not literals:
        return ""
    text = f"{', '.join(literals)}: written as plain text into this file"
    if options.project:
        text += ", which others may get with the project"
    can_refer = host.variable or host.variables
    return f"{text}; {'--env NAME without a value refers to the variable' if can_refer else f'{host.title} needs that'}"


def _carry_out(change: Change, host: Host, path: Path, yes: bool, warning: str) -> int:
    """Show a change, ask, and make it. Returns the exit code."""
    if change.is_empty:
        write(sys.stdout, f"{path}: nothing to change\n")
        return 0
    _print_diff(change.diff)
    if warning:
        write(sys.stderr, f"gemel: {warning}\n")
    if not yes and not _confirm(path):
        write(sys.stderr, "gemel: nothing is changed; --yes changes it without asking\n")
        return EXIT_CODE
    backup = change.apply()
    kept = f"; as it was: {backup}" if backup is not None else ""
    write(sys.stdout, f"{path}: {'written' if change.after is not None else 'deleted'}{kept}\n")
    write(sys.stdout, f"Restart {host.title} if it is running.\n")
    return 0


def _confirm(path: Path) -> bool:
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout):
        return False
    try:
        return input(f"Change {escape_line(str(path))}? [y/N] ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _print_diff(diff: str) -> None:
    styled = is_styled(sys.stdout)
    for line in diff.splitlines():
        colour = _COLOURS.get(line[:1], "") if styled else ""
        text = escape_line(line.expandtabs(4))
        write(sys.stdout, f"\x1b[{colour}m{text}\x1b[0m\n" if colour else f"{text}\n")
