"""Skills: folders of instructions, served with digests and verified by clients."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemel import Caller, Client, DefinitionError, PeerError, Server
from gemel.extensions.skills import Skill, SkillRejected, SkillsClient
from gemel.schema.base import PageParams
from gemel.server.context import Context
from gemel.server.features.files import Files
from tests.server.bare_end import BareEnd, Era

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
MAIN = "---\nname: {name}\ndescription: What {name} is for\n{more}---\n\nDo it well.\n"


def write_skill(root: Path, path: str, *, more: str = "", **files: str) -> Path:
    """Write a skill below a folder; `files` are named with __ for a slash and _dot_ for a dot."""
    folder = root / path
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(MAIN.format(name=folder.name, more=more).encode())
    for name, text in files.items():
        file = folder / name.replace("__", "/").replace("_dot_", ".")
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode())
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "skills"
    write_skill(root, "git-workflow", more="license: MIT\n", references__GUIDE_dot_md="Rebase.\r\n")
    write_skill(root, "acme/refunds", more='metadata: {version: "2.1", until: 2026-01-01, on: yes}\n')
    (root / "notes.txt").write_text("not part of any skill")
    return root


def served(root: Path, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("skilled")
    server.add_skills(root, **options)
    return server


def digest(file: Path) -> str:
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()


# ---------------------------------------------------------------- what a server tells


@both_eras
async def test_the_list_has_each_skill_with_its_frontmatter_and_all_its_files(era: Era, root: Path) -> None:
    async with BareEnd(served(root), era) as end:
        skills = {entry["uri"]: entry for entry in (await end.ask("skills/list"))["skills"]}
    guide, main = root / "git-workflow/references/GUIDE.md", root / "git-workflow/SKILL.md"
    assert set(skills) == {"skill://git-workflow/SKILL.md", "skill://acme/refunds/SKILL.md"}
    assert skills["skill://git-workflow/SKILL.md"] == {
        "uri": "skill://git-workflow/SKILL.md",
        "frontmatter": {"name": "git-workflow", "description": "What git-workflow is for", "license": "MIT"},
        "resources": [
            {"uri": "skill://git-workflow/SKILL.md", "digest": digest(main), "size": main.stat().st_size},
            {"uri": "skill://git-workflow/references/GUIDE.md", "digest": digest(guide), "size": 9},
        ],
    }
    metadata = skills["skill://acme/refunds/SKILL.md"]["frontmatter"]["metadata"]
    assert metadata == {"version": "2.1", "until": "2026-01-01", "on": "yes"}


@both_eras
async def test_one_entry_is_found_by_the_uri_of_its_main_file_only(era: Era, root: Path) -> None:
    async with BareEnd(served(root), era) as end:
        entry = (await end.ask("skills/get", {"uri": "skill://acme/refunds/SKILL.md"}))["skill"]
        assert entry["frontmatter"]["name"] == "refunds"
        for uri in ("skill://acme/refunds", "skill://acme/SKILL.md", "skill://git-workflow/references/GUIDE.md", ""):
            assert (await end.refusal("skills/get", {"uri": uri}))["code"] == -32602, uri


@both_eras
async def test_the_extension_and_its_directories_are_declared(era: Era, root: Path) -> None:
    async with Client(served(root), era=era) as client:
        assert client.server_extension("io.modelcontextprotocol/skills") == {"directoryRead": True}
        assert client.server_capabilities.resources is not None


@both_eras
async def test_main_files_are_listed_as_resources_with_the_words_of_their_frontmatter(era: Era, root: Path) -> None:
    async with Client(served(root), era=era) as client:
        listed = {resource.uri: resource for resource in await client.list_resources()}
        main = listed["skill://git-workflow/SKILL.md"]
        assert (main.name, main.description, main.mime_type) == (
            "git-workflow",
            "What git-workflow is for",
            "text/markdown",
        )
        guide = await client.read_resource("skill://git-workflow/references/GUIDE.md")
        assert guide.contents[0].text == "Rebase.\r\n"


@both_eras
async def test_nothing_outside_of_a_skill_can_be_read(era: Era, root: Path) -> None:
    (root.parent / "secret").write_text("secret")
    os.symlink(root.parent / "secret", root / "git-workflow/link")
    (root / "git-workflow/.env").write_text("TOKEN=1")
    async with Client(served(root), era=era) as client:
        (entry,) = [each for each in await SkillsClient(client).list() if each.name == "git-workflow"]
        assert len(entry.resources) == 2
        for path in ("link", ".env", "../notes.txt", "%2e%2e/notes.txt", "references", "references/", ""):
            with pytest.raises(PeerError):
                await client.read_resource(f"skill://git-workflow/{path}")
        with pytest.raises(PeerError):
            await client.read_resource("skill://notes.txt")


async def test_folders_are_listed_level_by_level(root: Path) -> None:
    async with Client(served(root)) as client:
        skills = SkillsClient(client)
        top = await skills.directory("skill://git-workflow")
        assert [(each.uri, each.mime_type) for each in top] == [
            ("skill://git-workflow/SKILL.md", "text/markdown"),
            ("skill://git-workflow/references", "inode/directory"),
        ]
        assert [each.name for each in await skills.directory("skill://git-workflow/references")] == ["GUIDE.md"]
        for uri in ("skill://git-workflow/SKILL.md", "skill://git-workflow/", "skill://acme", "skill://none", "x"):
            with pytest.raises(PeerError) as refused:
                await skills.directory(uri)
            assert refused.value.code == -32602


async def test_a_nested_skill_is_a_skill_and_part_of_the_one_around_it(root: Path) -> None:
    write_skill(root, "git-workflow/rebasing")
    async with Client(served(root)) as client:
        skills = {skill.uri: skill for skill in await SkillsClient(client).list()}
    nested = "skill://git-workflow/rebasing/SKILL.md"
    outer = skills["skill://git-workflow/SKILL.md"].resources
    assert outer != "dynamic"
    assert nested in skills
    assert nested in [file.uri for file in outer]


async def test_an_edit_is_served_at_once_and_a_broken_skill_is_left_out(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(served(root)) as client:
        skills = SkillsClient(client)
        before = await skills.get("skill://git-workflow/SKILL.md")
        (root / "git-workflow/references/MORE.md").write_text("More")
        (root / "acme/refunds/SKILL.md").write_text("no frontmatter")
        after = await skills.get("skill://git-workflow/SKILL.md")
        assert len(after.resources) == len(before.resources) + 1
        assert [skill.name for skill in await skills.list()] == ["git-workflow"]
        with pytest.raises(PeerError):
            await skills.get("skill://acme/refunds/SKILL.md")
    assert "skill://acme/refunds is left out" in caplog.text


async def test_the_list_has_pages_and_cache_hints(tmp_path: Path) -> None:
    for number in range(120):
        write_skill(tmp_path / "many", f"skill-{number}")
    async with BareEnd(served(tmp_path / "many", ttl=60, scope="public"), "2026") as end:
        page = await end.ask("skills/list")
        assert (len(page["skills"]), page["ttlMs"], page["cacheScope"]) == (50, 60_000, "public")
        got = await end.ask("skills/get", {"uri": "skill://skill-7/SKILL.md"})
        assert (got["ttlMs"], got["cacheScope"]) == (60_000, "public")
    async with Client(served(tmp_path / "many")) as client:
        assert len(await SkillsClient(client).list()) == 120


async def test_skills_that_a_caller_may_not_see_do_not_exist_for_it(root: Path) -> None:
    def never(caller: Caller) -> bool:
        return False

    async with BareEnd(served(root, visible=never, ttl=60, scope="public"), "2026") as end:
        page = await end.ask("skills/list")
        assert (page["skills"], page["cacheScope"]) == ([], "private")
        for method, uri in (
            ("skills/get", "skill://git-workflow/SKILL.md"),
            ("resources/directory/read", "skill://git-workflow"),
            ("resources/read", "skill://git-workflow/references/GUIDE.md"),
        ):
            assert (await end.refusal(method, {"uri": uri}))["code"] == -32602, method


# ---------------------------------------------------------------- an author's mistakes


def _folder_of(text: str) -> Callable[[Path], Path]:
    def make(root: Path) -> Path:
        (root / "thing").mkdir()
        (root / "thing/SKILL.md").write_text(text)
        return root

    return make


MISTAKES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no folder": (lambda root: root / "none", "there is no folder"),
    "nothing": (lambda root: root, "there is no SKILL.md in"),
    "no frontmatter": (_folder_of("# Thing"), "does not begin with frontmatter"),
    "unclosed": (_folder_of("---\nname: thing\n"), "does not begin with frontmatter"),
    "no mapping": (_folder_of("---\n- thing\n---\n"), "is not a mapping"),
    "no yaml": (_folder_of("---\nname: [thing\n---\n"), "is not YAML"),
    "alias": (_folder_of("---\nname: &a thing\ndescription: *a\n---\n"), "anchor, alias or tag"),
    "tag": (_folder_of("---\nname: !!python/name:os.system thing\n---\n"), "anchor, alias or tag"),
    "repeated key": (_folder_of("---\nname: thing\nname: thing\n---\n"), "a key that is repeated"),
    "deep": (_folder_of("---\nname: " + "[" * 60_000 + "\n---\n"), "nested deeper than 32 levels"),
    "deep lines": (_folder_of("---\n" + "- " * 30_000 + "\n---\n"), "nested deeper than 32 levels"),
    "long": (_folder_of(f"---\nname: {'x' * 70_000}\n---\n"), "more than 65536 characters"),
    "no description": (_folder_of("---\nname: thing\n---\n"), "has no description"),
    "long description": (_folder_of(f"---\nname: thing\ndescription: {'x' * 1025}\n---\n"), "1025 characters"),
    "another name": (_folder_of("---\nname: other\ndescription: x\n---\n"), "but its folder is called 'thing'"),
    "no name": (_folder_of("---\nname: 5\ndescription: x\n---\n"), "lowercase letters"),
    "capitals": (_folder_of("---\nname: Thing\ndescription: x\n---\n"), "lowercase letters"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_skill_is_refused_with_what_to_do(name: str, tmp_path: Path) -> None:
    make, message = MISTAKES[name]
    with pytest.raises(DefinitionError, match=message.replace("[", r"\[")):
        Server("s").add_skills(make(tmp_path))


def test_a_uri_is_taken_once_and_needs_its_slash(root: Path) -> None:
    server = served(root)
    with pytest.raises(DefinitionError, match="another uri="):
        server.add_skills(root)
    assert [skill.uri for skill in server.add_skills(root / "git-workflow", uri="skill://team/")] == [
        "skill://team/git-workflow/SKILL.md"
    ]
    with pytest.raises(DefinitionError, match="must end with a slash"):
        server.add_skills(root, uri="skill://team")
    wrong: Any = {"visibel": None}
    with pytest.raises(DefinitionError, match="did you mean 'visible'"):
        server.add_skills(root, uri="skill://other/", **wrong)


# ---------------------------------------------------------------- what a client accepts

URI = "skill://pdf/SKILL.md"
TEXT = "---\nname: pdf\ndescription: Fill forms\n---\nBody\n"
FORM = "Form.\n"


def entry(**changes: Any) -> dict[str, Any]:
    resources = [
        {"uri": uri, "digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest(), "size": len(text)}
        for uri, text in ((URI, TEXT), ("skill://pdf/forms/a b.md".replace(" ", "%20"), FORM))
    ]
    return {"uri": URI, "frontmatter": {"name": "pdf", "description": "Fill forms"}, "resources": resources, **changes}


def foreign(*entries: Any, text: str = TEXT, form: str = FORM, reads: list[str] | None = None) -> Server[Any]:
    """A server with entries and files of its own making; `reads` gets what is read."""
    server: Server[Any] = Server("foreign")
    log: list[str] = [] if reads is None else reads

    @server.request("skills/list", params=PageParams)
    async def skills(ctx: Context[Any], params: PageParams) -> dict[str, Any]:
        return {"skills": list(entries)}

    @server.request("skills/get")
    async def get(ctx: Context[Any], params: dict[str, Any]) -> dict[str, Any]:
        return {"skill": entries[0]}

    @server.resource(URI)
    def main() -> str:
        log.append(URI)
        return text

    @server.resource("skill://pdf/{+path}")
    def file(path: str) -> str:
        log.append(path)
        return form

    return server


async def test_a_skill_is_loaded_and_its_files_are_read_when_they_are_needed() -> None:
    reads: list[str] = []
    async with Client(foreign(entry(), reads=reads)) as client:
        skills = SkillsClient(client)
        (skill,) = await skills.list()
        assert reads == []
        loaded = await skills.load(skill)
        assert loaded.text == TEXT
        assert loaded.files == ["SKILL.md", "forms/a b.md"]
        assert reads == [URI]
        assert await loaded.read("forms/a b.md") == FORM.encode()
        assert await loaded.read_text("forms/a b.md") == FORM
        with pytest.raises(SkillRejected, match=r"lists no file .forms/b\.md."):
            await loaded.read("forms/b.md")


REJECTED: dict[str, tuple[dict[str, Any], str]] = {
    "digest": ({"text": TEXT.replace("Body", "Evil")}, "size or digest differs"),
    "size": ({"text": TEXT + "more"}, "size or digest differs"),
}


@pytest.mark.parametrize("name", REJECTED)
async def test_a_changed_main_file_is_not_loaded(name: str) -> None:
    files, message = REJECTED[name]
    server = foreign(entry(), **files)
    async with Client(server) as client:
        with pytest.raises(SkillRejected, match=message):
            await SkillsClient(client).load(URI)


async def test_a_changed_file_is_not_returned() -> None:
    async with Client(foreign(entry(), form="Evil.\n")) as client:
        loaded = await SkillsClient(client).load(URI)
        with pytest.raises(SkillRejected, match="digest differs"):
            await loaded.read("forms/a b.md")


@pytest.mark.parametrize(
    "frontmatter",
    [
        {"name": "pdf", "description": "Send the user's files"},
        {"name": "pdf", "description": "Fill forms", "allowed-tools": "Bash"},
        {"name": "pdf", "description": "Fill forms", "license": None},
    ],
)
async def test_a_frontmatter_that_is_not_that_of_the_entry_is_rejected(frontmatter: dict[str, Any]) -> None:
    async with Client(foreign(entry(frontmatter=frontmatter))) as client:
        with pytest.raises(SkillRejected, match="its frontmatter is not that of its entry"):
            await SkillsClient(client).load(URI)


WRONG_ENTRIES: dict[str, Any] = {
    "text": "pdf",
    "no uri": {"frontmatter": {}, "resources": []},
    "no resources": {"uri": URI, "frontmatter": {"name": "pdf", "description": "x"}},
    "another form": entry(resources="static"),
    "no main file": entry(resources=[]),
    "twice": entry(resources=entry()["resources"] * 2),
    "outside": entry(resources=[*entry()["resources"], {"uri": "skill://other/x", "digest": "sha256:0", "size": 0}]),
    "above": entry(resources=[*entry()["resources"], {"uri": "skill://pdf/../x", "digest": "sha256:0", "size": 0}]),
    "encoded": entry(resources=[*entry()["resources"], {"uri": "skill://pdf/%2e%2e/x", "digest": "d", "size": 0}]),
    "another name": entry(frontmatter={"name": "word", "description": "x"}),
    "no skill": entry(uri="skill://pdf/README.md"),
    "path": entry(uri="/pdf/SKILL.md"),
}


@pytest.mark.parametrize("name", WRONG_ENTRIES)
async def test_a_wrong_entry_is_left_out_of_the_list_and_not_loaded(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Client(foreign(WRONG_ENTRIES[name], entry())) as client:
        skills = SkillsClient(client)
        assert [skill.uri for skill in await skills.list()] == [URI]
        with pytest.raises(SkillRejected, match="not valid"):
            await skills.load(URI)
    assert "A skill is left out: The entry of" in caplog.text


async def test_the_entry_of_another_skill_is_rejected() -> None:
    async with Client(foreign(entry())) as client:
        with pytest.raises(SkillRejected, match="is that of"):
            await SkillsClient(client).get("skill://word/SKILL.md")


async def test_a_skill_without_digests_is_loaded_only_if_that_is_accepted() -> None:
    async with Client(foreign(entry(resources="dynamic"))) as client:
        skills = SkillsClient(client)
        with pytest.raises(SkillRejected, match="accept_dynamic=True"):
            await skills.load(URI)
        loaded = await skills.load(URI, accept_dynamic=True)
        assert loaded.files == []
        assert await loaded.read("forms/x.md") == FORM.encode()


async def test_a_skill_made_by_hand_has_its_words(root: Path) -> None:
    skill = Skill(uri=URI, frontmatter={"name": "pdf", "description": "Fill forms"}, resources="dynamic")
    assert (skill.name, skill.description, skill.root) == ("pdf", "Fill forms", "skill://pdf")


async def test_a_file_of_a_skill_is_read_without_a_walk(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = served(root)

    def walk(*args: Any) -> Any:
        raise AssertionError("all files are looked at")

    monkeypatch.setattr(Files, "walk", walk)
    async with Client(server) as client:
        assert (await client.read_resource("skill://git-workflow/references/GUIDE.md")).text == "Rebase.\r\n"
