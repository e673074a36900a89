"""Texts that would lead out of a folder, in all the ways they can be written."""

from __future__ import annotations

import pytest

from gemel.server.features.files import leads_out

WAYS_OUT = (
    "..",
    "../",
    "../x",
    "a/..",
    "a/../../x",
    "..\\x",
    "a\\..\\x",
    "a/..\\x",
    "%2e%2e",
    "%2e%2e/x",
    "%2E%2E%2Fx",
    "..%2fx",
    "..%5cx",
    "a%2f..%2fx",
    "%252e%252e%252fx",
    "%25252e%25252e",
    "%2525252525252e",
    ".%2e/x",
    "%2e./x",
    "..%c0%af",
    "%c0%ae%c0%ae/x",
    "%ff",
    "..;/x",
    "..;a=b/x",
    ".. /x",
    "..%20/x",
    "..%09",
    "．．/x",
    "..／x",
    "‥/x",
    "/etc/passwd",
    "//host/share",
    "\\etc",
    "\\\\host\\share",
    "%2fetc",
    "%5cetc",
    "／etc",
    "C:/x",
    "c:\\x",
    "C%3A%2Fx",
    "a\0b",
    "a%00b",
    "a%2500b",
)

FINE = (
    "",
    "a",
    "a/b/c.txt",
    ".",
    "./a",
    "...",
    "a..b",
    "main..dev",
    "..a",
    "a..",
    ".hidden",
    "100%",
    "100%25",
    "a%20b",
    "https://host/x",
    "C:",
    "a:b",
    "über/größe",
)


@pytest.mark.parametrize("text", WAYS_OUT)
def test_a_way_out_is_seen_in_any_writing(text: str) -> None:
    """RES-09."""
    assert leads_out(text)


@pytest.mark.parametrize("text", FINE)
def test_usual_names_are_fine(text: str) -> None:
    assert not leads_out(text)
