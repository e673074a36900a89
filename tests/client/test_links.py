"""Pages that servers want opened: what the user sees of them."""

from __future__ import annotations

import pytest

from hinge.client.links import page_of


@pytest.mark.parametrize(
    ("url", "host", "warnings"),
    [
        ("https://example.com/a?b=c#d", "example.com", []),
        ("http://localhost:8000/", "localhost:8000", []),
        ("http://example.com/", "example.com", ["not encrypted"]),
        ("https://good.example@evil.example/", "evil.example", ["before the @"]),
        ("https://xn--e1afmkfd.example/", "xn--e1afmkfd.example", ["пример.example"]),
        ("https://192.0.2.1/", "192.0.2.1", ["bare address"]),
        ("http://127.0.0.1:8000/", "127.0.0.1:8000", ["bare address"]),
    ],
)
def test_a_page_is_shown_with_its_host_and_what_is_odd_about_it(url: str, host: str, warnings: list[str]) -> None:
    """ELIC-20."""
    page = page_of(url)
    assert (page.url, page.host) == (url, host)
    assert len(page.warnings) == len(warnings)
    for word in warnings:
        assert any(word in warning for warning in page.warnings)


def test_a_host_in_other_letters_is_shown_and_opened_as_what_it_is() -> None:
    page = page_of("https://Пример.example/x")
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
        "https://example.com\\@evil.example",
        "https://example.com:port/",
        "https://[::1/",
        "https://" + "a" * 5000,
    ],
)
def test_what_no_browser_should_get_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|page"):
        page_of(url)
