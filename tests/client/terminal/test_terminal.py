"""Questions of servers at a real terminal: what is shown, what is taken for an answer, what never happens."""

from __future__ import annotations

import asyncio
import io
import logging
import os
import signal
from collections.abc import AsyncIterator
from typing import Any, Literal

import pytest

from gemel import (
    Client,
    ClientGroup,
    Context,
    CreateMessageParams,
    CreateMessageResult,
    Declined,
    ElicitFormParams,
    ElicitResult,
    ElicitUrlParams,
    Prompt,
    SamplingMessage,
    SamplingRejected,
    Server,
    Terminal,
    TextContent,
    Tool,
)
from gemel.schema.prompts import PromptArgument
from tests.typist import Typist

ERAS: tuple[Literal["2025", "2026"], ...] = ("2025", "2026")
BOTH = [pytest.param(era, id=f"era {era}") for era in ERAS]


@pytest.fixture
async def typist(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Typist]:
    monkeypatch.setenv("TERM", "dumb")  # without styles: each escape sequence on the screen is a fault
    monkeypatch.delenv("COLUMNS", raising=False)
    async with Typist() as typist:
        yield typist


@pytest.fixture
def terminal(typist: Typist) -> Terminal:
    return Terminal(input=typist.keyboard, output=typist.screen)


def form(properties: dict[str, Any], message: str = "Please", required: list[str] | None = None) -> ElicitFormParams:
    schema = {"type": "object", "properties": properties, "required": required or []}
    return ElicitFormParams(message=message, requested_schema=schema)


NAME = form({"name": {"type": "string", "minLength": 2}}, required=["name"])


def sampling(text: str = "Tell me a joke") -> CreateMessageParams:
    message = SamplingMessage(role="user", content=TextContent(text=text))
    return CreateMessageParams(messages=[message], max_tokens=50)


# ---------------------------------------------------------------- forms


async def test_a_form_is_asked_field_by_field_and_looked_over(typist: Typist, terminal: Terminal) -> None:
    """ELIC-09, ELIC-19: defaults are filled in, and nothing is sent before the user saw all of it."""
    wanted = form(
        {
            "name": {"type": "string", "description": "what to call you"},
            "seat": {"type": "string", "enum": ["a", "w"], "enumNames": ["Aisle", "Window"]},
            "meals": {"type": "array", "items": {"anyOf": [{"const": "m", "title": "Meat"}, {"const": "f"}]}},
            "count": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
            "price": {"type": "number"},
            "ok": {"type": "boolean", "default": True},
        },
        required=["name", "seat", "price"],
    )
    answer = asyncio.create_task(terminal.elicit(wanted))
    assert "│ Please\n" in await typist.answers("name:", "Ada")
    await typist.answers("2  Window\n  seat:", "win")
    await typist.answers("meals:", "meat, 2")
    await typist.answers("count [1]:", "9")
    await typist.sees("greater than the maximum of 5")
    await typist.answers("count [1]:", "2")
    await typist.answers("price:", "3.5")
    await typist.answers("ok [yes]:", "")
    shown = await typist.answers("Send this? [Y]es, (c)hange, (n)o:", "c")
    assert "  seat: Window\n  meals: Meat, f\n  count: 2\n  price: 3.5\n  ok: yes\n" in shown
    for question in ("name [Ada]:", "seat [Window]:", "meals [Meat, f]:", "count [2]:"):
        await typist.answers(question, "")
    await typist.answers("price [3.5]:", "4")
    await typist.answers("ok [yes]:", "n")
    await typist.answers("Send this?", "")
    content = {"name": "Ada", "seat": "w", "meals": ["m", "f"], "count": 2, "price": 4, "ok": False}
    assert await answer == ElicitResult(action="accept", content=content)


async def test_an_answer_that_does_not_fit_is_asked_for_again_but_not_for_ever(
    typist: Typist, terminal: Terminal
) -> None:
    answer = asyncio.create_task(terminal.elicit(NAME))
    for _ in range(5):
        await typist.answers("name:", "A")
        await typist.sees("shorter than 2 characters")
    assert await answer == ElicitResult(action="cancel")


async def test_a_field_may_be_left_out_or_be_empty_where_the_form_says_so(typist: Typist, terminal: Terminal) -> None:
    wanted = form(
        {key: {"type": "string"} for key in "abcd"} | {"d": {"type": "string", "default": "x"}}, required=["b"]
    )
    answer = asyncio.create_task(terminal.elicit(wanted))
    await typist.answers("a:", "")
    await typist.answers("b:", "")
    await typist.sees("! a value is required")
    await typist.answers("b:", '""')
    await typist.answers("c:", "//skip")
    await typist.answers("d [x]:", "/skip")
    await typist.answers("Send this?", "yes")
    assert (await answer).content == {"b": "", "c": "/skip"}


async def test_a_form_without_fields_is_a_question_for_consent(typist: Typist, terminal: Terminal) -> None:
    for said, action in (("y", "accept"), ("n", "decline")):
        answer = asyncio.create_task(terminal.elicit(form({}, "Delete it?")))
        await typist.answers("Agree? [y/n]:", "")
        await typist.sees("! type y for yes or n for no")
        await typist.answers("Agree? [y/n]:", said)
        assert (await answer).action == action


@pytest.mark.parametrize(
    ("keys", "action"), [("\x03", "cancel"), ("half\x03", "cancel"), ("\x04", "cancel"), ("/no\n", "decline")]
)
async def test_the_user_can_decline_and_cancel(typist: Typist, terminal: Terminal, keys: str, action: str) -> None:
    """ELIC-19; and the terminal is afterwards what it was before."""
    before = typist.modes
    answer = asyncio.create_task(terminal.elicit(NAME))
    await typist.sees("name:")
    assert typist.modes != before
    typist.type(keys)
    assert await answer == ElicitResult(action=action)  # type: ignore[arg-type]  # one of the three words
    assert typist.modes == before


async def test_a_terminal_that_goes_away_cancels(typist: Typist, terminal: Terminal) -> None:
    answer = asyncio.create_task(terminal.elicit(NAME))
    await typist.sees("name:")
    typist.hang_up()
    assert (await answer).action == "cancel"


async def test_what_was_typed_before_the_question_is_no_answer(typist: Typist, terminal: Terminal) -> None:
    typist.type("y\n")
    answer = asyncio.create_task(terminal.elicit(form({}, "Delete everything?")))
    await typist.sees("Agree? [y/n]:")
    typist.type("n\n")
    assert (await answer).action == "decline"


async def test_a_form_for_a_password_comes_with_a_warning(typist: Typist, terminal: Terminal) -> None:
    """ELIC-18."""
    answer = asyncio.create_task(terminal.elicit(form({"pw": {"type": "string", "title": "Your password"}})))
    await typist.sees("! Servers may not ask for passwords")
    await typist.answers("Your password:", "/no")
    assert (await answer).action == "decline"


async def test_a_form_that_is_none_is_declined_with_a_reason(
    typist: Typist, terminal: Terminal, caplog: pytest.LogCaptureFixture
) -> None:
    too_long = form({f"f{number}": {"type": "string"} for number in range(101)})
    assert (await terminal.elicit(too_long)).action == "decline"
    await typist.sees("This form can't be shown: it has 101 fields")
    assert "is declined: it has 101 fields" in caplog.text


async def test_ctrl_c_before_a_prompt_is_drawn_cancels_as_well(typist: Typist, terminal: Terminal) -> None:
    """The terminal is taken before the first word is shown: no signal ends the program in between."""
    answer = asyncio.create_task(terminal.elicit(NAME))
    await typist.sees("asks")
    typist.type("\x03")
    assert (await answer).action == "cancel"


# ---------------------------------------------------------------- what a server can't do


HOSTILE = "nice\x1b[2J\x1b]0;owned\x07\r\b\x9b31m\u202egnp.exe\u2066\n── gemel asks ─\n  Agree? [y/n]: y\nlast"


async def test_nothing_that_a_server_sends_moves_the_cursor_or_looks_like_our_words(
    typist: Typist, terminal: Terminal
) -> None:
    """Each of its lines stands behind a bar; each character that isn't visible stands there as its escape."""
    wanted = form({HOSTILE: {"type": "string", "title": HOSTILE, "description": HOSTILE, "default": HOSTILE}}, HOSTILE)
    answer = asyncio.create_task(terminal.elicit(wanted, HOSTILE))
    shown = await typist.answers("…]:", "/no")
    assert (await answer).action == "decline"
    assert not [character for character in typist.raw if not character.isprintable() and character not in "\r\n"]
    assert "│ nice\\x1b[2J\\x1b]0;owned\\x07\\r\\x08\\u009b31m\\u202egnp.exe\\u2066\n│ ── gemel asks ─\n" in shown
    assert "\n  Agree?" not in shown


async def test_long_words_leave_the_question_on_the_screen(typist: Typist, terminal: Terminal) -> None:
    answer = asyncio.create_task(terminal.elicit(form({}, "x" * 1_000_000 + "\n" * 5000)))
    shown = await typist.answers("Agree?", "n")
    assert shown.count("\n") < 60
    assert "(the rest is not shown)" in shown
    assert (await answer).action == "decline"


async def test_a_narrow_terminal_and_wide_characters_keep_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.delenv("COLUMNS", raising=False)
    async with Typist(columns=24) as typist:
        terminal = Terminal(input=typist.keyboard, output=typist.screen)
        answer = asyncio.create_task(terminal.elicit(form({}, "世界" * 20)))
        shown = await typist.answers("Agree?", "n")
        await answer
    quoted = [line for line in shown.split("\n") if "世" in line]
    assert all(line.startswith("│ ") and len(line) <= 2 + 10 for line in quoted)


# ---------------------------------------------------------------- pages


@pytest.mark.parametrize(("said", "action"), [("y", "accept"), ("n", "decline"), ("\x03", "cancel")])
async def test_a_page_is_opened_only_after_the_user_saw_its_host_and_agreed(
    typist: Typist, said: str, action: str
) -> None:
    """ELIC-12, ELIC-19, ELIC-20."""
    opened: list[str] = []

    def open_url(url: str) -> bool:
        opened.append(url)
        return True

    terminal = Terminal(input=typist.keyboard, output=typist.screen, open_url=open_url)
    url = "https://accounts.example.com:8443/login?state=1"
    answer = asyncio.create_task(terminal.elicit_url(ElicitUrlParams(message="Log in", url=url, mode="url")))
    shown = await typist.sees("Open it on accounts.example.com:8443? [y/n]:")
    assert f"  address   {url}\n  host      accounts.example.com:8443\n" in shown
    assert not opened
    typist.type(said if said == "\x03" else f"{said}\n")
    assert await answer == ElicitResult(action=action)  # type: ignore[arg-type]  # one of the three words
    assert opened == ([url] if action == "accept" else [])


async def test_a_browser_that_cannot_be_started_leaves_the_address_to_the_user(typist: Typist) -> None:
    def fail(url: str) -> bool:
        raise OSError("no display")

    terminal = Terminal(input=typist.keyboard, output=typist.screen, open_url=fail)
    page = ElicitUrlParams(message="Log in", url="https://example.com/", mode="url")
    answer = asyncio.create_task(terminal.elicit_url(page))
    await typist.answers("[y/n]:", "y")
    await typist.sees("open the address yourself")
    assert (await answer).action == "accept"


@pytest.mark.parametrize("url", ["javascript:alert(1)", "file:///etc/passwd", "https://a\\b.example", "https://", "x"])
async def test_what_is_no_page_is_declined_unasked(typist: Typist, url: str) -> None:
    terminal = Terminal(input=typist.keyboard, output=typist.screen, open_url=lambda url: pytest.fail(url))
    page = ElicitUrlParams(message="Log in", url=url, mode="url")
    assert (await terminal.elicit_url(page)).action == "decline"
    await typist.sees("This page is not opened")


# ---------------------------------------------------------------- requests to a model


async def test_a_request_to_the_model_is_shown_and_answered_by_hand(typist: Typist, terminal: Terminal) -> None:
    """Nothing is answered before the user agreed."""
    answer = asyncio.create_task(terminal.sample(sampling()))
    shown = await typist.answers("Answer it yourself? [y/n]:", "y")
    assert "  user:\n│ Tell me a joke\n" in shown
    await typist.answers(">", "Knock")
    await typist.answers(">", "knock.")
    await typist.answers(">", ".")
    assert (await answer).text == "Knock\nknock."


@pytest.mark.parametrize("keys", ["n\n", "\x04"])
async def test_a_request_to_the_model_can_be_refused(typist: Typist, terminal: Terminal, keys: str) -> None:
    answer = asyncio.create_task(terminal.sample(sampling()))
    await typist.sees("[y/n]:")
    typist.type(keys)
    with pytest.raises(SamplingRejected):
        await answer


async def test_a_model_is_asked_after_one_consent_and_its_answer_sent_after_another(
    typist: Typist, terminal: Terminal
) -> None:
    asked: list[str] = []

    async def model(request: CreateMessageParams) -> str | CreateMessageResult:
        asked.append(request.messages[0].text)
        return "A \x1b[1mjoke"

    sample: Any = terminal.sample_with(model)
    for first, second in (("n", ""), ("y", "n"), ("y", "y")):
        answer = asyncio.create_task(sample(sampling(first + second)))
        await typist.answers("Ask the model? [y/n]:", first)
        if second:
            assert "│ A \\x1b[1mjoke" in await typist.answers("Send it? [y/n]:", second)
        if first + second == "yy":
            assert await answer == "A \x1b[1mjoke"
        else:
            with pytest.raises(SamplingRejected):
                await answer
    assert asked == ["yn", "yy"]


# ---------------------------------------------------------------- turns and limits


async def test_questions_that_come_together_are_asked_one_after_the_other(typist: Typist, terminal: Terminal) -> None:
    first = asyncio.create_task(terminal.elicit(form({}, "first?")))
    second = asyncio.create_task(terminal.elicit(form({}, "second?")))
    assert "second?" not in await typist.answers("Agree? [y/n]:", "y")
    assert "second?" in await typist.answers("Agree? [y/n]:", "n")
    assert [(await first).action, (await second).action] == ["accept", "decline"]


async def test_a_question_that_the_server_takes_back_frees_the_terminal(typist: Typist, terminal: Terminal) -> None:
    before = typist.modes
    first = asyncio.create_task(terminal.elicit(NAME))
    second = asyncio.create_task(terminal.elicit(form({}, "second?")))
    await typist.sees("name:")
    first.cancel()
    await typist.sees("The server cancelled its request.")
    await typist.answers("Agree? [y/n]:", "y")
    assert (await second).action == "accept"
    assert first.cancelled()
    assert typist.modes == before


async def test_nobody_is_asked_for_ever(typist: Typist) -> None:
    terminal = Terminal(input=typist.keyboard, output=typist.screen, timeout=0.05)
    assert (await terminal.elicit(NAME)).action == "cancel"
    await typist.sees("No answer within 0.05 seconds.")


async def test_without_a_terminal_nothing_is_agreed_to_and_the_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """Not declined: nobody said no. And a client made with its answers declares that it can't be asked."""
    terminal = Terminal(input=io.StringIO("y\n"), output=io.StringIO())
    with caplog.at_level(logging.WARNING, "gemel"):
        assert (await terminal.elicit(form({}))).action == "cancel"
        page = ElicitUrlParams(message="", url="https://example.com", mode="url")
        assert (await terminal.elicit_url(page)).action == "cancel"
        with pytest.raises(SamplingRejected):
            await terminal.sample(sampling())
    assert caplog.text.count("nobody can answer: this is not a terminal") == 3
    assert terminal.callbacks == {}


# ---------------------------------------------------------------- prompts of an application


async def test_a_question_goes_before_a_prompt_which_comes_again_afterwards(typist: Typist, terminal: Terminal) -> None:
    line = asyncio.create_task(terminal.read_line("host> "))
    await typist.sees("host> ")
    question = asyncio.create_task(terminal.elicit(form({}, "Now?")))
    await typist.answers("Agree? [y/n]:", "y")
    await typist.sees("host> ")
    assert (await question).action == "accept"
    terminal.show("news \x1b[2J\nof today")
    await typist.sees("\nnews \\x1b[2J\nof today\nhost> ")
    typist.type("/tools\n")
    assert await line == "/tools"


@pytest.mark.parametrize("key", ["\x03", "\x04"])
async def test_a_prompt_is_left_with_the_same_keys(typist: Typist, terminal: Terminal, key: str) -> None:
    line = asyncio.create_task(terminal.read_line())
    await typist.sees("> ")
    typist.type(key)
    assert await line is None


async def test_an_application_asks_for_consent_and_for_what_is_missing(typist: Typist, terminal: Terminal) -> None:
    for said, agreed in (("y\n", True), ("n\n", False), ("\x03", False)):
        consent = asyncio.create_task(terminal.confirm("Call it?"))
        await typist.sees("Call it? [y/n]:")
        typist.type(said)
        assert await consent is agreed
    tool = Tool(
        name="book",
        description="Book a seat",
        input_schema={
            "properties": {"city": {"$ref": "#/$defs/City"}, "days": {"type": "integer"}, "note": {"type": "string"}},
            "required": ["city", "days"],
            "$defs": {"City": {"enum": ["Oslo", "Bergen"]}},
        },
    )
    found = asyncio.create_task(terminal.complete_arguments(tool, {"days": 2}))
    assert "── book needs more arguments\n" in await typist.answers("city:", "berg")
    assert await found == {"days": 2, "city": "Bergen"}
    assert await terminal.complete_arguments(tool, {"days": 2, "city": "Oslo"}) == {"days": 2, "city": "Oslo"}
    prompt = Prompt(name="brief", arguments=[PromptArgument(name="topic", required=True)])
    found = asyncio.create_task(terminal.complete_arguments(prompt, {}))
    await typist.answers("topic:", "/no")
    assert await found is None


async def test_ctrl_c_ends_what_an_application_waits_for_and_nothing_else(terminal: Terminal) -> None:
    before = signal.getsignal(signal.SIGINT)
    started = asyncio.Event()

    async def work() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    waiting = asyncio.create_task(terminal.interruptible(work()))
    await started.wait()
    os.kill(os.getpid(), signal.SIGINT)
    assert await waiting is None
    assert await terminal.interruptible(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ZeroDivisionError):
        await terminal.interruptible(failing())
    assert signal.getsignal(signal.SIGINT) is before


async def failing() -> float:
    return 1 / 0


async def test_a_half_typed_line_is_still_there_after_a_dialog(
    typist: Typist, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a terminal with a cursor, and on one without."""
    for term in ("xterm", "dumb"):
        monkeypatch.setenv("TERM", term)
        line = asyncio.create_task(terminal.read_line("host> "))
        await typist.sees("host>")
        typist.type("half")
        await typist.sees("half")
        terminal.show("news \x1b[2J")
        await typist.sees("news \\x1b[2J\n")
        await typist.sees("host> half")
        answer = asyncio.create_task(terminal.elicit(form({}, "Now?")))
        await typist.answers("Agree? [y/n]:", "y")
        assert (await answer).action == "accept"
        await typist.sees("host> half")
        typist.type(" done\n")
        assert await line == "half done"


async def test_text_from_another_thread_stands_above_the_prompt(typist: Typist, terminal: Terminal) -> None:
    line = asyncio.create_task(terminal.read_line("host> "))
    await typist.sees("host> ")
    await asyncio.to_thread(terminal.show, "from elsewhere")
    await typist.answers("from elsewhere\nhost> ", "x")
    assert await line == "x"


async def test_the_line_can_be_edited(typist: Typist, terminal: Terminal) -> None:
    line = asyncio.create_task(terminal.read_line("host> "))
    await typist.sees("host> ")
    typist.type("wrong\x15hel\x7flxlo\x1b[D\x1b[D\x08, Åse\x1b[F!\n")
    assert await line == "hel, Åselo!"


async def test_bytes_that_are_not_utf_8_are_refused(typist: Typist, terminal: Terminal) -> None:
    answer = asyncio.create_task(terminal.elicit(NAME))
    await typist.sees("name:")
    typist.press(b"caf\xe9\n")
    await typist.sees("! this is not UTF-8")
    await typist.answers("name:", "/no")
    assert (await answer).action == "decline"


async def test_lines_of_a_pipe_come_one_by_one_and_the_last_needs_no_end() -> None:
    here, there = os.pipe()
    os.write(there, b"one\ntwo\nthree")
    os.close(there)
    with os.fdopen(here) as stream:
        terminal = Terminal(input=stream, output=io.StringIO())
        assert [await terminal.read_line() for _ in range(4)] == ["one", "two", "three", None]


async def test_without_the_extra_nobody_is_asked_and_the_log_says_what_to_install(
    typist: Typist, terminal: Terminal, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("gemel.client.terminal.terminal.find_spec", lambda name: None)
    assert terminal.callbacks == {}
    assert "pip install 'gemel[cli]'" in caplog.text
    assert (await terminal.elicit(NAME)).action == "cancel"
    terminal.show("news \x1b[2J")
    await typist.sees("news \\x1b[2J\n")
    line = asyncio.create_task(terminal.read_line("host> "))
    await typist.answers("host> ", "still here")
    assert await line == "still here"


# ---------------------------------------------------------------- with a client


server = Server("tickets")


@server.tool
async def book(ctx: Context) -> str:
    """Ask twice, once together with another question."""
    try:
        name = await ctx.elicit("What is your name?", str)
        both = await asyncio.gather(ctx.elicit("Meal?", bool), ctx.elicit("Seat?", Literal["aisle", "window"]))  # type: ignore[call-overload]  # a form of one choice
    except Declined as declined:
        return f"{declined}"
    return f"{name} {both}"


@pytest.mark.parametrize("era", BOTH)
async def test_a_client_of_either_era_asks_at_the_terminal(typist: Typist, terminal: Terminal, era: Any) -> None:
    """ELIC-19: who asks stands above every question."""
    async with Client(server, era=era, **terminal.callbacks) as client:
        call = asyncio.create_task(client.call_tool("book", returns=str))
        assert "── tickets (Server in this process) asks\n" in await typist.answers("value:", "Ada")
        await typist.answers("yes or no\n  value:", "y")
        await typist.answers("2  window\n  value:", "1")
        assert (await call).data == "Ada [True, 'aisle']"


async def test_many_servers_ask_each_under_its_own_name(typist: Typist, terminal: Terminal) -> None:
    async with ClientGroup({"left": server, "right": server}, **terminal.callbacks) as hosts:
        call = asyncio.create_task(hosts.call_tool("book", server="right"))
        assert "── right, which is tickets (Server in this process) asks" in await typist.answers("value:", "/no")
        assert "declined" in (await call).text
