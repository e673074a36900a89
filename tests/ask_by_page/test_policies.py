"""A policy that asks by page, and the receipts of its calls: in both eras, at the machine and over HTTP."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemel import Context, PeerError, Server, ToolError
from gemel.extensions.tasks import Tasks
from gemel.policies import Policy
from gemel.receipts import Receipts
from tests.ask_by_page.places import anonymous, authorized, local
from tests.ask_by_page.visitor import link_in
from tests.receipts.written import all_lines, receipts

both_eras = pytest.mark.parametrize("era", ["2025", "2026"])
RULES = """
[[rule]]
name = "deleting"
tool = "delete"
effect = "ask"
"""


class Files:
    """A server with a policy and receipts."""

    def __init__(self, directory: Path) -> None:
        self.receipts = directory / "receipts.jsonl"
        self._rules = directory / "policy.toml"
        self._rules.write_text(RULES)
        self.deleted: list[str] = []

    def make(self, **options: Any) -> Server[Any]:
        noted = Receipts(self.receipts, sync="written")
        server: Server[Any] = Server("files", middleware=[noted, Policy(self._rules)], **options)

        @server.tool
        async def delete(ctx: Context, name: str) -> str:
            """Delete a file; the user is asked why."""
            reason = await ctx.elicit(f"Why is {name} deleted?")
            self.deleted.append(name)
            return f"{name} is deleted: {reason}"

        return server


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@both_eras
@pytest.mark.parametrize("place", [local, authorized])
async def test_a_call_is_approved_and_its_handler_asks_too(era: str, place: Any, files: Files) -> None:
    async with place(files.make, era) as here:
        asked = await here.call("delete", {"name": "a.txt"})
        assert "Allow delete" in asked.text
        page = await here.browser.open(here.link(asked))
        assert '"name": "a.txt"' in page.text
        allowed = await here.browser.send(page)
        assert "You allowed this call" in allowed.text
        reason = await here.call("delete", {"name": "a.txt"})
        assert "Why is a.txt deleted?" in reason.text
        assert files.deleted == []
        await here.browser.answer(here.link(reason), {"Your answer": "old"})
        assert (await here.call("delete", {"name": "a.txt"})).text == "a.txt is deleted: old"
    lines = [line for line in all_lines(files.receipts) if line["kind"] in ("asked", "call")]
    assert [line["kind"] for line in lines] == ["asked", "asked", "call"]
    last = lines[-1]
    approved_by = "the user" if place is local else "ann"
    assert (last["outcome"], last["effect"], last["rule"]) == ("ok", "ask", "deleting")
    assert last["approved_by"] == approved_by


@both_eras
@pytest.mark.parametrize("place", [local, authorized])
async def test_a_call_that_is_not_approved_has_no_effect(era: str, place: Any, files: Files) -> None:
    async with place(files.make, era) as here:
        link = here.link(await here.call("delete", {"name": "a"}))
        refused = await here.browser.answer(link, action="decline")
        assert "You did not allow this call" in refused.text
        assert "did not allow" in (await here.call("delete", {"name": "a"})).text
    assert files.deleted == []
    assert [line["outcome"] for line in receipts(files.receipts)] == ["declined"]


async def test_the_page_of_a_policy_has_two_buttons_and_nothing_to_fill_in(files: Files) -> None:
    async with local(files.make, "2026") as here:
        page = await here.browser.open(here.link(await here.call("delete", {"name": "a"})))
        assert [control.kind for control in page.controls] == ["hidden", "hidden"]
        assert "Allow Decline" in page.text


@both_eras
async def test_an_approval_counts_for_its_arguments_only(era: str, files: Files) -> None:
    async with authorized(files.make, era) as here:
        await here.browser.answer(here.link(await here.call("delete", {"name": "a"})))
        assert "Allow delete" in (await here.call("delete", {"name": "b"})).text


@both_eras
async def test_whoever_has_the_link_approves_nothing(era: str, files: Files) -> None:
    async with anonymous(files.make, era) as here:
        with pytest.raises((PeerError, ToolError), match="elicitation"):
            await here.client.call_tool("delete", {"name": "a"})
    assert files.deleted == []


def clearing(cleared: list[str], **options: Any) -> Server[Any]:
    """A server whose tool may be a task, with a policy."""
    rules = {"rule": [{"name": "clearing", "effect": "ask"}]}
    server: Server[Any] = Server("files", middleware=[Policy(rules)], extensions=[Tasks()], **options)

    @server.tool(task="optional")
    async def clear(name: str) -> str:
        cleared.append(name)
        return f"{name} is cleared"

    return server


@pytest.mark.parametrize("place", [local, authorized])
async def test_a_call_that_becomes_a_task_runs_after_its_page_was_answered(place: Any) -> None:
    cleared: list[str] = []
    async with place(partial(clearing, cleared), "2026") as here:

        async def clear() -> str:
            task = await here.client.call_tool("clear", {"name": "a"}, task=True)
            return str((await task.result()).text)

        with pytest.raises(ToolError, match="Allow clear") as asked:
            await clear()
        await here.browser.answer(link_in(str(asked.value)) if place is authorized else here.opened[-1])
        assert cleared == []
        assert await clear() == "a is cleared"
        with pytest.raises(ToolError, match="Allow clear"):  # another call
            await clear()
    assert cleared == ["a"]


@pytest.mark.parametrize("place", [local, authorized])
async def test_a_request_for_a_task_has_an_error_and_no_page(place: Any) -> None:
    """Its result is a task, which can't name a page."""
    cleared: list[str] = []
    async with place(partial(clearing, cleared), "2025") as here:
        with pytest.raises(
            PeerError, match=r"elicitation, by which the policy asks before clear is called \(clearing\)"
        ):
            await here.client.call_tool("clear", {"name": "a"}, task=True)
        assert here.opened == []
        assert "Allow clear" in (await here.call("clear", {"name": "a"})).text
    assert cleared == []
