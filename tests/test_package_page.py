"""The page of the package on an index: its links, and the addresses of the project, follow from one setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gemel import __version__
from tests.docs.test_links import anchors
from tests.source import ROOT
from tools import package_page

HOST = "https://host.example/owner/gemel"
README = (ROOT / "README.md").read_text(encoding="utf-8")
_TARGET = re.compile(r"\]\((?P<target>[^)\s]+)\)")
_CODE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)


def page(address: str, text: str = README) -> str:
    return package_page.page(text, address, __version__, lambda path: (ROOT / path).is_dir())


def targets(text: str) -> list[str]:
    return [found["target"] for found in _TARGET.finditer(_CODE.sub("", text))]


def test_each_link_of_the_page_leads_to_a_file_of_the_tag() -> None:
    for target in targets(page(HOST)):
        if not target.startswith(HOST):
            assert target.startswith("https://")
            continue
        kind, tag, path = target.removeprefix(f"{HOST}/").split("/", 2)
        name, _, anchor = path.partition("#")
        file = ROOT / name
        assert tag == f"v{__version__}"
        assert file.is_dir() if kind == "tree" else file.is_file()
        assert (kind == "raw") is (file.suffix == ".webp")
        assert not anchor or anchor in anchors(file)


def test_each_link_of_the_readme_is_on_the_page() -> None:
    assert len(targets(page(HOST))) == len(targets(README)) > 50


def test_without_an_address_the_page_has_no_link_that_leads_nowhere() -> None:
    text = page("")
    assert {target.partition(":")[0] for target in targets(text)} == {"https"}
    assert "![" not in text
    assert "The tutorial takes fifteen minutes;" in text


def test_code_on_the_page_is_that_of_the_readme() -> None:
    assert _CODE.findall(page(HOST)) == _CODE.findall(README) != []


def test_what_only_tools_read_is_not_on_the_page() -> None:
    assert "<!--" in README
    assert "<!--" not in page(HOST)


@pytest.mark.parametrize("address", ["", HOST])
def test_addresses_of_the_project_begin_with_its_address(address: str) -> None:
    urls = package_page.urls(address, __version__)
    assert bool(urls) is bool(address)
    assert all(url.startswith(address) for url in urls.values())


def test_the_changelog_of_the_addresses_is_a_file() -> None:
    path = package_page.urls(HOST, __version__)["Changelog"].removeprefix(f"{HOST}/blob/v{__version__}/")
    assert Path(ROOT, path).is_file()


def test_the_security_contact_is_the_form_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from tools.print_docs import printed

    part = "<!-- printed: security-contact -->\n<!-- end of security-contact -->"
    monkeypatch.setattr(package_page, "project_address", str)
    assert "security page, or by a message" in printed(part)
    monkeypatch.setattr(package_page, "project_address", lambda: HOST)
    assert f"[Report a vulnerability]({HOST}/security/advisories/new)" in printed(part)
