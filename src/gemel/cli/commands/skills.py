"""`gemel skills`: list the skills of a server, print a file of one, or save all its files."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gemel.cli.connect import client_for, time_limits
from gemel.cli.console import Console, as_json
from gemel.client.terminal.display import is_terminal
from gemel.errors import StartError
from gemel.extensions.skills.client import LoadedSkill, SkillsClient
from gemel.schema.skills import MAIN, Skill
from gemel.user_files import path_within, write_new_file, writing
from gemel.visible import escape_line


async def run(options: argparse.Namespace) -> int:
    """Do what the action says. What does not match its digest is neither printed nor saved."""
    if options.action == "get" and options.name is None:
        raise StartError("gemel skills get needs a SKILL: its name, or its URI")
    if options.action == "list" and (options.name is not None or options.save is not None):
        raise StartError("gemel skills list takes a TARGET only")
    if options.save is not None and options.path is not None:
        raise StartError("--save saves all files of the skill: leave FILE out")
    with Console(options) as console:
        async with client_for(options, **console.client_options()) as client:
            skills = SkillsClient(client)
            if options.action == "list":
                _print_list(console, await skills.list(**time_limits(options)), options)
                return 0
            entry = await _find(skills, options)
            if options.json:
                console.print(as_json(entry))
                return 0
            loaded = await skills.load(entry, **time_limits(options))
            if options.save is not None:
                await _save(console, loaded, Path(options.save), options)
            else:
                await _print(console, loaded, options)
    return 0


def _print_list(console: Console, skills: list[Skill], options: argparse.Namespace) -> None:
    if options.json:
        console.print(as_json(skills))
        return
    for skill in skills:
        size = "no digests" if skill.resources == "dynamic" else f"{len(skill.resources)} files"
        console.print(f"{escape_line(skill.name)}  {escape_line(skill.uri)}  ({size})")
        console.print(f"    {escape_line(skill.description)}")


async def _find(skills: SkillsClient, options: argparse.Namespace) -> Skill:
    """The entry of the SKILL. Raises StartError if a name stands for none or for several."""
    if "://" in options.name:
        return await skills.get(options.name, **time_limits(options))
    listed = await skills.list(**time_limits(options))
    same = [skill for skill in listed if skill.name == options.name]
    if len(same) == 1:
        return same[0]
    if same:
        uris = ", ".join(skill.uri for skill in same)
        raise StartError(f"Several skills are called {options.name!r}: say which one by its URI: {uris}")
    names = ", ".join(sorted(skill.name for skill in listed)) or "none"
    raise StartError(f"The server lists no skill {options.name!r}, but {names}")


async def _print(console: Console, loaded: LoadedSkill, options: argparse.Namespace) -> None:
    data = loaded.text.encode() if options.path is None else await loaded.read(options.path, **time_limits(options))
    if is_terminal(sys.stdout):
        console.print(data.decode(errors="replace").rstrip("\n"))
    else:
        sys.stdout.buffer.write(data)
        sys.stdout.flush()


async def _save(console: Console, loaded: LoadedSkill, folder: Path, options: argparse.Namespace) -> None:
    """Save all files. Nothing is overwritten."""
    root = path_within(folder, loaded.entry.name)
    for path in loaded.files or [MAIN]:
        place = path_within(root, path)
        data = await loaded.read(path, **time_limits(options))
        with writing(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_new_file(place, data)
        console.note(f"saved {place}")
