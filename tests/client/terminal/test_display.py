"""Text and addresses from a server: what reaches a terminal."""

from __future__ import annotations

import io

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from gemel.client.terminal.display import (
    Layout,
    check_page_url,
    is_styled,
    is_terminal,
    terminal_width,
    write,
)
from gemel.visible import escape_line


class Screen(io.StringIO):
    """A terminal as far as anybody asks."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Screen()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from("ab 世é\u0301")), width=st.integers(20, 40))
def test_wrapping_loses_nothing_but_blanks_and_fits(monkeypatch: pytest.MonkeyPatch, text: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = Layout(Screen()).lines(escape_line(text), "| ")
    assert all(cell_len(line) <= width for line in lines)
    assert all(line.startswith("|") for line in lines)
    assert "".join(line[1:] for line in lines).replace(" ", "") == text.replace(" ", "")


def test_the_markup_of_rich_is_text_like_any_other(screen: Screen) -> None:
    text = "[bold red]x[/] :smile: [link=https://evil.example]y[/link] https://example.org 'z' 12"
    assert " ".join(Layout(screen).lines(text)) == text


def test_lines_for_a_file_and_without_rich_stay_whole(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    long = "word " * 50 + "end"
    assert Layout(io.StringIO()).lines(long, "  ", style="bold") == [f"  {long}"]
    assert len(Layout(screen).lines(long)) > 1
    monkeypatch.setattr("gemel.client.terminal.display.find_spec", lambda name: None)
    assert Layout(screen).lines(long, "  ", style="bold") == [f"  {long}"]


def test_styles_are_for_terminals_only(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Layout(screen).lines("x", style="bold") == ["\x1b[1mx\x1b[0m"]
    assert Layout(io.StringIO()).lines("x", style="bold") == ["x"]
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert not is_styled(screen)
            assert Layout(screen).lines("x", style="dim") == ["x"]


def test_the_width_is_asked_for_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert terminal_width(io.StringIO()) == 80
    for said, width in (("5", 20), ("60", 60), ("1000", 100), ("no", 80)):
        monkeypatch.setenv("COLUMNS", said)
        assert terminal_width(io.StringIO()) == width


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


# ---------------------------------------------------------------- addresses


@pytest.mark.parametrize(
    ("url", "host", "warnings"),
    [
        ("https://example.com/a?b=c#d", "example.com", []),
        ("http://localhost:8000/", "localhost:8000", []),
        ("http://example.com/", "example.com", ["not encrypted"]),
        ("https://good.example@evil.example/", "evil.example", ["before the @"]),
        ("https://xn--e1afmkfd.example/", "xn--e1afmkfd.example", ["пример.example"]),
        ("https://192.0.2.1/", "192.0.2.1", ["IP address"]),
        ("http://127.0.0.1:8000/", "127.0.0.1:8000", ["IP address"]),
        ("http://2130706433/", "2130706433", ["IP address without a name: 127.0.0.1."]),
        ("https://0x7f.1/", "0x7f.1", ["IP address without a name: 127.0.0.1."]),
        ("https://0300.0.2.1./", "0300.0.2.1.", ["IP address without a name: 192.0.2.1."]),
        ("https://3221225985:443/", "3221225985:443", ["IP address without a name: 192.0.2.1."]),
        ("https://1.2.3.4.5/", "1.2.3.4.5", []),
        ("https://0x7g.1/", "0x7g.1", []),
        ("http://[::1]:8000/", "::1:8000", ["IP address"]),
    ],
)
def test_a_page_is_shown_with_its_host_and_what_is_odd_about_it(url: str, host: str, warnings: list[str]) -> None:
    """ELIC-20."""
    page = check_page_url(url)
    assert (page.url, page.host) == (url, host)
    assert len(page.warnings) == len(warnings)
    for word in warnings:
        assert any(word in warning for warning in page.warnings)


def test_a_number_in_other_digits_is_an_address() -> None:
    page = check_page_url("https://２１３０７０６４３３/")
    assert page.host == "2130706433"
    assert any("IP address without a name: 127.0.0.1." in warning for warning in page.warnings)


def test_a_host_in_other_letters_is_shown_and_opened_as_what_it_is() -> None:
    page = check_page_url("https://Пример.example/x")
    assert page.host == "xn--e1afmkfd.example"
    assert page.url == "https://xn--e1afmkfd.example/x"
    assert page.warnings


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "https:///x",
        "https://a b/",
        "https://example.com/\x1b[2J",
        "https://example.com/\u202egnp",
        "https://example.com/\u3164",
        "https://example.com/\ufe01",
        "https://%65xample.com/",
        "https://example.com\\@evil.example",
        "https://example.com:port/",
        "https://[::1/",
        "https://" + "a" * 5000,
    ],
)
def test_what_no_browser_should_get_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|page"):
        check_page_url(url)
