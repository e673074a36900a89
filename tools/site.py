"""Builds the documentation as a web site: `python -m tools.site [OUTPUT]`, or `make site`.

The pages are the documents of the repository, the API reference and the command line, made from the code. Each version
gets a folder of its own below OUTPUT (default: `site/`), with a selector between those that are there. Needs no
network, except for the tokenizer that measures the texts for language models; without it they are written unmeasured.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gemel
from benchmarks import tokens
from tools import command_line, messages, package_page, reference

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / ".cache" / "site"
CONFIG = ROOT / "zensical.toml"
PICTURES = (".svg", ".webp")
#: The text for language models that has to fit into what they can read at once, and its bound.
GUIDES = "llms-full.txt"
MOST_TOKENS = 100_000

_WHOLE_TEXTS = (
    "Each of these files has the pages of whole sections, for models that read everything at once. Below them is a link to the "
    "Markdown of each page."
)

#: What each page says of itself where it is shared. The theme adds the canonical address.
_SHARED = """\
{% extends "base.html" %}
{% block extrahead %}
  {% if page.canonical_url %}
    <meta property="og:type" content="website">
    <meta property="og:site_name" content="{{ config.site_name }}">
    <meta property="og:title" content="{{ page.title | striptags }}">
    <meta property="og:description" content="{{ page.meta.description }}">
    <meta property="og:url" content="{{ page.canonical_url }}">
  {% endif %}
{% endblock %}
"""

#: Documents beside docs/, and the pages that they become.
BESIDE = {
    "README.md": "index.md",
    "SECURITY.md": "explanation/security.md",
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "VERSIONING.md": "project/versioning.md",
    "ROADMAP.md": "project/roadmap.md",
    "LICENSE": "project/license.md",
}
_HIDDEN = re.compile(
    r"^<!-- (?:by hand -->|run\n.*?\n-->|printed: [\w-]+ -->|file: [\w./-]+ -->|end of [\w-]+ -->)\n?",
    re.DOTALL | re.MULTILINE,
)
_FENCED = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}).*?^(?P=indent)(?P=fence)$", re.DOTALL | re.MULTILINE)
#: A paragraph about the subject; not a heading, a table, a list, a comment, a picture alone, or a word about the examples.
_PROSE = re.compile(r"(?!\* |The examples )[\w`\[“\"*]")
_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<path>[^)\s:#]+)(?P<anchor>#[^)\s]*)?\)")
_MOVE = re.compile(r"^ +(\S+) --> (\S+?)(?:: (.+))?$")


def main(words: list[str]) -> int:
    """Build the site; the exit code is 1 if a link leads nowhere or a text for models is too long for them."""
    output = Path(words[0]).resolve() if words else ROOT / "site"
    return build(output) or check_lengths(output / gemel.__version__)


def build(output: Path, work: Path = WORK) -> int:
    """Write this version of the site below `output`, and the list of versions beside it."""
    shutil.rmtree(work, ignore_errors=True)
    pages = all_pages()
    for name, text in pages.items():
        (work / "pages" / name).parent.mkdir(parents=True, exist_ok=True)
        # Decisions are read by way of links: in the search they would stand before the pages that answer the question.
        search = "search:\n  exclude: true\n" if name.startswith("decisions/") else ""
        head = f"---\ndescription: {json.dumps(summary(text))}\n{search}---\n"
        (work / "pages" / name).write_text(head + text, encoding="utf-8")
    (work / "theme").mkdir(parents=True)
    (work / "theme" / "main.html").write_text(_SHARED, encoding="utf-8")
    for asset in (file for file in (ROOT / "docs").rglob("*") if file.suffix in PICTURES):
        target = work / "pages" / asset.relative_to(ROOT / "docs")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(asset, target)
    (work / "zensical.toml").write_text(config(pages), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    if done.returncode:
        text = (done.stdout + done.stderr).partition("Traceback")[0]
        print(re.sub(r"\x1b\[[\d;]*m", "", text), file=sys.stderr)
        return 1
    _add_keywords(work / "html")
    if not site_address(package_page.project_address()):
        (work / "html" / "sitemap.xml").unlink(missing_ok=True)  # it lists addresses, and there are none
    publish(work / "html", pages, output)
    return 0


def publish(built: Path, pages: dict[str, str], output: Path) -> None:
    """Put what was built beside the other versions, with Markdown beside each page, for language models."""
    folder = output / gemel.__version__
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(built, folder)
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "llms.txt").write_text(llms(pages), encoding="utf-8")
    for name in _settings("whole_texts"):
        (folder / name).write_text(whole_text(name, pages), encoding="utf-8")
    versions = sorted((path.name for path in output.glob("[!.]*/")), key=_by_number, reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in versions]
    (output / "versions.json").write_text(json.dumps(listed), encoding="utf-8")
    refresh = f'<meta http-equiv="refresh" content="0; url={versions[0]}/">'
    newest = (output / versions[0] / "llms.txt").read_text(encoding="utf-8")  # tools look for it at the root
    (output / "llms.txt").write_text(re.sub(r"\]\((?!\w+:)", f"]({versions[0]}/", newest), encoding="utf-8")
    (output / "index.html").write_text(f"<!doctype html><title>Gemel</title>{refresh}\n", encoding="utf-8")


def _add_keywords(folder: Path) -> None:
    """Add an entry to the index of the search for each of `[project.extra.keywords]`.

    The search puts first what has the words together at the beginning of its title.

    Raises:
        KeyError: There is no such page or section.
    """
    file = folder / "search.json"
    index = json.loads(file.read_text(encoding="utf-8"))
    items = {item["location"]: item for item in index["items"]}
    for place, phrases in _settings("keywords").items():
        page, _, anchor = place.partition("#")
        item = items[page.removesuffix(".md") + "/" + (f"#{anchor}" if anchor else "")]
        index["items"] += [{**item, "title": f"{phrase} → {item['title']}"} for phrase in phrases]
    file.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")


def _by_number(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


# ---------------------------------------------------------------- pages


def all_pages() -> dict[str, str]:
    """Every page of the site by its path, as Markdown."""
    sources = {ROOT / name: page for name, page in BESIDE.items() if (ROOT / name).exists()}
    sources |= {path: path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))}
    pages: dict[str, str] = {}
    examples: set[Path] = set()
    for source, page in sources.items():
        pages[page] = _transformed(source, page, sources, examples)
    pages |= {f"reference/api/{name}": text for name, text in reference.pages().items()}
    pages["reference/command-line.md"] = command_line.page("../clients/shell.md")
    pages["reference/messages.md"] = messages.page()
    for example in sorted(examples):
        code = example.read_text(encoding="utf-8").rstrip()
        language = example.suffix.removeprefix(".").replace("py", "python")
        said = f"{_first_paragraph(code)}\n\n" if example.suffix == ".py" else ""
        pages[_example_page(example)] = f"# {example.name}\n\n{said}```{language}\n{code}\n```\n"
    return {name: _tables(text) for name, text in pages.items()}


def _transformed(source: Path, page: str, sources: dict[Path, str], examples: set[Path]) -> str:
    """A document as a page: without what only tests see, with links between pages."""

    def link(found: re.Match[str]) -> str:
        target = (source.parent / found["path"]).resolve()
        if target.suffix in PICTURES:
            inside = target.relative_to(ROOT / "docs").as_posix()
        elif target in sources:
            inside = sources[target]
        elif target.is_dir() and (inner := [path for path in sorted(sources) if path.parent == target]):
            inside = sources[inner[0]]
        elif target.is_relative_to(ROOT / "examples"):
            files = sorted(target.glob("*.py")) if target.is_dir() else [target]
            examples.update(files)
            inside = _example_page(files[0])
        elif target.exists():
            return found["text"]  # a file of the repository that is not on the site
        else:
            raise ValueError(f"{source}: there is no {found['path']}")
        return f"[{found['text']}]({os.path.relpath(inside, os.path.dirname(page) or '.')}{found['anchor'] or ''})"

    text = _HIDDEN.sub("", source.read_text(encoding="utf-8"))
    if not source.suffix:
        text = f"# {source.stem.capitalize()}\n\n{text}"
    return _outside_of_code(text, lambda prose: _LINK.sub(link, prose), _code)


def _example_page(path: Path) -> str:
    return f"examples/{path.stem}.md"


def _first_paragraph(code: str) -> str:
    return (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")[0]


def _outside_of_code(text: str, prose: Any, code: Any = lambda block: block) -> str:
    """The text with one function applied to what is outside of code blocks, another one to the blocks."""
    parts, end = [], 0
    for found in _FENCED.finditer(text):
        parts += [prose(text[end : found.start()]), code(found[0])]
        end = found.end()
    return "".join([*parts, prose(text[end:])])


def _code(block: str) -> str:
    """A state diagram as a table: drawing it in a browser would load a library from elsewhere."""
    if not block.startswith("```mermaid"):
        return block
    moves = [found for line in block.split("\n") if (found := _MOVE.match(line)) and "[*]" not in found[0]]
    rows = [
        f"| {state} | {event or ''} | {to} |".replace("_", " ") for state, to, event in (one.groups() for one in moves)
    ]
    return "\n".join(["| state | event | next state |", "|---|---|---|", *rows])


def _tables(text: str) -> str:
    """`\\|` in the code of a table as the site's Markdown wants it."""

    def line(row: str) -> str:
        if not row.startswith("|"):
            return row
        return re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), row)

    return _outside_of_code(text, lambda prose: "\n".join(map(line, prose.split("\n"))))


# ---------------------------------------------------------------- configuration and navigation


def config(pages: dict[str, str]) -> str:
    """The configuration, with the generated pages in its navigation; folders without pages are left out.

    Where the project has an address, pages say where they are published, and link to the repository.
    """
    text = CONFIG.read_text(encoding="utf-8")
    if address := package_page.project_address():
        text = text.replace("[project]\n", f"[project]\nrepo_url = {json.dumps(address)}\n", 1)
    if published := site_address(address):
        text = text.replace("[project]\n", f'[project]\nsite_url = "{published}/{gemel.__version__}/"\n', 1)
    for pattern in re.findall(r'"([\w/-]+/\*)"', text):
        folder = pattern.removesuffix("*")
        entries = [name for name in pages if name.startswith(folder)]
        if not entries:
            text = re.sub(rf'^.*"{re.escape(pattern)}".*\n', "", text, flags=re.MULTILINE)
        text = text.replace(f'"{pattern}"', "[" + ", ".join(map(json.dumps, entries)) + "]")
    return text


def _settings(name: str) -> dict[str, list[str]]:
    """A table of `[project.extra]`, which this program reads."""
    settings: dict[str, list[str]] = tomllib.loads(CONFIG.read_text(encoding="utf-8"))["project"]["extra"][name]
    return settings


def site_address(repository: str) -> str:
    """Return where the pages of a repository on GitHub are published; empty for another address, and for none.

    Args:
        repository: The address of the project.
    """
    found = re.fullmatch(r"https://github\.com/(?P<owner>[\w-]+)/(?P<name>[\w.-]+)", repository)
    return f"https://{found['owner'].lower()}.github.io/{found['name']}" if found else ""


def navigation(pages: dict[str, str]) -> list[tuple[str, str]]:
    """Section and page of each entry, in order."""

    def walk(entry: Any, section: str) -> Iterator[tuple[str, str]]:
        if isinstance(entry, str):
            yield section, entry
        elif isinstance(entry, list):
            for one in entry:
                yield from walk(one, section)
        else:
            for title, below in entry.items():
                yield from walk(below, section or title)

    return list(walk(tomllib.loads(config(pages))["project"]["nav"], ""))


# ---------------------------------------------------------------- for language models


def llms(pages: dict[str, str]) -> str:
    """`llms.txt`: what there is, with links to the Markdown of each page."""
    published = site_address(package_page.project_address())
    base = f"{published}/{gemel.__version__}/" if published else ""
    lines = ["# Gemel", "", f"> {summary(pages['index.md'])}", "", _WHOLE_TEXTS, ""]
    lines += [f"- [{name}]({base}{name}): {', '.join(_sections(name, pages))}." for name in _settings("whole_texts")]
    last = ""
    for section, page in navigation(pages):
        if section != last:
            lines += ["", f"## {section}", ""]
            last = section
        lines.append(f"- [{_title(pages[page])}]({base}{page}): {summary(pages[page])}")
    return "\n".join(lines) + "\n"


def whole_text(name: str, pages: dict[str, str]) -> str:
    """The text of the pages that a file such as `llms-full.txt` has."""
    sections = _sections(name, pages)
    wanted = [page for section, page in navigation(pages) if section in sections]
    return "\n\n".join(f"<!-- {page} -->\n\n{pages[page].strip()}" for page in wanted) + "\n"


def _sections(name: str, pages: dict[str, str]) -> list[str]:
    """The sections of a whole text: those that its line names. A text that names none has all that no line names."""
    texts = _settings("whole_texts")
    named = [section for sections in texts.values() for section in sections]
    every = dict.fromkeys(section for section, _ in navigation(pages))
    return texts[name] or [section for section in every if section not in named]


def check_lengths(folder: Path) -> int:
    """Print how many tokens each whole text has; the exit code is 1 if the guides have more than models have room for."""
    names = list(_settings("whole_texts"))
    texts = [(folder / name).read_text(encoding="utf-8") for name in names]
    try:
        counted = dict(zip(names, tokens.count(texts), strict=True))
    except (OSError, subprocess.CalledProcessError) as exc:  # no npm, or no registry
        print(f"The texts for language models were not measured: {exc}", file=sys.stderr)
        return 0
    for name, number in counted.items():
        print(f"{name}: {number:,} tokens")
    if counted[GUIDES] <= MOST_TOKENS:
        return 0
    print(
        f"{GUIDES} may have {MOST_TOKENS:,} tokens: give a section a text of its own in {CONFIG.name}", file=sys.stderr
    )
    return 1


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ").strip()


def summary(text: str) -> str:
    """The first sentence of a page that is prose, as plain text."""
    parts = _FENCED.sub("", text).split("\n\n")[1:]
    body = next((part for part in map(str.strip, parts) if _PROSE.match(part)), "")
    body = re.sub(r"!?\[([^\]]*)\]\([^)]+\)", r"\1", " ".join(body.split()))
    body = re.sub(r"(\*\*?)([^*]+)\1", r"\2", body)
    found = re.match(r".*?(?:[.?](?= [A-Z`“\"]|$)|:$)", body)
    return (found[0] if found else body).rstrip(":.") + "."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
