"""The documentation site: it builds without a network, every page can be found, every public name is in the reference."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("griffe")

import gemel
from gemel.cli.arguments.parser import COMMANDS, command_parser, parser
from tests.docs.search import search
from tests.docs.test_links import anchors_of
from tests.programs import PATH, require
from tests.source import ROOT
from tools import command_line, messages, package_page, public_api, reference, site

#: What people type into the search, and the page, or the folder of pages, that is to be the first.
SEARCHES = {
    "inspector": "how-to/inspect",
    "streaming": "how-to/long-jobs",
    "bearer token": "authorization",
    "structured output": "servers/tools",
    "api key": "authorization",
    "session state": "servers/state",
    "tool search": "how-to/code-mode",
    "too many tools": "how-to/code-mode",
    "progress bar": "how-to/long-jobs",
    "file upload": "how-to/files",
    "cors": "how-to/cors",
    "stdio logging": "how-to/telemetry",
    "timeout": "servers/tools",
    "dependency injection": "servers/context",
    "pagination": "servers",
    "graceful shutdown": "transports",
    "scheduled job": "servers/context",
    "breakpoint": "how-to/troubleshooting",
    "deployment": "how-to/deploy",
    "production": "how-to/deploy",
    "audit log": "how-to/receipts",
    "rate limit": "servers/middleware",
    "sampling": "servers/elicitation",
    "migrate": "migration",
    "stateless": "explanation/eras",
    "json schema": "servers/values",
    "sqlite": "servers/backends",
    "oauth": "authorization",
    "benchmark": "performance",
}
#: Pages of the specification that docstrings name, as https://modelcontextprotocol.io publishes them.
SPECIFICATION = {
    *("2025-11-25/basic/transports", "2025-11-25/basic/utilities/ping", "2025-11-25/basic/utilities/tasks"),
    *("2025-11-25/client/elicitation", "2026-07-28/basic/authorization", "2026-07-28/basic/patterns/progress"),
    "2026-07-28/basic/authorization/security-considerations",
    *("2026-07-28/client/elicitation", "2026-07-28/client/roots", "2026-07-28/client/sampling"),
    *("2026-07-28/server/prompts", "2026-07-28/server/resources", "2026-07-28/server/tools"),
    "2026-07-28/server/utilities/logging",
}
#: What makes a browser load something: not links, which a reader follows.
_LOADS = re.compile(
    r"""<(?:script|img|iframe|source|embed|link)\b[^>]*?(?:src|href)=["']?(?:https?:)?//[^>]*>|@import[^;]*//|url\(["']?(?:https?:)?//"""
)
_HREF = re.compile(r'href="?(?P<target>[^"\s>]+)')
_ID = re.compile(r'\bid="?(?P<id>[^"\s>]+)')


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return site.all_pages()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this version."""
    pytest.importorskip("zensical")
    folder = tmp_path_factory.mktemp("site")
    assert site.build(folder / "out", folder / "work") == 0
    (version,) = json.loads((folder / "out" / "versions.json").read_text(encoding="utf-8"))
    return folder / "out" / str(version["version"])


@pytest.mark.long
@pytest.mark.timeout(300)  # all pages are built at once
def test_the_site_loads_nothing_from_elsewhere(built: Path) -> None:
    files = [*built.rglob("*.html"), *built.rglob("*.css"), *built.rglob("*.svg")]
    assert len(files) > 50
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not _LOADS.findall(text), file
        # The theme would load these from elsewhere when a page uses them.
        assert not re.search(r'class="[^"]*\b(?:mermaid|arithmatex|glightbox)\b', text), file


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_link_of_the_site_leads_somewhere(built: Path) -> None:
    ids = {file: set(_ID.findall(file.read_text(encoding="utf-8"))) for file in built.rglob("*.html")}
    for file in ids:
        if file.name == "404.html":
            continue
        for target in _HREF.findall(file.read_text(encoding="utf-8")):
            if re.match(r"https?:|mailto:|data:|javascript:", target):
                continue
            path, _, anchor = target.partition("#")
            there = (file.parent / path).resolve() if path else file
            there = there / "index.html" if there.is_dir() else there
            assert there.exists(), f"{file.relative_to(built)}: {target}"
            assert not anchor or there not in ids or anchor in ids[there], f"{file.relative_to(built)}: {target}"


@pytest.mark.long
@pytest.mark.timeout(300)
def test_every_page_can_be_used_without_a_mouse(built: Path) -> None:
    """The first link skips the navigation, and leads to something that can have the focus."""
    for file in built.rglob("*.html"):
        if file.name == "404.html":
            continue
        text = file.read_text(encoding="utf-8")
        skip = re.search(r'<a href="#(?P<id>[^"]+)" class="md-skip">', text)
        assert skip is not None, file
        assert skip["id"] in _ID.findall(text), file
        assert '<html lang="en"' in text, file
        assert '<meta name="viewport"' in text, file


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_site_can_be_searched_and_read_by_models(built: Path) -> None:
    found = json.loads((built / "search.json").read_text(encoding="utf-8"))["items"]
    assert any("Server.http_app" in item["title"] for item in found)
    listed = re.findall(
        r"^- \[.+?\]\((?P<page>[^)]+\.md)\): \S", (built / "llms.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(listed) > 30
    assert all((built / page).exists() for page in listed)
    full = (built / "llms-full.txt").read_text(encoding="utf-8")
    assert "server = Server(" in full
    assert "<!-- run" not in full
    assert "class Server" in (built / "llms-reference.txt").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_guides_fit_what_a_model_can_read(
    built: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("npm")
    monkeypatch.setenv("PATH", PATH)
    assert site.check_lengths(built) == 0
    assert re.search(r"^llms-full\.txt: [\d,]+ tokens$", capsys.readouterr().out, re.MULTILINE)
    monkeypatch.setattr(site, "MOST_TOKENS", 1000)
    assert site.check_lengths(built) == 1
    assert "llms-full.txt may have 1,000 tokens" in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.timeout(300)
def test_the_search_finds_what_people_type(built: Path) -> None:
    found = search(built, list(SEARCHES))
    assert {
        query: places for query, places in found.items() if not places or not places[0].startswith(SEARCHES[query])
    } == {}


@pytest.mark.long
@pytest.mark.timeout(300)
def test_pages_without_an_address_name_none(built: Path) -> None:
    assert package_page.project_address() or not (built / "sitemap.xml").exists()
    page = (built / "how-to" / "tls" / "index.html").read_text(encoding="utf-8")
    assert ('property="og:url"' in page) == ('rel="canonical"' in page) == bool(package_page.project_address())
    assert '<meta name="description" content="Usually a proxy handles TLS.">' in page


def test_the_address_of_the_site_follows_from_that_of_the_project(
    pages: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.site_address("https://github.com/Acme/weather") == "https://acme.github.io/weather"
    assert site.site_address("https://git.example.com/acme/weather") == site.site_address("") == ""
    monkeypatch.setattr(package_page, "project_address", lambda: "https://github.com/Acme/weather")
    configuration = tomllib.loads(site.config(pages))["project"]
    there = f"https://acme.github.io/weather/{gemel.__version__}/"
    assert (configuration["repo_url"], configuration["site_url"]) == ("https://github.com/Acme/weather", there)
    assert f"]({there}tutorial.md): " in site.llms(pages)


def test_models_are_told_in_a_sentence_what_a_page_is_about(pages: dict[str, str]) -> None:
    for page, text in pages.items():
        assert re.fullmatch(r"[\w`“\"].{9,}\w\W*\.", site.summary(text)), f"{page}: {site.summary(text)!r}"


def test_every_page_is_in_one_of_the_whole_texts(pages: dict[str, str]) -> None:
    whole = tomllib.loads(site.CONFIG.read_text(encoding="utf-8"))["project"]["extra"]["whole_texts"]
    assert {section for each in whole.values() for section in each} <= {one for one, _ in site.navigation(pages)}
    everything = "".join(site.whole_text(name, pages) for name in whole)
    assert all(everything.count(f"<!-- {page} -->") == 1 for page in pages)
    assert whole[site.GUIDES] == []


def test_every_public_name_is_in_the_reference() -> None:
    everything = "\n".join(reference.pages().values())
    listed = {line.partition(":")[0] for line in public_api.SNAPSHOT.read_text(encoding="utf-8").splitlines()}
    anchors = set(re.findall(r'\{ #([\w.]+) \}|<span id="([\w.]+)">', everything))
    assert listed <= {heading or row for heading, row in anchors}


def test_the_reference_has_pages_for_names_only_and_no_empty_one() -> None:
    assert set(reference.PAGES) == set(reference.pages()) & set(reference.PAGES)


def test_a_page_of_the_reference_opens_with_its_main_class() -> None:
    for name, page in reference.PAGES.items():
        shown = re.findall(r"^## `(?:\w+\.)*(\w+)`", reference.pages()[name], re.MULTILINE)
        assert tuple(shown[: len(page.first)]) == page.first


def test_every_attribute_in_the_reference_has_a_type_and_a_text() -> None:
    for page in reference.pages().values():
        for row in re.findall(r"^\| <span id=.*", page, re.MULTILINE):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", row)]
            assert all(cells[1:4]), row


def test_a_long_page_of_the_reference_begins_with_a_list_of_its_names() -> None:
    text = reference.pages()["server.md"]
    overview = text.partition("## ")[0]
    assert set(re.findall(r"\{ #([\w.]+) \}", text)) == set(re.findall(r"\(#([\w.]+)\)", overview))


def test_the_reference_links_to_pages_of_the_specification() -> None:
    lines = [
        line for page in reference.pages().values() for line in re.findall(r"^Specification:.*", page, re.MULTILINE)
    ]
    assert len(lines) > 20
    for line in lines:
        assert not re.sub(r"\[[^\]]+\]\([^)]+\)|Specification:|and|[ ,;.]", "", line), line
    linked = re.findall(r"modelcontextprotocol\.io/specification/([\d-]+)/([\w/-]+)", "\n".join(lines))
    assert {f"{revision}/{page}" for revision, page in linked} <= SPECIFICATION


def test_every_option_is_in_the_reference_with_its_meaning() -> None:
    page = reference.pages()["server.md"]
    assert "| `instructions` | `None` | How a model should use this server;" in page
    assert "| `title` |" in page


def test_every_command_and_option_is_on_the_page_of_the_command_line() -> None:
    page = command_line.page("#")
    commands = {name: command_parser(name) for name in COMMANDS}
    assert set(commands) == set(re.findall(r"^  (?:  )?([a-z]+) {2,}", parser().format_help(), re.MULTILINE))
    for name, command in commands.items():
        section = page.partition(f"## `gemel {name}`")[2].partition("\n## ")[0]
        for flag in re.findall(r"--[a-z][\w-]+", command.format_help()):
            assert flag == "--help" or f"`{flag}" in section, f"{name} {flag}"


def test_every_page_is_in_the_navigation_once(pages: dict[str, str]) -> None:
    listed = [page for _, page in site.navigation(pages)]
    assert sorted(listed) == sorted(pages)


def links(pages: dict[str, str]) -> Iterator[tuple[str, str]]:
    for page, text in pages.items():
        prose = re.sub(r"^ *(`{3,}).*?^ *\1", "", text, flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)\s]+)\)", prose):
            if "://" not in target:
                yield page, target


def test_links_between_pages_lead_somewhere(pages: dict[str, str]) -> None:
    for page, target in links(pages):
        path, _, anchor = target.partition("#")
        there = (Path("/") / page).parent.joinpath(path).resolve().relative_to("/").as_posix() if path else page
        if there.endswith(site.PICTURES):
            assert (ROOT / "docs" / there).exists()
            continue
        assert there in pages, f"{page}: {target}"
        assert not anchor or anchor in anchors_of(pages[there]) | set(re.findall(r"\{ #([\w.-]+) \}", pages[there]))


def test_a_broken_link_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("zensical")
    config = 'project = { site_name = "x", docs_dir = "pages", site_dir = "html", nav = ["index.md"], theme = { font = false } }'
    monkeypatch.setattr(site, "config", lambda pages: config)
    monkeypatch.setattr(site, "all_pages", lambda: {"index.md": "# Home\n\n[gone](gone.md) [not](#not)\n"})
    assert site.build(tmp_path / "out", tmp_path / "work") == 1
    assert "2 issues" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_every_message_of_an_error_is_on_a_page_with_a_cure() -> None:
    found = messages.messages()
    assert len(found) > 400
    assert {one.kind for one in found} <= messages.CURES.keys()
    page = messages.page()
    assert page.count("\n| ") > len(found)
    assert any(one.cure == "Give a prefix, or another name to one of them" for one in found)


def test_versions_stand_side_by_side_and_the_newest_is_shown_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "html").mkdir()
    (tmp_path / "site" / ".git").mkdir(parents=True)  # the folder is a branch of its own where it is published
    for version in ("0.9.0", "0.10.0", "0.9.1"):
        monkeypatch.setattr("gemel.__version__", version)
        monkeypatch.setattr(site, "navigation", lambda pages: [("Home", "index.md")])
        site.publish(tmp_path / "html", {"index.md": f"# Gemel\n\nVersion {version}.\n"}, tmp_path / "site")
    listed = json.loads((tmp_path / "site" / "versions.json").read_text(encoding="utf-8"))
    assert [one["version"] for one in listed] == ["0.10.0", "0.9.1", "0.9.0"]
    assert "url=0.10.0/" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    links = (tmp_path / "site" / "llms.txt").read_text(encoding="utf-8")
    assert "Version 0.10.0." in links, "tools look for it at the root"
    assert "](0.10.0/index.md): " in links
    assert "](0.10.0/llms-full.txt): " in links
    assert "Version 0.9.0." in (tmp_path / "site" / "0.9.0" / "llms-full.txt").read_text(encoding="utf-8")
