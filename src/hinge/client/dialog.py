"""One question at a terminal: what is shown, in which frame, and how often somebody may try to answer.

A server's words stand behind a bar at the left and are cut where they would push ours off the screen. Knows forms as fields,
and no protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TextIO, TypeVar

from msgspec import UNSET

from hinge.client.fields import SHOWN_CHOICES, Field, fields_of
from hinge.client.keyboard import Keyboard, Left
from hinge.client.screen import Style, columns, plain, plain_lines, width_of, wrapped, write
from hinge.errors import shorten

#: Wrong answers to one question before it is given up; lines of a server's words that are shown.
TRIES = 5
MOST_LINES = 40
#: Lines of an answer in several lines.
MOST_ANSWERED = 1000

ValueT = TypeVar("ValueT")


class Declined(Exception):
    """The user said no."""


class Dialog:
    """A dialog with whoever sits there. Raises Declined, and Left when nothing more is to be asked."""

    def __init__(self, keyboard: Keyboard, output: TextIO) -> None:
        self._keyboard = keyboard
        self._output = output
        self._width = width_of(output)
        self.style = Style(output)
        fancy = (output.encoding or "").lower().replace("-", "").startswith("utf")
        self._bar, self._rule = ("│", "─") if fancy else ("|", "-")

    # ---------------------------------------------------------------- showing

    def head(self, who: str, what: str) -> None:
        """Who asks, and for what: the first line of every question."""
        text = f"{plain(who)} {what}"
        lines = list(wrapped(text, self._width - 6))
        rest = self._rule * max(2, self._width - columns(lines[-1]) - 5)
        lines[-1] = f"{lines[-1]} {rest}" if len(lines) == 1 else lines[-1]
        write(self._output, "\n" + "\n".join(f"{self._rule * 2} {self.style.bold(line)}" for line in lines) + "\n")

    def quote(self, text: str, indent: str = "") -> None:
        """A server's words."""
        width = self._width - len(indent) - 3
        lines = [part for line in plain_lines(text[:100_000]) for part in wrapped(line, width)]
        more = len(lines) - MOST_LINES
        shown = lines if more <= 0 else lines[:MOST_LINES]
        for line in shown:
            write(self._output, f"{indent}{self.style.dim(self._bar)} {line}".rstrip() + "\n")
        if more > 0:
            self.say(f"({more} more lines)")

    def say(self, text: str, indent: str = "  ", style: Callable[[str], str] = str) -> None:
        """Our words."""
        for line in wrapped(text, self._width - len(indent)):
            write(self._output, f"{indent}{style(line)}\n")

    def warn(self, text: str) -> None:
        """Our words that nobody should overlook."""
        self.say(f"! {text}", style=self.style.bold)

    def row(self, name: str, value: str) -> None:
        """A name and its value, whole, whatever the width: the terminal breaks the line."""
        write(self._output, f"  {name:<9} {value}\n")

    def end(self, text: str) -> None:
        """What became of the question; the cursor may stand behind a prompt."""
        with suppress(OSError, ValueError):  # the terminal is gone, or closed
            write(self._output, f"\n  {text}\n")

    # ---------------------------------------------------------------- asking

    async def ask(self, prompt: str, read: Callable[[str], ValueT]) -> ValueT:
        """What `read` makes of a line; its ValueError is shown and asked again, TRIES times."""
        for _ in range(TRIES):
            write(self._output, f"  {prompt} ")
            try:
                line = await self._keyboard.line(f"  {prompt} ")
                if line.strip() == "/no":
                    raise Declined
                return read("/no" if line == "//no" else line)
            except ValueError as exc:
                self.say(f"! {exc}", "    ")
        self.say("That was wrong too often.")
        raise Left

    async def agree(self, question: str) -> bool:
        """Yes or no, said with a word: Enter alone is neither."""
        return await self.ask(f"{question} [y/n]:", _yes_or_no)

    async def form(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The fields one after the other, then all of them to look over; raises ValueError for what is no form."""
        fields = fields_of(schema)
        if not fields:
            if not await self.agree("Agree?"):
                raise Declined
            return {}
        if any(field.secret for field in fields):
            self.warn("No server may ask for passwords, keys or card numbers here: /no declines.")
        skip = " /skip leaves a field out," if not all(field.required for field in fields) else ""
        self.say(f"Enter takes what stands in [ ],{skip} /no declines, Ctrl-C cancels.", style=self.style.dim)
        content: dict[str, Any] = {}
        for _ in range(TRIES):
            content = {
                field.name: value for field in fields if (value := await self._field(field, content)) is not UNSET
            }
            if len(fields) == 1 or await self._looked_over(fields, content):
                return content
        raise Left

    async def _field(self, field: Field, before: Mapping[str, Any]) -> Any:
        """The value of one field; UNSET for one that is left out."""
        self._describe(field)
        given = before.get(field.name, field.default)

        def read(line: str) -> Any:
            if line.strip() == "/skip" and not field.required:
                return UNSET
            if line.strip() == '""' and field.kind == "string":
                return field.read("")
            if line.strip():
                return field.read("/skip" if line == "//skip" else line)
            if given is not UNSET or not field.required:
                return given
            if field.several:
                return field.read("")
            empty = ' (type "" for an empty text)' if field.kind == "string" and not field.choices else ""
            raise ValueError(f"an answer is needed here{empty}")

        shown = f" [{shorten(field.shown(given), 60)}]" if given is not UNSET else ""
        return await self.ask(f"{self.style.bold(field.title)}{shown}:", read)

    def _describe(self, field: Field) -> None:
        if field.description:
            self.quote(field.description, "  ")
        if field.hint:
            self.say(f"{field.title}: {field.hint}", style=self.style.dim)
        numbers = len(str(min(len(field.choices), SHOWN_CHOICES)))
        for number, choice in enumerate(field.choices[:SHOWN_CHOICES], 1):
            mark = f"{number:>{numbers}}" if field.numbered else "-"
            self.say(f"{mark}  {shorten(plain(choice.title))}", "    ")
        if len(field.choices) > SHOWN_CHOICES:
            self.say(f"and {len(field.choices) - SHOWN_CHOICES} more: type the name", "    ")

    async def _looked_over(self, fields: list[Field], content: Mapping[str, Any]) -> bool:
        write(self._output, "\n")
        longest = max(columns(field.title) for field in fields if field.name in content) if content else 0
        for field in fields:
            if field.name in content:
                pad = " " * (longest - columns(field.title))
                self.say(f"{field.title}{pad}  {field.shown(content[field.name])}")
        return await self.ask("Send this? [Y]es, (c)hange, (n)o:", _yes_or_change)

    async def lines(self) -> str:
        """A text in several lines, up to a line with only a dot."""
        found: list[str] = []
        while len(found) < MOST_ANSWERED:
            line = await self.ask(">", str)
            if line == ".":
                break
            found.append(line)
        return "\n".join(found)


def _yes_or_no(line: str) -> bool:
    said = line.strip().lower()
    if said in ("y", "yes"):
        return True
    if said in ("n", "no"):
        return False
    raise ValueError("type y for yes or n for no")


def _yes_or_change(line: str) -> bool:
    said = line.strip().lower()
    if said in ("", "y", "yes"):
        return True
    if said in ("c", "change"):
        return False
    if said in ("n", "no"):
        raise Declined
    raise ValueError("type y to send it, c to change it, n to decline")
