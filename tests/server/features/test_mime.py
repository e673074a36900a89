"""MIME types from names."""

from __future__ import annotations

import pytest

from hinge.server.features import mime


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.png", "image/png"),
        ("A.PNG", "image/png"),
        ("a.md", "text/markdown"),
        ("a.json", "application/json"),
        ("a.yaml", "application/yaml"),
        ("a.tar.gz", "application/gzip"),
        ("a.txt.xz", "application/x-xz"),
        ("x://host.com/a.svg?b.png#c.jpg", "image/svg+xml"),
        ("x://host.png/a", None),
        ("noext", None),
        (".env", None),
        ("", None),
        ("a.unheard-of", None),
        ("data:a.txt", "text/plain"),
    ],
)
def test_the_ending_tells_the_type(name: str, kind: str | None) -> None:
    """RES-02."""
    assert mime.guess(name) == kind


def test_textual_types_are_told_from_binary_ones() -> None:
    for kind in ("text/plain", "TEXT/Html; charset=utf-8", "application/json", "image/svg+xml", "application/yaml"):
        assert mime.is_text(kind)
    for kind in ("image/png", "application/octet-stream", "application/gzip", "audio/xmlish"):
        assert not mime.is_text(kind)
