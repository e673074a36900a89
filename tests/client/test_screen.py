"""What a stranger's text may do to a terminal."""

from __future__ import annotations

import io
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinge.client.screen import Style, columns, is_terminal, plain, plain_text, width_of, wrapped, write


@given(st.text())
def test_plain_text_has_nothing_that_controls_a_terminal_or_hides(text: str) -> None:
    shown = plain(text)
    kinds = {unicodedata.category(character) for character in shown if character not in "\u200c\u200d"}
    assert not kinds & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    shown.encode()  # no half characters


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", "\\x1b[2J"),
        ("\x9b2J", "\\u009b2J"),
        ("a\rb", "a\\rb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u2028b", "a\\u2028b"),
        ("\U000e0041", "\\U000e0041"),
        ("\ud800", "\\ud800"),
        ("1\u00a0000", "1 000"),
        ("Åse 世界 👩\u200d🚀", "Åse 世界 👩\u200d🚀"),
    ],
)
def test_what_is_not_visible_stands_there_as_its_escape(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_lines_stay_lines_and_tabs_become_blanks() -> None:
    assert plain_text("a\r\nb\tc\x07\n") == "a\nb   c\\x07\n"


@given(st.text(alphabet=st.sampled_from("ab 世é\u0301")), st.integers(2, 12))
def test_wrapping_loses_nothing_but_blanks_and_fits(text: str, width: int) -> None:
    lines = list(wrapped(plain(text), width))
    assert all(columns(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


def test_lines_break_at_blanks_where_they_can() -> None:
    assert list(wrapped("one two three", 8)) == ["one two", "three"]
    assert list(wrapped("onetwothree four", 6)) == ["onetwo", "three", "four"]
    assert list(wrapped("", 6)) == [""]


def test_styles_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert Style(Screen()).bold("x") == "\x1b[1mx\x1b[0m"
    assert Style(io.StringIO()).bold("x") == "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert Style(Screen()).dim("x") == "x"


def test_the_width_is_asked_for_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert width_of(io.StringIO()) == 80
    for said, width in (("5", 20), ("60", 60), ("1000", 100), ("no", 80)):
        monkeypatch.setenv("COLUMNS", said)
        assert width_of(io.StringIO()) == width


def test_a_stream_with_a_small_alphabet_gets_escapes() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    write(stream, "│ ok")
    assert raw.getvalue() == b"\\u2502 ok"


def test_a_closed_stream_is_no_terminal() -> None:
    closed = io.StringIO()
    closed.close()
    assert not is_terminal(closed)
    assert not is_terminal(None)
