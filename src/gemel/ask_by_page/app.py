"""The ASGI app of the pages: who may see one, what a browser may post, and the answer that is kept."""

from __future__ import annotations

import hmac
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from inspect import isawaitable
from typing import Final, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from gemel.ask_by_page.form import FormPage
from gemel.ask_by_page.page import Reply, message_page, question_page
from gemel.ask_by_page.questions import Audience, OpenQuestion, OpenQuestions, digest
from gemel.errors import Overloaded
from gemel.http1.asgi import HeaderPairs, Receive, Scope, Send
from gemel.http1.cookies import cookie_values
from gemel.protocol.http.origin import parse_origin
from gemel.protocol.http.request import Headers, Principal, Refusal
from gemel.schema.elicitation import ElicitResult
from gemel.transports.http.server.options import Authenticate

logger = logging.getLogger("gemel")

_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_MAX_FIELDS: Final = 2000
_GONE: Final = (
    "This link can't be used",
    "It was used, has expired, or is not complete. Ask your assistant to try again: it gets a new link.",
)
_GO_BACK: Final = "Go back to your assistant and tell it that you have answered."
_ANSWERED: Final = ("This is answered", "Go back to your assistant and tell it so.")


class PageRequest(NamedTuple):
    """A request for a page."""

    method: str
    #: What follows the path of the app.
    name: str
    headers: Headers
    scope: Scope
    body: bytes


class Visitors(ABC):
    """Tells who visits a page."""

    @abstractmethod
    async def admit(self, request: PageRequest, token: str, question: OpenQuestion) -> Reply | VisitorOf:
        """Return who the visitor is, or the response to send in place of the page."""

    async def serve(self, request: PageRequest) -> Reply | None:
        """Serve a page of its own, such as the end of a login; None for requests that are for a question."""
        return None


class VisitorOf(NamedTuple):
    """Who visits a page: the principal, None if that is not known, and headers for the response."""

    principal: str | None
    headers: HeaderPairs = ()


class AnyVisitors(Visitors):
    """Whoever has the link may answer."""

    async def admit(self, request: PageRequest, token: str, question: OpenQuestion) -> Reply | VisitorOf:
        """Admit everybody."""
        return VisitorOf(None)


class KnownVisitors(Visitors):
    """A function of the application knows who visits, as by the cookie of its own login.

    Args:
        who: Tells who it is, as `authenticate=` does.
    """

    def __init__(self, who: Authenticate) -> None:
        self._who = who

    async def admit(self, request: PageRequest, token: str, question: OpenQuestion) -> Reply | VisitorOf:
        """Ask the function."""
        found = self._who(request.scope, request.headers)
        visitor = await found if isawaitable(found) else found
        if isinstance(visitor, Refusal):
            return message_page("You can't answer here", visitor.text, visitor.status, visitor.headers)
        if visitor is None:
            return message_page("Sign in first", "Sign in, then open this link again.", 401)
        return VisitorOf(visitor.name if isinstance(visitor, Principal) else visitor)


class FirstVisitors(Visitors):
    """The browser that opened a page first has it alone: other users of the machine can see the link.

    Args:
        questions: Where the questions are.
    """

    def __init__(self, questions: OpenQuestions) -> None:
        self._questions = questions

    async def admit(self, request: PageRequest, token: str, question: OpenQuestion) -> Reply | VisitorOf:
        """Check the cookie, or set it."""
        import secrets

        name = f"gemel_ask_{digest(token)[:12]}"
        if question.visitor:
            cookies = cookie_values(request.scope["headers"], name)
            if any(hmac.compare_digest(digest(cookie), question.visitor) for cookie in cookies):
                return VisitorOf(None)
        elif request.method == "GET":
            cookie = secrets.token_urlsafe(24)
            bound = msgspec.structs.replace(question, visitor=digest(cookie))
            if await self._questions.change(token, question, bound):
                header = f"{name}={cookie}; HttpOnly; SameSite=Lax; Path={request.scope['path']}"
                return VisitorOf(None, ((b"set-cookie", header.encode()),))
        return message_page("This page is open elsewhere", "Answer it in the browser that opened it first.", 403)


class PageApp:
    """Serves questions at `<path>/<token>`.

    Args:
        questions: Where they are.
        visitors: Tells who visits, by who may answer; questions for others are not served here.
        origin: Scheme and host of the pages: answers come from no other origin.
        answer_bytes: Bytes of an answer.
    """

    #: Judged here, more strictly: only the pages themselves may post.
    any_origin = True

    def __init__(
        self,
        questions: OpenQuestions,
        visitors: Mapping[Audience, Visitors],
        origin: str | Callable[[], str],
        *,
        answer_bytes: int,
    ) -> None:
        self._questions = questions
        self._visitors = visitors
        self._origin = origin
        self._answer_bytes = answer_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        method: str = scope["method"]
        try:
            reply = await self._serve(scope, receive)
        except Overloaded:
            reply = message_page("Try again later", "The server has too much to do.", 503, ((b"retry-after", b"5"),))
        except Exception:
            logger.exception("A page of a question failed")
            reply = message_page("This did not work", "The server failed: see its log.", 500)
        headers = [*reply.headers, (b"content-length", str(len(reply.body)).encode())]
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if method == "HEAD" else reply.body})

    async def _serve(self, scope: Scope, receive: Receive) -> Reply:
        method = scope["method"]
        if method not in ("GET", "HEAD", "POST"):
            return message_page("Not possible", "Open this page in a browser.", 405, ((b"allow", b"GET, HEAD, POST"),))
        headers = Headers(_joined(scope["headers"]))
        body = b""
        if method == "POST":
            refusal = self._refuse_post(headers)
            if refusal is not None:
                return refusal
            read = await _read_body(receive, self._answer_bytes)
            if read is None:
                return message_page("Too long", f"An answer has at most {self._answer_bytes} bytes.", 413)
            body = read
        request = PageRequest(method, str(scope["path"]).rpartition("/")[2], headers, scope, body)
        for visitors in self._visitors.values():
            if (reply := await visitors.serve(request)) is not None:
                return reply
        return await self._serve_question(request)

    def _refuse_post(self, headers: Headers) -> Reply | None:
        """Refuse what another page posts, or a program in its name."""
        own = self._origin if isinstance(self._origin, str) else self._origin()
        origin = headers.get("origin")
        is_own = origin is None or ((parsed := parse_origin(origin)) is not None and parsed == parse_origin(own))
        is_own = is_own and headers.get("sec-fetch-site", "same-origin") == "same-origin"
        if is_own and headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM_TYPE:
            return None
        return message_page("Not possible", "Answers come from the page itself: open the link again.", 403)

    async def _serve_question(self, request: PageRequest) -> Reply:
        token = request.name
        question = await self._questions.get(token)
        visitors = None if question is None else self._visitors.get(question.audience)
        if question is None or visitors is None:
            return message_page(*_GONE, 410)
        admitted = await visitors.admit(request, token, question)
        if isinstance(admitted, Reply):
            return admitted
        if question.audience == "principal" and admitted.principal != question.principal:
            return message_page(
                "This question is for somebody else",
                "You are signed in as another user than the one whose assistant asks.",
                403,
                admitted.headers,
            )
        if question.answer:
            return message_page(*_ANSWERED, 410, admitted.headers)
        if request.method != "POST":
            return question_page(question, admitted.principal, question.posted, question.errors, admitted.headers)
        return await self._answer(request, token, question, admitted)

    async def _answer(self, request: PageRequest, token: str, question: OpenQuestion, visitor: VisitorOf) -> Reply:
        posted = _fields(request.body)
        if posted is None or not hmac.compare_digest(
            "".join(posted.get("secret", ())).encode(), question.secret.encode()
        ):
            return message_page("Not possible", "Answers come from the page itself: open the link again.", 403)
        action = posted.get("action", [])
        if action == ["decline"]:
            answer = ElicitResult(action="decline")
        elif action == ["accept"]:
            content, errors = FormPage(msgspec.json.decode(question.schema)).read(posted)
            if errors:
                return question_page(question, visitor.principal, posted, errors, visitor.headers)
            answer = ElicitResult(action="accept", content=content)
        else:
            return message_page("Not possible", "Use one of the buttons of the page.", 400)
        del posted["secret"]
        answered = msgspec.structs.replace(question, answer=msgspec.json.encode(answer), posted=posted, errors={})
        if not await self._questions.change(token, question, answered):
            return message_page(*_ANSWERED, 410)
        return message_page(_recorded(question, answer), _GO_BACK, 200)


def _recorded(question: OpenQuestion, answer: ElicitResult) -> str:
    """What an answer says, as the heading of the last page."""
    if question.approves:
        allowed = answer.action == "accept" and all((answer.content or {"": False}).values())
        return "You allowed this call" if allowed else "You did not allow this call"
    return "Thank you: your answer is recorded" if answer.action == "accept" else "You declined"


def _joined(pairs: Collection[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    joined: dict[bytes, bytes] = {}
    for name, value in pairs:
        key = name.lower()
        joined[key] = joined[key] + (b"; " if key == b"cookie" else b", ") + value if key in joined else value
    return joined


async def _read_body(receive: Receive, most: int) -> bytes | None:
    """The body; None if it is too long, or broke off."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        more = message.get("more_body", False)
    return b"".join(parts)


def _fields(body: bytes) -> dict[str, list[str]] | None:
    """What a form has, by the name of the field; None if it can't be read."""
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS)
    except ValueError:
        return None
    fields: dict[str, list[str]] = {}
    for name, value in pairs:
        fields.setdefault(name, []).append(value)
    return fields
