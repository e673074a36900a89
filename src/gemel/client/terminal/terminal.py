"""Answer servers from a terminal: a person fills in forms, opens pages and answers or approves sampling requests.

Lines are read with prompt_toolkit and laid out with rich (the extra `cli`); both are loaded when something is asked.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn, TextIO, TypeVar

from msgspec import UNSET

from gemel.client.callbacks import OnSample, Sampled, SamplingRejected, asking_server
from gemel.client.content import content_to_text
from gemel.client.terminal.browser import in_daemon_thread, open_page
from gemel.client.terminal.display import Layout, PageAddress, check_page_url, is_terminal, write
from gemel.client.terminal.forms import FormField, form_fields, parse_yes_no
from gemel.errors import shorten
from gemel.loops import PerLoop
from gemel.schema.content import TextContent
from gemel.schema.elicitation import ElicitFormParams, ElicitResult, ElicitUrlParams
from gemel.schema.prompts import Prompt
from gemel.schema.sampling import CreateMessageParams, CreateMessageResult
from gemel.schema.tools import Tool
from gemel.version import missing_extra
from gemel.visible import escape_line, escape_text

if TYPE_CHECKING:
    from prompt_toolkit.application.application import Application
    from prompt_toolkit.application.current import AppSession
    from prompt_toolkit.history import History

logger = logging.getLogger("gemel")

T = TypeVar("T")

#: Wrong answers to one prompt before the dialog is cancelled.
MAX_ATTEMPTS = 5
#: Lines and characters of a server's text that are shown.
MAX_QUOTED_LINES = 40
MAX_QUOTED_LENGTH = 20_000
#: Choices of a field that are listed.
MAX_SHOWN_CHOICES = 40
#: Lines of an answer to a sampling request.
MAX_ANSWER_LINES = 1000


class _NoAnswer(Exception):
    """A dialog ended without an answer."""

    action: ClassVar[Literal["cancel", "decline"]]
    text: ClassVar[str]


class _Cancelled(_NoAnswer):
    """The user left the prompt (Ctrl-C, Ctrl-D), the time is up, or the terminal is gone."""

    action = "cancel"
    text = "Cancelled."


class _Declined(_NoAnswer):
    """The user said no."""

    action = "decline"
    text = "Declined."


class _Preempted(Exception):
    """A dialog needs the terminal, on which `read_line` waits. Carries what was typed so far."""


class Terminal:
    """Callbacks that let the person at the terminal answer servers.

    `Client(target, **terminal.callbacks)` sets all of them; they serve Client and ClientGroup alike and show which server asks.
    Requests that arrive together are shown one after the other. Ctrl-C or Ctrl-D cancels a request and nothing else. Text
    from a server is quoted behind a bar with its control characters escaped, and can't be mistaken for the program's own.

    Needs the extra `cli` and a terminal on both streams. Without them nobody is asked: elicitations are cancelled and
    sampling requests refused, with a warning in the log. Use one Terminal per program, in one event loop.

    Args:
        input: where to read; standard input by default.
        output: where to write; standard error by default.
        timeout: seconds after which a dialog is cancelled; None for no limit. Default: 600.
        open_url: opens a page and returns whether that worked; the default browser by default.

    Example:
        ```python
        terminal = Terminal()
        async with Client("weather.py", **terminal.callbacks) as client:
            ...
        ```
    """

    def __init__(
        self,
        *,
        input: TextIO | None = None,
        output: TextIO | None = None,
        timeout: float | None = 600.0,
        open_url: Callable[[str], bool] | None = None,
    ) -> None:
        self._input = sys.stdin if input is None else input
        self._output = sys.stderr if output is None else output
        self._timeout = timeout
        self._open_url = open_url
        self._prompt = _LinePrompt(self._input, self._output)
        self._locks = PerLoop(asyncio.Lock)
        #: Whether the prompt on the screen is that of `read_line`, which dialogs preempt.
        self._reading_line = False
        self._history: History | None = None

    @property
    def interactive(self) -> bool:
        """Whether somebody can be asked: both streams are a terminal, and the extra `cli` is installed."""
        return self._attached and _prompt_toolkit_installed()

    @property
    def _attached(self) -> bool:
        return is_terminal(self._input) and is_terminal(self._output)

    @property
    def prompting(self) -> bool:
        """Whether a prompt is on the screen."""
        return self._prompt.app is not None

    @property
    def callbacks(self) -> dict[str, Any]:
        """The callbacks for elicitation and sampling, as Client and ClientGroup take them; empty if nobody can be asked.

        Without callbacks the client declares no such capability, so that servers know at once that they can't ask.
        """
        if self._attached and not _prompt_toolkit_installed():
            logger.warning(missing_extra("Servers can't ask for input: prompts need", "cli"))
        if not self.interactive:
            return {}
        return {"on_elicit": self.elicit, "on_elicit_url": self.elicit_url, "on_sample": self.sample}

    # ---------------------------------------------------------------- callbacks

    async def elicit(self, form: ElicitFormParams, server: str | None = None) -> ElicitResult:
        """Ask for the fields of a form one by one, check each, and show all of them before they are sent.

        Args:
            form: the elicitation (form mode).
            server: the application's name for the server, if it has several.

        Returns:
            The user's answer: accept with the content, decline, or cancel. A form that can't be shown is declined.
        """
        try:
            async with self._dialog(_source(server)) as dialog:
                dialog.heading(f"{dialog.source} asks")
                dialog.quote(form.message)
                try:
                    content = await dialog.fill_in(form.requested_schema)
                except ValueError as exc:
                    dialog.refuse("This form can't be shown", exc)
                return ElicitResult(action="accept", content=content)
        except _NoAnswer as exc:
            return ElicitResult(action=exc.action)

    async def elicit_url(self, page: ElicitUrlParams, server: str | None = None) -> ElicitResult:
        """Show an address with its host and warnings, and open it in a browser only if the user agrees.

        Args:
            page: the elicitation (URL mode).
            server: the application's name for the server, if it has several.

        Returns:
            The user's answer: accept, decline, or cancel. An address that no browser should open is declined.
        """
        try:
            async with self._dialog(_source(server)) as dialog:
                dialog.heading(f"{dialog.source} asks you to open a page")
                dialog.quote(page.message)
                try:
                    address = check_page_url(page.url)
                except ValueError as exc:
                    dialog.refuse("This page is not opened", exc)
                dialog.address(address)
                await dialog.consent(f"Open it on {address.host}?")
                if not await open_page(address.url, self._open_url):
                    dialog.say("No browser could be started: open the address yourself.")
                return ElicitResult(action="accept")
        except _NoAnswer as exc:
            return ElicitResult(action=exc.action)

    async def sample(self, request: CreateMessageParams, server: str | None = None) -> CreateMessageResult:
        """Show a sampling request; the user types the answer or refuses.

        Args:
            request: the sampling request.
            server: the application's name for the server, if it has several.

        Returns:
            What the user typed, as the answer of the model "human".

        Raises:
            SamplingRejected: the user refused or cancelled, or nobody can be asked.
        """
        async with self._sampling_dialog(server) as dialog:
            dialog.sampling_request(request)
            await dialog.consent("Answer it yourself?")
            dialog.say("Type the answer, then a line with only a dot. Ctrl-C cancels.")
            content = TextContent(text=await dialog.read_text())
        return CreateMessageResult(role="assistant", content=content, model="human", stop_reason="endTurn")

    def sample_with(self, model: Callable[[CreateMessageParams], Sampled | Awaitable[Sampled]]) -> OnSample:
        """Return an `on_sample` callback that asks a model, with the user's consent to the request and to the answer.

        Args:
            model: answers a sampling request; sync or async.

        Returns:
            The callback. It raises SamplingRejected if the user refuses either, or if nobody can be asked.
        """

        async def sample(request: CreateMessageParams, server: str | None = None) -> Sampled:
            async with self._sampling_dialog(server) as dialog:
                dialog.sampling_request(request)
                await dialog.consent("Ask the model?")
            reply = model(request)
            answer: Sampled = await reply if isinstance(reply, Awaitable) else reply
            async with self._sampling_dialog(server) as dialog:
                dialog.heading(f"The model's answer to {dialog.source}")
                dialog.quote(answer if isinstance(answer, str) else answer.text)
                await dialog.consent("Send it?")
            return answer

        return sample

    # ---------------------------------------------------------------- for applications

    async def confirm(self, question: str) -> bool:
        """Ask a yes-or-no question.

        Args:
            question: one line; may contain text from a server.

        Returns:
            Whether the user typed yes. Cancelling means no.
        """
        try:
            async with self._dialog("The application") as dialog:
                return await dialog.confirm(escape_line(question))
        except _NoAnswer:
            return False

    async def complete_arguments(self, target: Tool | Prompt, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Ask for the required arguments of a tool or prompt that are missing.

        Args:
            target: the tool or prompt to call.
            given: the arguments so far.

        Returns:
            All arguments; None if the user cancels.
        """
        schema = target.input_schema if isinstance(target, Tool) else _prompt_schema(target)
        properties, required = schema.get("properties"), schema.get("required")
        names = [name for name in required if name not in given] if isinstance(required, list) else []
        if not names or not isinstance(properties, dict):
            return dict(given)
        form = {**schema, "properties": {name: properties.get(name, {}) for name in names}, "required": names}
        try:
            async with self._dialog(target.name) as dialog:
                dialog.heading(f"{target.name} needs more arguments")
                dialog.quote(target.description or "")
                return {**given, **await dialog.fill_in(form)}
        except _NoAnswer:
            return None

    async def interruptible(self, work: Awaitable[T]) -> T | None:
        """Wait for something that Ctrl-C cancels, without ending the program. Use it in the main thread.

        Args:
            work: what to wait for.

        Returns:
            Its result; None if it was cancelled.
        """
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        try:
            # Not `loop.add_signal_handler`, which Windows doesn't have.
            previous = signal.signal(signal.SIGINT, lambda *_: loop.call_soon_threadsafe(task.cancel))
        except ValueError:  # another thread
            return await task
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()
            signal.signal(signal.SIGINT, signal.SIG_DFL if previous is None else previous)
        return None if task.cancelled() else task.result()

    async def read_line(self, prompt: str = "> ") -> str | None:
        """Read a line that the user types, without a time limit. Dialogs of servers interrupt it and return to it.

        Works without a terminal and without the extra `cli`, too.

        Args:
            prompt: the text before the cursor.

        Returns:
            The line without its end; None at Ctrl-C, Ctrl-D or the end of input.
        """
        if not self.interactive:
            write(self._output, prompt)
            line = await in_daemon_thread(self._input.readline)
            return line.rstrip("\r\n") if line else None
        if self._history is None:
            from prompt_toolkit.history import InMemoryHistory

            self._history = InMemoryHistory()
        typed = ""
        while True:
            async with self._locks.here():
                self._reading_line = True
                try:
                    return await self._prompt.read(prompt, typed, self._history)
                except _Preempted as exc:
                    typed = str(exc)
                except _Cancelled:
                    return None
                except ValueError as exc:
                    self.show(f"! {exc}")
                finally:
                    self._reading_line = False

    def show(self, text: str) -> None:
        """Write a text with its control characters escaped. A prompt stays on the screen, below the text.

        Args:
            text: one or several lines; may come from a server.
        """
        self._prompt.write_above(escape_text(text) + "\n")

    # ---------------------------------------------------------------- dialogs

    @asynccontextmanager
    async def _sampling_dialog(self, server: str | None) -> AsyncIterator[_Dialog]:
        try:
            async with self._dialog(_source(server)) as dialog:
                yield dialog
        except _NoAnswer:
            raise SamplingRejected from None

    @asynccontextmanager
    async def _dialog(self, source: str) -> AsyncIterator[_Dialog]:
        """Use the terminal alone. Raises _Cancelled if nobody can be asked or the time is up."""
        if not self.interactive:
            reason = "the extra cli is not installed" if self._attached else "this is not a terminal"
            logger.warning("%s asks for input, and nobody can answer: %s", escape_line(source), reason)
            raise _Cancelled
        if self._reading_line:
            self._prompt.preempt()
        async with self._locks.here():
            try:
                with self._prompt.raw_mode():
                    async with asyncio.timeout(self._timeout):
                        yield _Dialog(source, self._prompt, self._output)
            except TimeoutError:
                self._end(f"No answer within {self._timeout:g} seconds.")
                raise _Cancelled from None
            except asyncio.CancelledError:
                self._end("The server cancelled its request.")
                raise
            except _NoAnswer as exc:
                self._end(exc.text)
                raise
            except OSError as exc:
                logger.warning("The terminal is gone: %s", exc)
                raise _Cancelled from exc

    def _end(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone, or closed
            write(self._output, f"  {text}\n")


class _LinePrompt:
    """Reads lines with prompt_toolkit, and writes above the prompt that is on the screen."""

    def __init__(self, input: TextIO, output: TextIO) -> None:
        self._input = input
        self._output = output
        self._session: AppSession | None = None
        self._message = ""

    @property
    def app(self) -> Application[Any] | None:
        """What draws the prompt that is on the screen."""
        return self._session.app if self._session is not None else None

    async def read(self, message: str, default: str = "", history: History | None = None) -> str:
        """Read a line. Raises _Cancelled, _Preempted, and ValueError for bytes that are not UTF-8."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import create_app_session
        from prompt_toolkit.input import create_input
        from prompt_toolkit.output import create_output
        from prompt_toolkit.output.plain_text import PlainTextOutput
        from prompt_toolkit.output.vt100 import Vt100_Output

        self._message = message
        try:
            output = PlainTextOutput(self._output) if _is_dumb() else create_output(self._output)
            if isinstance(output, Vt100_Output):
                output.enable_cpr = False  # its reply could arrive after the prompt, as if it were typed
            with create_app_session(create_input(self._input), output) as self._session:
                # `output=` is not passed: prompt_toolkit then respects TERM=dumb.
                line: str = await PromptSession[str](
                    message + default if _is_dumb() else message,  # a dumb terminal doesn't show the default
                    history=history,
                    enable_suspend=True,
                    reserve_space_for_menu=0,
                    interrupt_exception=_Cancelled,
                    eof_exception=_Cancelled,
                ).prompt_async(default=default, set_exception_handler=False, handle_sigint=False)
        except (EOFError, OSError, ValueError) as exc:  # the terminal is gone, or a stream is closed
            raise _Cancelled from exc
        finally:
            self._session = None
        if any("\ud800" <= character <= "\udfff" for character in line):
            raise ValueError("this is not UTF-8")
        return line

    def preempt(self) -> None:
        """Let `read` raise _Preempted."""
        app = self.app
        if app is not None and app.future is not None and not app.future.done():
            app.exit(exception=_Preempted(app.current_buffer.text))

    @contextmanager
    def raw_mode(self) -> Iterator[None]:
        """Take every key as input, Ctrl-C too, also between two prompts. Raises OSError if the terminal is gone.

        What was typed before is discarded: nobody agrees to what they haven't seen.
        """
        from prompt_toolkit.input import create_input
        from prompt_toolkit.input.typeahead import clear_typeahead

        source = create_input(self._input)
        with source.raw_mode():
            clear_typeahead(source)
            if sys.platform == "win32":
                source.read_keys()
            else:
                import termios

                try:
                    termios.tcflush(source.fileno(), termios.TCIFLUSH)
                except termios.error as exc:
                    raise OSError(*exc.args) from exc
            yield

    def write_above(self, text: str) -> None:
        """Write an escaped text, from any thread. A prompt on the screen is drawn again below it."""
        app = self.app
        if app is None or app.loop is None:
            write(self._output, text)
        elif app.loop is not _running_loop():
            app.loop.call_soon_threadsafe(self.write_above, text)
        elif not _is_dumb():
            app.renderer.erase()
            write(self._output, text)
            app.renderer.reset()
            app.invalidate()
        else:
            write(self._output, f"\n{text}{self._message}{app.current_buffer.text}")


class _Dialog:
    """One dialog on the screen: who asks, the server's text behind a bar, our prompts."""

    def __init__(self, source: str, prompt: _LinePrompt, output: TextIO) -> None:
        self.source = source
        self._prompt = prompt
        self._output = output
        self._layout = Layout(output)
        utf8 = (output.encoding or "").lower().replace("-", "").startswith("utf")
        self._bar, self._rule = ("│ ", "─") if utf8 else ("| ", "-")

    # ---------------------------------------------------------------- showing

    def heading(self, text: str) -> None:
        """The first line: who asks, and for what."""
        first, *rest = self._layout.lines(escape_line(text), "   ", style="bold")
        write(self._output, "\n".join(["", first.replace("  ", self._rule * 2, 1), *rest]) + "\n")

    def quote(self, text: str, indent: str = "") -> None:
        """A server's text, behind a bar; the end of a long one is cut off, so that our prompt stays on the screen."""
        prefix = indent + self._bar
        lines = self._layout.lines(escape_text(text[:MAX_QUOTED_LENGTH]), prefix, prefix_style="dim")
        write(self._output, "\n".join(lines[:MAX_QUOTED_LINES]) + "\n")
        if len(lines) > MAX_QUOTED_LINES or len(text) > MAX_QUOTED_LENGTH:
            self.say("(the rest is not shown)")

    def say(self, text: str, style: str = "", indent: str = "  ") -> None:
        """Our own text, escaped where it contains a server's."""
        write(self._output, "\n".join(self._layout.lines(text, indent, style=style)) + "\n")

    def warn(self, text: str) -> None:
        """Our own text that should not be overlooked."""
        self.say(f"! {text}", "bold")

    def refuse(self, text: str, reason: ValueError) -> NoReturn:
        """Say why a request is declined, and decline it."""
        self.say(f"{text}: {reason}.")
        logger.warning("A request of %s is declined: %s", self.source, reason)
        raise _Declined from reason

    def address(self, address: PageAddress) -> None:
        """An address in full, on one line for copying, its host, and warnings."""
        write(self._output, f"  address   {address.url}\n")
        self.say(address.host, "bold", indent="  host      ")
        for warning in address.warnings:
            self.warn(warning)

    def sampling_request(self, request: CreateMessageParams) -> None:
        """Everything of a sampling request that the user has to agree to."""
        self.heading(f"{self.source} asks your model")
        if request.system_prompt:
            self.say("system prompt:")
            self.quote(request.system_prompt)
        for message in request.messages:
            self.say(f"{message.role}:")
            for block in message.content if isinstance(message.content, list) else [message.content]:
                self.quote(content_to_text(block))
        if request.tools:
            self.say("tools:")
            self.quote(", ".join(tool.name for tool in request.tools))
        self.say(f"At most {request.max_tokens} tokens.", "dim")

    # ---------------------------------------------------------------- asking

    async def ask(self, prompt: str, parse: Callable[[str], T]) -> T:
        """Return what `parse` makes of a line; show its ValueError and ask again, MAX_ATTEMPTS times."""
        for _ in range(MAX_ATTEMPTS):
            try:
                line = await self._prompt.read(f"  {prompt} ")
                if line.strip() == "/no":
                    raise _Declined
                return parse("/no" if line == "//no" else line)
            except ValueError as exc:
                self.say(f"! {exc}", indent="    ")
        self.say("Too many wrong answers.")
        raise _Cancelled

    async def confirm(self, question: str) -> bool:
        """Return whether the user types yes or no; Enter alone is neither."""
        return await self.ask(f"{question} [y/n]:", parse_yes_no)

    async def consent(self, question: str) -> None:
        """Ask a yes-or-no question. Raises _Declined for no."""
        if not await self.confirm(question):
            raise _Declined

    async def fill_in(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """Ask for each field of a form, then show all for approval. Raises ValueError if it is not a form."""
        fields = form_fields(schema)
        if not fields:
            await self.consent("Agree?")
            return {}
        if any(field.secret for field in fields):
            self.warn("Servers may not ask for passwords, keys or card numbers here: /no declines.")
        skip = " /skip leaves a field out," if not all(field.required for field in fields) else ""
        self.say(f"Enter accepts the value in [ ],{skip} /no declines, Ctrl-C cancels.", "dim")
        content: dict[str, Any] = {}
        for _ in range(MAX_ATTEMPTS):
            values = {field.name: await self._ask_field(field, content) for field in fields}
            content = {name: value for name, value in values.items() if value is not UNSET}
            if len(fields) == 1 or await self._approve(fields, content):
                return content
        raise _Cancelled

    async def _ask_field(self, field: FormField, previous: Mapping[str, Any]) -> Any:
        """Return the value of one field; UNSET if it is left out."""
        if field.description:
            self.quote(field.description, "  ")
        if field.hint:
            self.say(f"{field.title}: {field.hint}", "dim")
        for number, choice in enumerate(field.choices[:MAX_SHOWN_CHOICES], 1):
            mark = f"{number:>2}" if field.numbered else " -"
            self.say(f"{mark}  {shorten(escape_line(choice.title))}", indent="   ")
        if len(field.choices) > MAX_SHOWN_CHOICES:
            self.say(f"and {len(field.choices) - MAX_SHOWN_CHOICES} more: type the name", indent="    ")
        default = previous.get(field.name, field.default)

        def parse(line: str) -> Any:
            if line.strip() == "/skip" and not field.required:
                return UNSET
            if line.strip() == '""' and field.type == "string":
                return field.parse("")
            if line.strip():
                return field.parse("/skip" if line == "//skip" else line)
            if default is not UNSET or not field.required:
                return default
            if field.multiple:
                return field.parse("")
            empty = ' (type "" for an empty text)' if field.type == "string" and not field.choices else ""
            raise ValueError(f"a value is required{empty}")

        shown = f" [{shorten(field.format(default), 60)}]" if default is not UNSET else ""
        return await self.ask(f"{field.title}{shown}:", parse)

    async def _approve(self, fields: list[FormField], content: Mapping[str, Any]) -> bool:
        """Show the content; return whether to send it, or False to ask for the fields again."""
        self.say("", indent="")
        for field in fields:
            if field.name in content:
                self.say(f"{field.title}: {field.format(content[field.name])}")

        def parse(line: str) -> bool:
            word = line.strip().lower()
            if word not in ("", "y", "yes", "c", "change", "n", "no"):
                raise ValueError("type y to send it, c to change it, n to decline")
            if word.startswith("n"):
                raise _Declined
            return not word.startswith("c")

        return await self.ask("Send this? [Y]es, (c)hange, (n)o:", parse)

    async def read_text(self) -> str:
        """Read lines up to one with only a dot."""
        lines: list[str] = []
        while len(lines) < MAX_ANSWER_LINES and (line := await self.ask(">", str)) != ".":
            lines.append(line)
        return "\n".join(lines)


def _source(server: str | None) -> str:
    """Name who asks: the application's name for the server, and what the client knows about it."""
    asking = asking_server()
    if server is None or asking is None or asking.startswith(f"{server} ("):
        return asking or server or "A server"
    return f"{server}, which is {asking}"


def _prompt_schema(prompt: Prompt) -> dict[str, Any]:
    """Return a prompt's arguments, which are all strings, as the schema of a form."""
    arguments = prompt.arguments or []
    properties = {one.name: {"type": "string", "description": one.description or ""} for one in arguments}
    return {"type": "object", "properties": properties, "required": [one.name for one in arguments if one.required]}


def _prompt_toolkit_installed() -> bool:
    return find_spec("prompt_toolkit") is not None


def _is_dumb() -> bool:
    from prompt_toolkit.utils import is_dumb_terminal

    return is_dumb_terminal()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
