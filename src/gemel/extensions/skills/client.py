"""The client's side of Skills: entries, and files that are verified against them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Unpack
from urllib.parse import quote, unquote

import msgspec

from gemel.client.call_options import CallOptions
from gemel.client.methods import ClientMethods
from gemel.errors import GemelError, InvalidResponse, shorten
from gemel.extensions.skills.entry import ID, check_frontmatter, digest_of, parse_frontmatter, require_yaml, same_json
from gemel.protocol.peer_log import warn_about_peer
from gemel.schema.resources import ListResourcesResult, Resource
from gemel.schema.skills import MAIN, GetSkillResult, ListSkillsResult, Skill, SkillFile

logger = logging.getLogger("gemel")


class SkillRejected(GemelError):
    """A skill or one of its files is not what its entry says. It must not be used.

    It may have changed since the entry was fetched: load it again with the entry of `SkillsClient.get`.
    """


class SkillsClient:
    """The skills of a server: `skills = SkillsClient(client)`.

    Nothing is read before it is asked for, and nothing is returned that does not match its digest. A matching digest says
    that the server has not contradicted itself, not that the skill can be trusted: ask the user before a model follows it.

    Args:
        client: A client that is connected.

    Raises:
        DefinitionError: The extra `gemel[skills]` is not installed.

    Specification: https://modelcontextprotocol.io/seps/2640-skills-extension
    """

    def __init__(self, client: ClientMethods) -> None:
        require_yaml()
        self._client = client

    @property
    def settings(self) -> dict[str, Any] | None:
        """What the server declares about skills; None if it has none."""
        return self._client.server_extension(ID)

    async def list(self, **options: Unpack[CallOptions]) -> list[Skill]:
        """List the skills (`skills/list`). A server may have others, which `get` finds by their URI.

        Args:
            **options: See `CallOptions`; `total` is the limit of all pages.

        Returns:
            The entries. Those that are not valid are left out, with a warning in the log.

        Raises:
            PeerError: The server has no skills.
            CallError: There is no result for another reason.
        """
        pages = await self._client.request_pages("skills/list", ListSkillsResult, **options)
        skills: list[Skill] = []
        left_out = 0
        for value in (entry for page in pages for entry in page.skills):
            try:
                skills.append(_entry(value))
            except SkillRejected as exc:
                left_out = warn_about_peer(left_out, "A skill is left out: %s", exc)
        return skills

    async def get(self, uri: str, **options: Unpack[CallOptions]) -> Skill:
        """Get the entry of one skill (`skills/get`), as it is now.

        Args:
            uri: The URI of its SKILL.md.
            **options: See `CallOptions`.

        Returns:
            The entry.

        Raises:
            PeerError: There is no such skill.
            SkillRejected: The entry is not valid.
            CallError: There is no result for another reason.
        """
        result = await self._client.request("skills/get", {"uri": uri}, result=GetSkillResult, **options)
        skill = _entry(result.skill)
        if skill.uri != uri:
            raise SkillRejected(f"The entry of {shorten(uri)} is that of {shorten(skill.uri)}")
        return skill

    async def load(
        self, skill: Skill | str, *, accept_dynamic: bool = False, **options: Unpack[CallOptions]
    ) -> LoadedSkill:
        """Read the SKILL.md of a skill and verify it: its size, its digest, and that its frontmatter is that of the entry.

        Args:
            skill: Its entry, or its URI, for which the entry is fetched first.
            accept_dynamic: Whether a skill without digests is accepted. Nothing shows then that its files belong together.
            **options: See `CallOptions`.

        Returns:
            The skill, to read its files.

        Raises:
            SkillRejected: It is not what its entry says, or has no digests.
            PeerError: The server does not have it.
            CallError: There is no result for another reason.
        """
        entry = await self.get(skill, **options) if isinstance(skill, str) else skill
        if entry.resources == "dynamic" and not accept_dynamic:
            raise SkillRejected(f"{entry.uri} has no digests: accept_dynamic=True loads it without verifying it")
        loaded = LoadedSkill(self._client, entry)
        text = _text(await loaded.read(MAIN, **options), entry.uri)
        try:
            frontmatter = parse_frontmatter(text)
        except ValueError as exc:
            raise SkillRejected(f"{entry.uri}: {exc}") from None
        if not same_json(frontmatter, entry.frontmatter):
            raise SkillRejected(f"{entry.uri}: its frontmatter is not that of its entry")
        loaded.text = text
        return loaded

    async def directory(self, uri: str, **options: Unpack[CallOptions]) -> Sequence[Resource]:
        """List what is in a folder of a skill (`resources/directory/read`).

        Args:
            uri: The URI of the folder, without a slash at the end.
            **options: See `CallOptions`.

        Returns:
            The files, and folders with the MIME type `inode/directory`.

        Raises:
            InvalidResponse: The server does not declare `directoryRead`.
            PeerError: There is no such folder.
            CallError: There is no result for another reason.
        """
        if (self.settings or {}).get("directoryRead") is not True:
            raise InvalidResponse("The server does not list folders of skills: it did not declare directoryRead")
        children: list[Resource] = []
        cursor: str | None = None
        for _ in range(self._client.limits.pages):
            params = {"uri": uri} if cursor is None else {"uri": uri, "cursor": cursor}
            page = await self._client.request("resources/directory/read", params, result=ListResourcesResult, **options)
            children += page.resources
            cursor = page.next_cursor
            if cursor is None:
                return children
        raise InvalidResponse("resources/directory/read: the pages of the server don't end")


class LoadedSkill:
    """A skill whose SKILL.md was read and verified. Made by `SkillsClient.load`.

    Args:
        client: A client that is connected.
        entry: The entry that its files are verified against.

    Attributes:
        entry: The entry that its files are verified against.
        text: Its SKILL.md with the frontmatter.
    """

    def __init__(self, client: ClientMethods, entry: Skill) -> None:
        self._client = client
        self.entry = entry
        self.text = ""
        files: list[SkillFile] | Literal["dynamic"] = entry.resources
        #: None if the skill has no digests.
        self._files = None if files == "dynamic" else {unquote(file.uri): file for file in files}

    @property
    def files(self) -> list[str]:
        """The paths of its files, from its folder on; empty if the skill has no digests."""
        root = unquote(self.entry.root) + "/"
        return [uri.removeprefix(root) for uri in self._files or ()]

    async def read(self, path: str, **options: Unpack[CallOptions]) -> bytes:
        """Read a file and verify it.

        Args:
            path: Its path from the folder of the skill on, such as "references/FORMS.md".
            **options: See `CallOptions`.

        Returns:
            The bytes.

        Raises:
            SkillRejected: The entry does not list the file, or it has another size or digest.
            PeerError: The server does not have it.
            CallError: There is no result for another reason.
        """
        uri = f"{self.entry.root}/{quote(path)}"
        expected: SkillFile | None = None
        if self._files is not None:
            expected = self._files.get(unquote(uri))
            if expected is None:
                raise SkillRejected(f"{self.entry.uri} lists no file {shorten(path)!r}: the skill may have changed")
            uri = expected.uri
        result = await self._client.read_resource(uri, cache="bypass", **options)
        if len(result.contents) != 1:
            raise SkillRejected(f"{uri} came in {len(result.contents)} parts: a file of a skill has one")
        data = result.contents[0].decoded
        if expected is not None and (len(data) != expected.size or digest_of(data) != expected.digest):
            raise SkillRejected(f"{uri} is not what its entry says: its size or digest differs")
        return data

    async def read_text(self, path: str, **options: Unpack[CallOptions]) -> str:
        """Read a file as text and verify it.

        Args:
            path: Its path from the folder of the skill on.
            **options: See `CallOptions`.

        Returns:
            The text.

        Raises:
            SkillRejected: It is not what the entry says, or not UTF-8.
            PeerError: The server does not have it.
            CallError: There is no result for another reason.
        """
        return _text(await self.read(path, **options), path)


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise SkillRejected(f"{shorten(name)} is not UTF-8") from None


def _entry(value: object) -> Skill:
    """An entry, with its rules checked. Raises SkillRejected."""
    uri = value.get("uri") if isinstance(value, Mapping) else None
    try:
        skill = msgspec.convert(value, Skill)
        _check_entry(skill)
    except ValueError as exc:  # msgspec.ValidationError is one
        raise SkillRejected(f"The entry of {shorten(str(uri))} is not valid: {shorten(str(exc))}") from None
    return skill


def _check_entry(skill: Skill) -> None:
    root, slash, main = skill.uri.rpartition("/")
    if not slash or main != MAIN or "://" not in root:
        raise ValueError(f"a skill is named by the URI of its {MAIN}")
    check_frontmatter(skill.frontmatter, unquote(root.rpartition("/")[2]))
    if skill.resources == "dynamic":
        return
    uris = [file.uri for file in skill.resources]
    if len(set(uris)) != len(uris) or skill.uri not in uris:
        raise ValueError(f"its files must be listed once each, {MAIN} among them")
    for uri in uris:
        path = unquote(uri.removeprefix(root + "/"))
        if not uri.startswith(root + "/") or any(
            part in ("", ".", "..") for part in path.replace("\\", "/").split("/")
        ):
            raise ValueError(f"{shorten(uri)} is not in its folder")
