"""`gemel completion`: print the completion script of a shell; behind `--`, what the script needs at a key press."""

from __future__ import annotations

import argparse
import sys

from gemel.cli.completion.candidates import candidates
from gemel.cli.completion.scripts import SCRIPTS
from gemel.cli.completion.words import for_bash, split_line
from gemel.client.terminal.display import write
from gemel.visible import escape_line

#: Characters of a meaning that shells show beside a word.
_MEANING = 80


def run(options: argparse.Namespace) -> int:
    """Print the script, or a line for each candidate."""
    words = options.program_arguments
    if not words:
        write(sys.stdout, SCRIPTS[options.shell])
        return 0
    if options.shell == "bash":
        breaks, line = words[0], words[-1]
        words, is_quoted = split_line(line)
        lines = for_bash(candidates(words), words[-1], breaks, is_quoted=is_quoted)
    else:
        lines = [f"{word}\t{_first_line(meaning)}" for word, meaning in candidates(words)]
    # What a server names must not control the terminal: it is left out.
    printable = (line for line in lines if line.replace("\t", "").isprintable())
    write(sys.stdout, "".join(f"{line}\n" for line in printable))
    return 0


def _first_line(meaning: str) -> str:
    line = escape_line(meaning.strip().partition("\n")[0])
    return line if len(line) <= _MEANING else f"{line[: _MEANING - 1]}…"
