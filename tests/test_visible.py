"""Characters that a reader doesn't see: one list for the terminal, pages, contracts, stubs and logs."""

from __future__ import annotations

import ast
import json
import logging
import re
import subprocess
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import AccessLog, Client, Server
from gemel.contracts.display import hidden_in, shown
from gemel.stubs.python_source import literal
from gemel.visible import HIDDEN_RANGES, escape_line, escape_text, hidden
from tests.auth.proxy.rig import Browser, rig
from tests.programs import require
from tests.source import PACKAGE, read_package

PAGE = PACKAGE / "dev" / "page"
Show: TypeAlias = Callable[[str], str]

LISTED = [
    chr(code)
    for part in HIDDEN_RANGES.split()
    for low, _, high in [part.partition("-")]
    for code in range(int(low, 16), int(high or low, 16) + 1)
    if not 0xD800 <= code <= 0xDFFF
]
#: A few of each range, so that tests through a server stay short.
SOME = [one for one in LISTED if ord(one) < 0xE000] + [
    "\ufe00",
    "\ufeff",
    "\U0001d159",
    "\U000e0041",
    "\U000e0100",
    "\U0010ffff",
]


def test_every_character_without_a_shape_is_listed() -> None:
    """As far as this Python's version of Unicode tells; a newer one finds what is missing."""
    kinds = ("Cc", "Cf", "Zl", "Zp", "Cs", "Co")
    every = map(chr, range(0x110000))
    missing = {one for one in every if unicodedata.category(one) in kinds and not hidden().fullmatch(one)}
    assert missing == {"\t", "\n"}


# ---------------------------------------------------------------- places


PLACES: dict[str, Show] = {
    "terminal": escape_line,
    "lines in a terminal": escape_text,
    "contracts": shown,
    "stubs": literal,
}


@pytest.mark.parametrize("show", PLACES.values(), ids=PLACES.keys())
def test_each_place_shows_what_is_listed(show: Show) -> None:
    text = show("".join(f"a{one}" for one in LISTED))[:1_000_000]
    assert not hidden().search(text)
    assert [one for one in LISTED if one not in "\r" and hidden().search(show(f"世{one}界"))] == []


async def test_the_consent_page_shows_names_without_them() -> None:
    async with rig() as site:
        client_id = await site.register(client_name="".join(f"a{one}" for one in SOME)[:200])
        _, page = await Browser().open(site.authorize_url(client_id))
        text = page.body.decode()
        assert "<dd>a a a a" in text
        assert not hidden().search(text)


async def test_the_access_log_shows_them(caplog: pytest.LogCaptureFixture) -> None:
    server: Server[Any] = Server("logged")
    server.add_middleware(AccessLog())
    with caplog.at_level(logging.INFO):
        async with Client(server) as client:
            for one in SOME:
                with pytest.raises(Exception):  # noqa: B017, PT011 - whatever it is, it is logged
                    await client.get_prompt(f"a{one}b")
    lines = [record.getMessage() for record in caplog.records if "a\\" in record.getMessage()]
    assert len(lines) == len(SOME)
    assert not any(map(hidden().search, lines))


def test_the_page_of_gemel_dev_has_the_same_list() -> None:
    text = (PAGE / "dom.js").read_text()
    assert f'const HIDDEN_RANGES = "{HIDDEN_RANGES}";' in text


def test_the_page_of_gemel_dev_finds_the_same(tmp_path: Path) -> None:
    text = (PAGE / "dom.js").read_text()
    part = text[text.index("const HIDDEN_RANGES") : text.index("const escaped")]
    samples = [*LISTED, *TEXTS, *(f"世{one}界" for one in SOME)]
    program = tmp_path / "hidden.mjs"
    program.write_text(
        f"{part}\nconsole.log(JSON.stringify({json.dumps(samples)}.map((text) => text.match(HIDDEN) ?? [])));"
    )
    done = subprocess.run([require("node"), program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [hidden().findall(sample) for sample in samples]


def test_the_page_of_gemel_dev_shows_lines_of_either_kind(tmp_path: Path) -> None:
    """The lines of CSV end with CRLF (RFC 4180)."""
    text = (PAGE / "dom.js").read_text()
    part = text[text.index("const HIDDEN_RANGES") : text.index("/** A name as one line")].replace("export ", "")
    program, table = tmp_path / "lines.mjs", json.dumps("a,b\r\n1,2\r\nx\ry")
    program.write_text(f"{part}\nconsole.log(JSON.stringify(revealed({table})));")
    done = subprocess.run([require("node"), program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == "a,b\n1,2\nx\\u000dy"


#: Surrogates, with which Python keeps bytes that are not UTF-8, and the mark at the beginning of a file.
ENCODING = re.compile("[\ud800-\udfff\ufeff]")
OTHERS = {"visible.py": "the list", "openapi/xml_values.py": "what XML 1.0 can't hold"}


def escaped_in(text: str) -> str:
    """The characters that stand as escapes in a regular expression."""
    found = re.findall(r"\\u([0-9a-fA-F]{4})|\\U([0-9a-fA-F]{8})", text)
    return "".join(f"{chr(int(short or long, 16))} " for short, long in found)


def test_no_other_module_lists_such_characters() -> None:
    found = {
        module.path.relative_to(PACKAGE).as_posix(): module.at(node.lineno)
        for module in read_package()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if any(one > "\x9f" for one in hidden().findall(ENCODING.sub("", node.value + escaped_in(node.value))))
    }
    assert {name: place for name, place in found.items() if name not in OTHERS} == {}


# ---------------------------------------------------------------- text

TEXTS = [
    "👩\u200d🚀",
    "❤\ufe0f\u200d🔥",
    "1\ufe0f\u20e3",
    "می\u200cخواهم",
    "a\u200cb",
    "é\u200d\u200dé",
    "é\ufe0f\ufe0f",
    "a\ufe0f",
    "\u200d",
    "é\u200d ",
]
HARMLESS = TEXTS[:4]


@pytest.mark.parametrize("text", HARMLESS)
def test_joiners_within_words_and_emoji_stay(text: str) -> None:
    assert escape_line(text) == text
    assert hidden_in(text) == []


@pytest.mark.parametrize("text", TEXTS[4:])
def test_joiners_elsewhere_are_shown(text: str) -> None:
    """A row of them could carry a text."""
    assert re.search(r"\\u(200c|200d|fe0f)", escape_line(text))
    assert hidden_in(text)


@given(st.text())
def test_plain_text_has_nothing_that_controls_a_terminal_or_hides(text: str) -> None:
    shown = escape_line(text)
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
    assert escape_line(text) == shown


def test_lines_stay_lines_and_tabs_become_blanks() -> None:
    assert escape_text("a\r\nb\tc\x07\n") == "a\nb   c\\x07\n"
