"""Whoever sits at the terminal answers what servers ask: forms, pages to open, requests to a model.

Knows turns, limits and what an answer means in the protocol; what is shown and typed stands in `dialog`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, TextIO, TypeVar

from hinge.client.callbacks import OnSample, Refused, Sampled, asking_server
from hinge.client.content import in_words
from hinge.client.dialog import Declined, Dialog
from hinge.client.keyboard import Interrupted, Keyboard, Left
from hinge.client.links import page_of
from hinge.client.screen import is_terminal, plain, plain_text, write
from hinge.schema.content import TextContent
from hinge.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from hinge.schema.prompts import Prompt
from hinge.schema.sampling import CreateMessageParams, CreateMessageResult
from hinge.schema.tools import Tool

logger = logging.getLogger("hinge")

ValueT = TypeVar("ValueT")

#: Seconds that a browser may take to say whether it opens a page.
BROWSER_SECONDS = 10.0


class Terminal:
    """Asks whoever sits at the terminal: `Client(target, **terminal.answers)`, or each callback by itself.

    `on_elicit=terminal.elicit`, `on_elicit_url=terminal.open_page`, `on_sample=terminal.sample`; they serve Client and
    Hosts alike, and say which server asks. Questions that come together are asked one after the other, each for at most
    `limit` seconds (None: for ever). Ctrl-C or Ctrl-D cancels a question and nothing else. Nothing that a server sends can
    move the cursor or look like our own words.

    Where `input` (standard input) or `output` (standard error) is no terminal, nobody can be asked: forms and pages are
    cancelled, requests to a model refused, with a line in the log. Use one event loop. `open_url` opens a page and says
    whether it could; the user's browser does by default.
    """

    def __init__(
        self,
        *,
        input: TextIO | None = None,
        output: TextIO | None = None,
        limit: float | None = 600.0,
        open_url: Callable[[str], bool] | None = None,
    ) -> None:
        self._input = sys.stdin if input is None else input
        self._output = sys.stderr if output is None else output
        self._limit = limit
        self._open_url = open_url
        self._keyboard = Keyboard(self._input)
        self._turn = asyncio.Lock()
        #: Whether `line` waits: a question goes first.
        self._idle = False

    @property
    def usable(self) -> bool:
        """Whether there is somebody to ask: both streams are a terminal."""
        return is_terminal(self._input) and is_terminal(self._output)

    @property
    def prompting(self) -> bool:
        """Whether a prompt stands on the screen and waits for somebody to type."""
        return self._keyboard.prompt is not None

    @property
    def answers(self) -> dict[str, Any]:
        """The callbacks for forms, pages and requests to a model, as Client and Hosts take them; none if nobody is there.

        So a server learns at once that it can't ask, instead of being left without an answer.
        """
        if not self.usable:
            return {}
        return {"on_elicit": self.elicit, "on_elicit_url": self.open_page, "on_sample": self.sample}

    # ---------------------------------------------------------------- questions of servers

    async def elicit(self, form: ElicitFormParams, server: str | None = None) -> ElicitResult:
        """Ask for the fields of a form, one by one, each checked at once, and let the user look over them (ELIC-19)."""

        async def ask(dialog: Dialog, who: str) -> ElicitResult:
            dialog.head(who, "asks")
            dialog.quote(form.message)
            try:
                return ElicitResult(action="accept", content=await dialog.form(form.requested_schema))
            except ValueError as exc:
                dialog.say(f"This form can't be shown: {exc}.")
                logger.warning("A form of %s is declined: %s", who, exc)
                raise Declined from exc

        return await self._elicited(ask, server)

    async def open_page(self, page: ElicitUrlParams, server: str | None = None) -> ElicitResult:
        """Show the whole address and its host, and open it in the user's browser only if they agree (ELIC-19, ELIC-20)."""

        async def ask(dialog: Dialog, who: str) -> ElicitResult:
            dialog.head(who, "wants you to open a page")
            dialog.quote(page.message)
            try:
                found = page_of(page.url)
            except ValueError as exc:
                dialog.say(f"This page is not opened: {exc}.")
                logger.warning("A page of %s is declined: %s", who, exc)
                raise Declined from exc
            dialog.row("address", found.url)
            dialog.row("host", dialog.style.bold(found.host))
            for warning in found.warnings:
                dialog.warn(warning)
            if not await dialog.agree(f"Open it on {found.host}?"):
                raise Declined
            if not await self._browse(found.url):
                dialog.say("No browser could be started: open the address yourself.")
            return ElicitResult(action="accept")

        return await self._elicited(ask, server)

    async def sample(self, request: CreateMessageParams, server: str | None = None) -> CreateMessageResult:
        """Show a request to the model; the user types the answer, or refuses (SAMP-12). Raises Refused."""

        async def ask(dialog: Dialog, who: str) -> CreateMessageResult:
            _show_request(dialog, who, request)
            if not await dialog.agree("Answer it yourself?"):
                raise Declined
            dialog.say("Type the answer, and a dot in a line of its own at the end. Ctrl-C cancels.")
            text = await dialog.lines()
            return CreateMessageResult(
                role="assistant", content=TextContent(text=text), model="a person", stop_reason="endTurn"
            )

        answer: CreateMessageResult = await self._sampled(ask, server)
        return answer

    def approving(self, model: Callable[[CreateMessageParams], Sampled | Awaitable[Sampled]]) -> OnSample:
        """A callback for `on_sample` that asks `model`, after the user agreed to the request and before they agree to send
        its answer (SAMP-12)."""

        async def sample(request: CreateMessageParams, server: str | None = None) -> Sampled:
            async def may_ask(dialog: Dialog, who: str) -> None:
                _show_request(dialog, who, request)
                if not await dialog.agree("Ask the model?"):
                    raise Declined

            await self._sampled(may_ask, server)
            said = model(request)
            answer: Sampled = await said if isinstance(said, Awaitable) else said

            async def may_send(dialog: Dialog, who: str) -> None:
                dialog.head(who, "would get this answer of the model")
                dialog.quote(answer if isinstance(answer, str) else answer.text)
                if not await dialog.agree("Send it?"):
                    raise Declined

            await self._sampled(may_send, server)
            return answer

        return sample

    # ---------------------------------------------------------------- for applications on a terminal

    async def agree(self, question: str) -> bool:
        """Whether the user says yes, in a word; leaving the question is no."""
        try:
            async with self._asking("The application") as dialog:
                return await dialog.agree(plain(question))
        except (Declined, Left):
            return False

    async def arguments(self, of: Tool | Prompt, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """All arguments of a call: those given, and required ones that aren't, asked of the user; None if they leave."""
        schema = of.input_schema if isinstance(of, Tool) else _schema(of)
        properties, required = schema.get("properties"), schema.get("required")
        names = [name for name in required if name not in given] if isinstance(required, list) else []
        if not names or not isinstance(properties, dict):
            return dict(given)
        form = {**schema, "properties": {name: properties.get(name, {}) for name in names}, "required": names}
        try:
            async with self._asking(of.name) as dialog:
                dialog.head(of.name, "needs to know more")
                dialog.quote(of.description or "")
                return {**given, **await dialog.form(form)}
        except (Declined, Left):
            return None

    async def interruptible(self, work: Awaitable[ValueT]) -> ValueT | None:
        """Wait for something, which Ctrl-C cancels and nothing else: None then. In the main thread only, as signals are."""
        task = asyncio.ensure_future(work)
        loop, before = asyncio.get_running_loop(), signal.getsignal(signal.SIGINT)
        try:
            loop.add_signal_handler(signal.SIGINT, task.cancel)
        except (NotImplementedError, RuntimeError, ValueError):
            return await task
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            loop.remove_signal_handler(signal.SIGINT)
            signal.signal(signal.SIGINT, before)
        return None if task.cancelled() else task.result()

    async def line(self, prompt: str = "> ") -> str | None:
        """A line that the user types of their own accord, None at Ctrl-C or Ctrl-D. Questions of servers go first.

        For as long as it takes. Works without a terminal as well, on lines that come from a pipe.
        """
        while True:
            async with self._turn:
                try:
                    with self._keyboard.attended(fresh=False):
                        self._idle = True
                        write(self._output, prompt)
                        return await self._keyboard.line(prompt)
                except Interrupted:
                    write(self._output, "\n")
                except Left:
                    write(self._output, "\n")
                    return None
                except ValueError as exc:
                    write(self._output, f"! {exc}\n")
                finally:
                    self._idle = False

    def show(self, text: str) -> None:
        """Write a text, neutralised, also while the user is at a prompt: it stands above, and the prompt comes again."""
        prompt = self._keyboard.prompt
        write(self._output, f"{plain_text(text)}\n" if prompt is None else f"\n{plain_text(text)}\n{prompt}")

    # ---------------------------------------------------------------- turns

    async def _elicited(
        self, ask: Callable[[Dialog, str], Awaitable[ElicitResult]], server: str | None
    ) -> ElicitResult:
        try:
            who = _who(server)
            async with self._asking(who) as dialog:
                return await ask(dialog, who)
        except Declined:
            return ElicitResult(action="decline")
        except Left:
            return ElicitResult(action="cancel")

    async def _sampled(self, ask: Callable[[Dialog, str], Awaitable[Any]], server: str | None) -> Any:
        try:
            who = _who(server)
            async with self._asking(who) as dialog:
                return await ask(dialog, who)
        except (Declined, Left):
            raise Refused from None

    @asynccontextmanager
    async def _asking(self, who: str) -> AsyncIterator[Dialog]:
        """Our turn at the keyboard. Raises Left when nobody is there or time is up."""
        if not self.usable:
            logger.warning("%s asks, and nobody can answer: this is no terminal", plain(who))
            raise Left
        if self._idle:
            self._keyboard.interrupt()
        async with self._turn:
            dialog = Dialog(self._keyboard, self._output)
            with self._keyboard.attended(fresh=True):
                try:
                    async with asyncio.timeout(self._limit):
                        yield dialog
                except TimeoutError:
                    dialog.end(f"Nobody answered within {self._limit:g} seconds.")
                    raise Left from None
                except asyncio.CancelledError:
                    dialog.end("The question was withdrawn.")
                    raise
                except (Declined, Left) as exc:
                    dialog.end("Declined." if isinstance(exc, Declined) else "Cancelled.")
                    raise
                except OSError as exc:
                    logger.warning("The terminal is gone: %s", exc)
                    raise Left from exc

    async def _browse(self, url: str) -> bool:
        """Open a page in a thread that nobody has to wait for."""
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[bool] = loop.create_future()

        def settle(value: bool) -> None:
            if not opened.done():
                opened.set_result(value)

        def browse() -> None:
            try:
                value = self._open_url(url) if self._open_url is not None else _open_in_browser(url)
            except Exception:
                logger.exception("the browser failed")
                value = False
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(partial(settle, value))

        threading.Thread(target=browse, daemon=True).start()
        done, _ = await asyncio.wait([opened], timeout=BROWSER_SECONDS)
        return opened.result() if done else True


def _who(server: str | None) -> str:
    """Who asks, in words: the name that the application has for the server, and what the client knows of it."""
    asks = asking_server()
    if server is None or asks is None or asks.startswith(f"{server} ("):
        return asks or server or "A server"
    return f"{server}, which is {asks}"


def _schema(prompt: Prompt) -> dict[str, Any]:
    """A prompt's arguments as the schema of a form: all of them are texts (PRM-03)."""
    arguments = prompt.arguments or []
    properties = {one.name: {"type": "string", "description": one.description or ""} for one in arguments}
    return {"type": "object", "properties": properties, "required": [one.name for one in arguments if one.required]}


def _open_in_browser(url: str) -> bool:
    import webbrowser

    return webbrowser.open(url)


def _show_request(dialog: Dialog, who: str, request: CreateMessageParams) -> None:
    """A request to a model, whole enough to agree to."""
    dialog.head(who, "wants to ask your model")
    if request.system_prompt:
        dialog.say("as its instructions:")
        dialog.quote(request.system_prompt)
    for message in request.messages:
        dialog.say(f"{message.role}:")
        for block in message.content if isinstance(message.content, list) else [message.content]:
            dialog.quote(in_words(block))
    if request.tools:
        dialog.say("with the tools:")
        dialog.quote(", ".join(tool.name for tool in request.tools))
    dialog.say(f"At most {request.max_tokens} tokens.", style=dialog.style.dim)
