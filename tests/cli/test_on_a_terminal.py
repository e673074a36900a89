"""The commands in a real terminal: who is asked, what is drawn, what Ctrl-C means."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ports import free_port
from tests.typist import at_the_terminal

SERVER = '''
"""A server with questions."""
import asyncio, sys
from dataclasses import dataclass
from typing import Literal

from gemel import Context, Declined, Server

server = Server("shop")


@dataclass
class Order:
    """What is wanted."""

    size: Literal["small", "large"]
    count: int = 1


@server.tool
async def order(ctx: Context, item: str) -> str:
    """Order something. \\x1b[2J

    Args:
        item: what to order
    """
    await ctx.report_progress(1, 2, "looking \\x1b[2J")
    print("a word on stderr \\x1b[2J", file=sys.stderr, flush=True)
    await ctx.warning("careful \\x1b[2J")
    try:
        wanted = await ctx.elicit(f"How much {item}?", Order)
        sure, gift = await asyncio.gather(ctx.elicit("Sure?", bool), ctx.elicit("A gift?", bool))
    except Declined as declined:
        return declined.action
    return f"{wanted.count} {wanted.size} {item} {sure} {gift} \\x1b[2J"


@server.tool
async def log_in(ctx: Context) -> str:
    """Ask to open a page."""
    try:
        await ctx.elicit_url("Log in \\x1b[2J", "https://accounts.example.com/login?state=1")
    except Declined as declined:
        return declined.action
    return "welcome"


@server.tool
async def joke(ctx: Context) -> str:
    """Ask the model."""
    return (await ctx.sample("A joke, please", max_tokens=10)).text


@server.tool
async def sleep(ctx: Context) -> str:
    """Take long."""
    await ctx.report_progress(0, message="asleep")
    await asyncio.sleep(600)
    return "never"


@server.prompt
def brief(topic: str) -> str:
    """About something."""
    return f"Tell me about {topic}."


@server.resource("shop://logo", mime_type="image/png")
def logo() -> bytes:
    return bytes(4)


for number in range(30):
    server.tool(f"tool_{number}", description=f"Number {number}. " + "word " * 30)(lambda: "")
'''

ERAS = ("2025", "2026")


@pytest.fixture
def server(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SERVER)
    return f"{tmp_path}/shop.py"


def gemel(*words: str) -> list[str]:
    return [sys.executable, "-m", "gemel", *words]


def clean(screen: str) -> bool:
    """Whether nothing has controlled the terminal but what draws prompts and progress."""
    return not [character for character in screen if not character.isprintable() and character != "\n"]


@pytest.mark.parametrize("era", ERAS)
async def test_the_questions_of_a_tool_are_answered_where_it_was_called(server: str, era: str) -> None:
    """Missing arguments first, then a form, then two questions one after the other; and nothing repaints the screen."""
    async with at_the_terminal(gemel("call", server, "order", "--era", era)) as (typist, process):
        assert "── order needs more arguments\n" in await typist.answers("item:", "tea")
        await typist.answers("2  large\n  size:", "huge")
        await typist.sees("! 'huge' is not one of the choices")
        await typist.answers("size:", "2")
        await typist.answers("count [1]:", "3")
        await typist.answers("Send this?", "y")
        for _ in range(2):
            await typist.answers("yes or no\n  value:", "y")
        await typist.sees("3 large tea True True \\x1b[2J\n")
        assert f"{'━' * 10}{' ' * 11}1/2 looking \\x1b[2J" in typist.seen
        assert "a word on stderr \\x1b[2J\n" in typist.seen
        assert "warning: careful \\x1b[2J\n" in typist.seen
    assert process.returncode == 0
    assert clean(typist.seen)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("keys", "action"), [("\x03", "cancel"), ("\x04", "cancel"), ("/no\n", "decline")])
async def test_leaving_a_question_answers_it_and_ends_nothing_else(
    server: str, era: str, keys: str, action: str
) -> None:
    """The shell gets its terminal back as it was."""
    command = gemel("call", server, "order", "item=tea", "--era", era)
    async with at_the_terminal(["/bin/sh", "-c", '"$@"; echo "code $?"; stty -a', "sh", *command]) as (typist, _):
        await typist.sees("size:")
        typist.type(keys)
        await typist.sees(f"\n{action}\ncode 0\n")
        await typist.sees("intr = ^C;")
        await typist.sees("eol = <undef>;")


@pytest.mark.parametrize("era", ERAS)
async def test_a_page_is_opened_in_the_users_browser_after_consent(server: str, era: str, tmp_path: Path) -> None:
    """ELIC-19, ELIC-20: the browser is a program that writes down what it is to open."""
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/opened\n')
    browser.chmod(0o755)
    opened = tmp_path / "opened"
    for said, shown in (("n", "decline"), ("y", "welcome")):
        command = gemel("call", server, "log_in", "--era", era)
        async with at_the_terminal(command, {"BROWSER": f"{browser} %s"}) as (typist, process):
            await typist.sees("host      accounts.example.com\n  Open it on accounts.example.com? [y/n]:")
            assert not opened.exists()
            typist.type(f"{said}\n")
            await typist.sees(f"{shown}\n")
        assert process.returncode == 0
        assert clean(typist.seen)
    assert opened.read_text() == "https://accounts.example.com/login?state=1\n"


@pytest.mark.parametrize("era", ERAS)
async def test_a_request_to_the_model_is_answered_by_hand(server: str, era: str) -> None:
    async with at_the_terminal(gemel("call", server, "joke", "--era", era)) as (typist, _):
        await typist.answers("Answer it yourself? [y/n]:", "y")
        await typist.answers(">", "Knock knock.")
        await typist.answers(">", ".")
        await typist.sees("\nKnock knock.\n")


async def test_no_input_means_no_questions(server: str) -> None:
    async with at_the_terminal(gemel("call", server, "log_in", "--no-input")) as (typist, process):
        await typist.sees("gemel: Missing required client capability: elicitation")
    assert process.returncode == 1


async def test_ctrl_c_during_a_call_ends_the_command(server: str) -> None:
    async with at_the_terminal(gemel("call", server, "sleep")) as (typist, process):
        await typist.sees("asleep")
        typist.type("\x03")
    assert process.returncode == 130
    assert "Traceback" not in typist.seen


async def test_what_a_server_said_before_it_died_is_shown_once_and_harmless(tmp_path: Path) -> None:
    (tmp_path / "dead.py").write_text("raise SystemExit('no database \\x1b[2J')\n")
    async with at_the_terminal(gemel("call", f"{tmp_path}/dead.py", "x"), columns=500) as (typist, process):
        await typist.sees("see what it wrote to standard error\n")
    assert process.returncode == 1
    assert typist.seen.count("no database \\x1b[2J\n") == typist.seen.count("no database") == 1
    assert clean(typist.seen)


async def test_any_server_of_a_configuration_can_be_called_from_a_terminal(server: str, tmp_path: Path) -> None:
    """Only those that run in a child process have a standard error."""
    url = f"http://127.0.0.1:{free_port()}/mcp"
    shop: dict[str, Any] = {"command": sys.executable, "args": ["-m", "gemel", "run", server]}
    found = {"shop": shop, "far": {"url": url}, "old": {"url": url, "type": "sse"}}
    config = tmp_path / "servers.json"
    config.write_text(json.dumps({"mcpServers": found}))
    async with at_the_terminal(gemel("prompt", f"{config}:shop", "brief", "topic=tea")) as (typist, _):
        await typist.sees("user: Tell me about tea.\n")
    for name in ("far", "old"):
        async with at_the_terminal(gemel("prompt", f"{config}:{name}", "brief", "topic=tea"), columns=200) as (
            typist,
            _,
        ):
            await typist.sees("Is the server running?")


async def test_a_missing_argument_of_a_prompt_is_asked_for(server: str) -> None:
    async with at_the_terminal(gemel("prompt", server, "brief")) as (typist, _):
        await typist.answers("topic:", "tea")
        await typist.sees("user: Tell me about tea.\n")


async def test_bytes_are_not_thrown_at_a_terminal(server: str) -> None:
    async with at_the_terminal(gemel("read", server, "shop://logo")) as (typist, _):
        await typist.sees("[image/png, 4 bytes, shop://logo]\nSave it with --save DIR")
    assert clean(typist.seen)


async def test_a_list_fits_the_width_of_the_terminal(server: str) -> None:
    async with at_the_terminal(gemel("list", server), columns=50) as (typist, _):
        await typist.sees("resource shop://logo\n")
    lines = typist.seen.split("\n")
    assert max(map(len, lines)) <= 50
    assert any(line.startswith("order(item: string)") for line in lines)
    assert "    Order something. \\x1b[2J" in lines
    assert clean(typist.seen)


async def test_a_list_longer_than_the_terminal_goes_through_the_pager(server: str, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho paged $(wc -l)\n")
    pager.chmod(0o755)
    for lines, paged in ((24, True), (2000, False)):
        async with at_the_terminal(gemel("list", server), {"PAGER": str(pager)}, lines=lines) as (typist, _):
            await typist.sees("paged " if paged else "resource shop://logo")
        assert ("paged" in typist.seen) == paged


async def test_styles_are_there_for_those_who_want_them(server: str) -> None:
    for environment, styled in (({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)):
        async with at_the_terminal(gemel("list", server), environment, lines=2000) as (typist, _):
            await typist.sees("shop://logo")
        assert ("\x1b[1m" in typist.seen) == styled


async def test_json_stays_json_on_a_terminal(server: str) -> None:
    async with at_the_terminal(gemel("list", server, "--json"), columns=200, lines=5000) as (typist, _):
        pass
    found: dict[str, Any] = json.loads(typist.seen)
    assert len(found["tools"]) == 34
