"""Command lines as each system reads them, and the programs that they name.

On Windows a program is found by the extensions in PATHEXT, as the shell finds `npx.cmd`. Windows runs such batch files with
cmd.exe, which interprets characters in arguments whatever the quotes (CVE-2024-24576, "BatBadBut"): these are refused.
"""

from __future__ import annotations

import ntpath
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

from gemel.errors import DefinitionError, shorten

#: What cmd.exe interprets in an argument: operators, escapes, variables, quotes, and ends of lines.
_INTERPRETED = re.compile(r'["%!^&|<>()\r\n\0]')
#: What can't stand in the path of a batch file, even between quotes.
_INTERPRETED_IN_PATH = re.compile(r'["%!\r\n\0]')
#: Extensions of programs when PATHEXT is not set.
_EXTENSIONS = ".COM;.EXE;.BAT;.CMD"
_BACKSLASHES_AND_QUOTE = re.compile(r'(\\*)"')


def split_command_line(text: str) -> list[str]:
    """Split a command line into words, as the system does: like a POSIX shell, or like a Windows program.

    Raises:
        ValueError: A quote is not closed.
    """
    return _split_on_windows(text) if sys.platform == "win32" else shlex.split(text)


def _split_on_windows(text: str) -> list[str]:
    r"""Split like `CommandLineToArgvW`: only double quotes quote; backslashes escape only before a quote: `\"` is a quote."""
    words: list[str] = []
    at, end = 0, len(text)
    while True:
        while at < end and text[at] in " \t\r\n":
            at += 1
        if at == end:
            return words
        word, quoted = "", False
        while at < end and (quoted or text[at] not in " \t\r\n"):
            found = _BACKSLASHES_AND_QUOTE.match(text, at)
            if found is None:
                word += text[at]
                at += 1
                continue
            word += "\\" * (len(found[1]) // 2)
            at = found.end()
            if len(found[1]) % 2:
                word += '"'
            elif quoted and text[at : at + 1] == '"':  # two quotes inside quotes are one
                word += '"'
                at += 1
            else:
                quoted = not quoted
        if quoted:
            raise ValueError("No closing quotation")
        words.append(word)


def windows_command_line(
    command: Sequence[str], environment: Mapping[str, str], *, is_file: Callable[[str], bool] = os.path.isfile
) -> str:
    """Make the command line with which Windows starts a program, or cmd.exe if it is a batch file.

    Args:
        command: The program and its arguments.
        environment: The variables of the new process; its PATH and PATHEXT are searched, not the working directory.
        is_file: Tells whether a path is a file.

    Raises:
        DefinitionError: The program is a batch file, and an argument has a character that cmd.exe interprets.
    """
    variables = {name.upper(): value for name, value in environment.items()}
    program = _find_program(command[0], variables, is_file)
    # Windows ignores dots and blanks at the end of a file's name.
    if not program.rstrip(". ").lower().endswith((".bat", ".cmd")):
        return subprocess.list2cmdline([program, *command[1:]])
    check_batch_command(program, command)
    shell = ntpath.join(variables.get("SYSTEMROOT", r"C:\Windows"), "System32", "cmd.exe")
    # Without quotes, `,`, `;` and `=` would separate arguments. A backslash before the last quote would escape it for the
    # program that gets the arguments.
    words = " ".join(f'"{word}{_trailing_backslashes(word)}"' for word in (program, *command[1:]))
    return f'"{shell}" /d /e:on /v:off /s /c "{words}"'


def check_batch_command(program: str, command: Sequence[str]) -> None:
    """Check a command that cmd.exe is going to read.

    Args:
        program: The path of the batch file.
        command: Its name as it was written, and its arguments.

    Raises:
        DefinitionError: The path or an argument has a character that cmd.exe interprets.
    """
    for word, refused in ((program, _INTERPRETED_IN_PATH), *((word, _INTERPRETED) for word in command[1:])):
        if found := refused.search(word):
            raise DefinitionError(
                f"{command[0]!r} is a batch file ({shorten(program)}), and cmd.exe would interpret {found[0]!r} in "
                f"{shorten(word)!r}: start the program behind the batch file itself, such as node.exe with its script."
            )


def _trailing_backslashes(word: str) -> str:
    return word[len(word.rstrip("\\")) :]


def _find_program(name: str, variables: Mapping[str, str], is_file: Callable[[str], bool]) -> str:
    """The path of a program, with the extension that PATHEXT adds; the name itself if there is none."""
    extensions = [one for one in variables.get("PATHEXT", _EXTENSIONS).lower().split(";") if one]
    if name.lower().endswith(tuple(extensions)):
        extensions = ["", *extensions]
    folders = [""]
    if not ntpath.dirname(name):
        folders = [folder.strip('"') for folder in variables.get("PATH", "").split(";") if folder]
    for folder in folders:
        for extension in extensions:
            path = ntpath.join(folder, name + extension) if folder else name + extension
            if is_file(path):
                return path
    return name
