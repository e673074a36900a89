"""Draws the diagrams of the documents: `python -m tools.pictures` writes `docs/pictures/*.svg`.

A picture is 440 units wide, so that its text is readable on a phone of 390 pixels, and has colours for light and dark. A
`Sequence` has lanes with arrows between them, a `Plan` has boxes with arrows.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import NamedTuple, TypeAlias

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "pictures"
WIDTH = 440
#: Size of the text, of what is less important, and the height of a line.
TEXT, SMALL, LINE = 14, 13, 18
#: The width of a character as a part of the size: more than most system fonts need.
CHARACTER = 0.56
_EDGE = 8

_STYLE = """\
  .card { fill: #ffffff; stroke: #d0d5dd; }
  .ground { fill: #ffffff; }
  .box { fill: #eef4ff; stroke: #3b6fd4; }
  .own { fill: #fff4e0; stroke: #c77d0a; }
  .plain { fill: #f2f4f7; stroke: #98a2b3; }
  .life { stroke: #98a2b3; stroke-dasharray: 4 4; }
  .line { stroke: #3b6fd4; stroke-width: 1.5; fill: none; }
  .tip { fill: #3b6fd4; }
  text { fill: #1d2939; }
  .head { font-weight: 600; }
  .note { fill: #667085; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b26; stroke: #344054; }
    .ground { fill: #161b26; }
    .box { fill: #1d2b4a; stroke: #6d9bf1; }
    .own { fill: #40300f; stroke: #e0a030; }
    .plain { fill: #1f2633; stroke: #98a2b3; }
    .line { stroke: #6d9bf1; }
    .tip { fill: #6d9bf1; }
    text { fill: #eaecf0; }
    .note { fill: #98a2b3; }
  }
"""
_TIP = (
    '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
    'orient="auto-start-reverse"><path class="tip" d="M0,0 L8,4 L0,8 z"/></marker></defs>'
)


class Arrow(NamedTuple):
    """A message from one lane to another, with text above the line and a note below it."""

    sender: int
    receiver: int
    text: str
    note: str = ""


class Note(NamedTuple):
    """What happens at one lane, or at several: a box over them."""

    first: int
    last: int
    text: str
    style: str = "own"


class Part(NamedTuple):
    """The heading of the steps that follow."""

    text: str


Step: TypeAlias = Arrow | Note | Part


class Sequence(NamedTuple):
    """Who sends what to whom, from top to bottom. A lane whose name begins with `*` is what the reader writes."""

    title: str
    description: str
    lanes: tuple[str, ...]
    steps: tuple[Step, ...]


class Box(NamedTuple):
    """A box at a place; its first line is a heading."""

    x: int
    y: int
    width: int
    height: int
    text: str
    style: str = "box"


class Line(NamedTuple):
    """A line from one point to another, with text beside its middle; `both` gives it a tip at each end."""

    start: tuple[int, int]
    end: tuple[int, int]
    text: str = ""
    both: bool = False


class Plan(NamedTuple):
    """Boxes and the lines between them."""

    title: str
    description: str
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]


# ---------------------------------------------------------------- drawing


def text_width(text: str, size: int) -> float:
    """How wide a text is at most."""
    return len(text) * size * CHARACTER


def drawn(picture: Sequence | Plan) -> str:
    """A picture as SVG."""
    body, height = _sequence(picture) if isinstance(picture, Sequence) else (_plan(picture), picture.height)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-labelledby="t d" font-family="system-ui, sans-serif" font-size="{TEXT}">'
    )
    return "\n".join(
        [
            head,
            f'<title id="t">{escape(picture.title)}</title>',
            f'<desc id="d">{escape(picture.description)}</desc>',
            f"<style>\n{_STYLE}</style>",
            _TIP,
            f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
            *body,
            "</svg>\n",
        ]
    )


def _texts(x: float, y: float, text: str, style: str = "", size: int = TEXT, grounded: bool = False) -> list[str]:
    """Lines of text around `x`, the first one with its base at `y`, kept inside of the picture."""
    found = []
    for number, line in enumerate(text.split("\n")):
        half = text_width(line, size) / 2
        middle = min(max(x, _EDGE + half), WIDTH - _EDGE - half)
        base = y + number * LINE
        if grounded:
            found.append(
                f'<rect class="ground" x="{middle - half:g}" y="{base - size:g}" width="{2 * half:g}" height="{size + 4}"/>'
            )
        look = f' class="{style}"' if style else ""
        found.append(
            f'<text{look} x="{middle:g}" y="{base:g}" text-anchor="middle" font-size="{size}">{escape(line)}</text>'
        )
    return found


def _sequence(picture: Sequence) -> tuple[list[str], int]:
    count = len(picture.lanes)
    margin = 66
    places = [margin + (WIDTH - 2 * margin) * number / (count - 1) for number in range(count)]
    wide = min(120, (WIDTH - 2 * margin) / (count - 1) - 12)
    top, y = 12, 62.0
    over: list[str] = []
    for step in picture.steps:
        if isinstance(step, Part):
            y += 12
            over += [f'<rect class="ground" x="2" y="{y:g}" width="{WIDTH - 4}" height="{LINE + 6}"/>']
            over += _texts(WIDTH / 2, y + LINE - 2, step.text, "head")
            y += LINE + 8
        elif isinstance(step, Note):
            lines = step.text.split("\n")
            centre = (places[step.first] + places[step.last]) / 2
            half = max(text_width(line, SMALL) for line in lines) / 2 + 8
            half = max(half, (places[step.last] - places[step.first]) / 2 + 20)
            centre = min(max(centre, _EDGE + half), WIDTH - _EDGE - half)
            height = len(lines) * LINE + 8
            y += 10
            over.append(
                f'<rect class="{step.style}" x="{centre - half:g}" y="{y:g}" width="{2 * half:g}" height="{height}" rx="6"/>'
            )
            over += _texts(centre, y + LINE - 1, step.text, size=SMALL)
            y += height
        else:
            start, end = places[step.sender], places[step.receiver]
            lines = step.text.split("\n")
            y += 8 + len(lines) * LINE
            over += _texts((start + end) / 2, y - 6 - (len(lines) - 1) * LINE, step.text, grounded=True)
            tip = 3 if start < end else -3
            over.append(f'<path class="line" d="M{start:g},{y:g} L{end - tip:g},{y:g}" marker-end="url(#tip)"/>')
            if step.note:
                over += _texts((start + end) / 2, y + LINE - 2, step.note, "note", SMALL, grounded=True)
                y += LINE * (step.note.count("\n") + 1)
            y += 4
    height = round(y + 20)
    under = []
    for name, x in zip(picture.lanes, places, strict=True):
        lines = name.lstrip("*").split("\n")
        style = "own" if name.startswith("*") else "box"
        under.append(f'<path class="life" d="M{x:g},{top + 46} V{height - 10}"/>')
        under.append(f'<rect class="{style}" x="{x - wide / 2:g}" y="{top}" width="{wide:g}" height="46" rx="6"/>')
        under += _texts(x, top + 28 - (len(lines) - 1) * 8, "\n".join(lines), "head")
    return [*under, *over], height


def _plan(picture: Plan) -> list[str]:
    found = []
    for line in picture.lines:
        (x1, y1), (x2, y2) = line.start, line.end
        both = ' marker-start="url(#tip)"' if line.both else ""
        found.append(f'<path class="line" d="M{x1},{y1} L{x2},{y2}"{both} marker-end="url(#tip)"/>')
        if line.text:
            rows = line.text.count("\n")
            found += _texts((x1 + x2) / 2, (y1 + y2) / 2 + 4 - rows * LINE / 2, line.text, "note", SMALL, grounded=True)
    for box in picture.boxes:
        found.append(
            f'<rect class="{box.style}" x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6"/>'
        )
        head, _, rest = box.text.partition("\n")
        rows = box.text.count("\n")
        y = box.y + box.height / 2 + 5 - rows * LINE / 2
        found += _texts(box.x + box.width / 2, y, head, "head")
        if rest:
            found += _texts(box.x + box.width / 2, y + LINE, rest, size=SMALL)
    return found


# ---------------------------------------------------------------- the pictures

_AUTH_LANES = ("Client", "*Your server", "Authorization\nserver")

PICTURES: Mapping[str, Sequence | Plan] = {
    "auth-protect": Sequence(
        "A protected server",
        "A client calls without a token and gets 401. The metadata of the server names the authorization server, which "
        "issues a token. The server checks the token with the keys of the authorization server and answers.",
        _AUTH_LANES,
        (
            Arrow(0, 1, "tools/call"),
            Arrow(1, 0, "401, see metadata"),
            Arrow(0, 1, "GET metadata"),
            Arrow(1, 0, "who issues tokens"),
            Arrow(0, 2, "log in, for this server"),
            Arrow(2, 0, "access token"),
            Arrow(0, 1, "tools/call", "with the token"),
            Arrow(1, 2, "GET keys", "every ten minutes"),
            Note(1, 1, "checks signature, issuer,\naudience, time, scopes"),
            Note(1, 1, "your function runs:\nctx.principal, ctx.scopes"),
            Arrow(1, 0, "result"),
        ),
    ),
    "auth-proxy": Sequence(
        "An OAuth proxy",
        "A client registers with your server and opens its page. The person agrees there and logs in with the provider. The "
        "provider gives its tokens to your server, which keeps them and gives tokens of its own to the client.",
        ("Client", "*Your server,\nOAuthProxy", "Provider"),
        (
            Arrow(0, 1, "register"),
            Arrow(1, 0, "client id"),
            Arrow(0, 1, "/authorize", "in the browser"),
            Note(1, 1, "page: may this\nclient act for you?"),
            Arrow(1, 2, "your application", "in the browser"),
            Note(2, 2, "the person\nlogs in"),
            Arrow(2, 1, "/auth/callback", "with a code"),
            Arrow(1, 2, "code, secret"),
            Arrow(2, 1, "provider's tokens"),
            Note(1, 2, "they stay in your server, encrypted;\nallow(claims) decides who gets in"),
            Arrow(1, 0, "code", "in the browser"),
            Arrow(0, 1, "/token: code"),
            Arrow(1, 0, "own tokens"),
            Arrow(0, 1, "tools/call", "with its token"),
        ),
    ),
    "auth-login": Sequence(
        "A login of a client",
        "The server answers 401 and names its authorization server. The client registers there, opens the browser, gets a"
        " code, exchanges it for tokens, repeats the request, and later refreshes the token.",
        ("*Your client", "MCP server", "Authorization\nserver"),
        (
            Arrow(0, 1, "tools/call"),
            Arrow(1, 0, "401"),
            Arrow(0, 1, "GET metadata"),
            Arrow(0, 2, "GET its metadata"),
            Arrow(0, 2, "register, if it is not known yet"),
            Note(0, 2, "a browser opens the login page:\nthe person logs in and agrees"),
            Arrow(2, 0, "code, to a port of this machine"),
            Arrow(0, 2, "code, PKCE verifier"),
            Arrow(2, 0, "access token, refresh token"),
            Arrow(0, 1, "tools/call", "with the token"),
            Arrow(1, 0, "result"),
            Part("A minute before the token ends"),
            Arrow(0, 2, "refresh token"),
            Arrow(2, 0, "new tokens; calls go on meanwhile"),
        ),
    ),
    "auth-machines": Sequence(
        "A program without a person",
        "The server answers 401 and names its authorization server. The program proves who it is with a signed assertion,"
        " a secret or a token of its platform, gets an access token, and calls the server with it.",
        ("*Your program", "MCP server", "Authorization\nserver"),
        (
            Arrow(0, 1, "tools/call"),
            Arrow(1, 0, "401"),
            Arrow(0, 1, "GET metadata"),
            Note(0, 1, "signs with its private key,\nor takes its secret,\nor reads the token of its platform"),
            Arrow(0, 2, "proof of who it is; nobody is asked"),
            Arrow(2, 0, "access token"),
            Arrow(0, 1, "tools/call", "with the token"),
            Arrow(1, 0, "result"),
            Part("Before the token ends"),
            Arrow(0, 2, "the same again"),
        ),
    ),
    "workers": Plan(
        "Workers and a backend",
        "Clients reach any of several workers through a load balancer. Each worker has its own functions, lifespan and "
        "memory. All workers share one backend: sessions, tasks, logins, change notifications. A stateless call needs no "
        "backend.",
        508,
        (
            Box(20, 16, 120, 44, "Client"),
            Box(160, 16, 120, 44, "Client"),
            Box(300, 16, 120, 44, "Client"),
            Box(70, 104, 300, 48, "Load balancer, or one port\nany request to any worker", "plain"),
            Box(
                20,
                204,
                190,
                116,
                "Worker\nyour functions\nits own lifespan\nsessions it has loaded\nverified tokens",
                "own",
            ),
            Box(
                230,
                204,
                190,
                116,
                "Worker\nyour functions\nits own lifespan\nsessions it has loaded\nverified tokens",
                "own",
            ),
            Box(
                50,
                376,
                340,
                116,
                "Backend: SQLite or Redis\nsessions, events, answers to questions\ntasks, steps, results\n"
                "logins, rate limits, change notifications\n(stateless calls don't need it)",
            ),
        ),
        (
            Line((80, 60), (130, 102)),
            Line((220, 60), (220, 102)),
            Line((360, 60), (310, 102)),
            Line((150, 152), (115, 202)),
            Line((290, 152), (325, 202)),
            Line((115, 322), (150, 374), both=True),
            Line((325, 322), (290, 374), both=True),
        ),
    ),
    "task": Sequence(
        "The life of a task",
        "A call becomes a task and the client gets a handle at once. The function works on, reports progress and asks the"
        " user. The client looks at the task, answers, and fetches the result. A task whose process died goes on in "
        "another one.",
        ("Client", "Server", "*Your function"),
        (
            Arrow(0, 1, "tools/call as task"),
            Arrow(1, 0, "handle: id"),
            Part("working"),
            Arrow(1, 2, "runs"),
            Arrow(2, 1, "report_progress"),
            Arrow(0, 1, "tasks/get"),
            Arrow(1, 0, "working: month 3"),
            Part("input_required"),
            Arrow(2, 1, "ctx.elicit"),
            Arrow(0, 1, "tasks/get"),
            Arrow(1, 0, "the question"),
            Arrow(0, 1, "tasks/update", "with the answer"),
            Part("working"),
            Arrow(1, 2, "goes on"),
            Note(1, 2, "process dies: another one calls the function\nagain; recorded steps don't run twice", "plain"),
            Arrow(2, 1, "returns"),
            Part("completed, failed or cancelled"),
            Arrow(0, 1, "tasks/get"),
            Arrow(1, 0, "result"),
            Note(0, 2, "kept for 24 hours (ttl), then forgotten", "plain"),
        ),
    ),
    "session": Sequence(
        "The life of an HTTP session",
        "initialize opens a session with an id. Calls carry the id. A GET opens a stream for messages that belong to no "
        "call. A lost connection resumes with the id of the last event. The session ends by DELETE or after half an hour "
        "without use.",
        ("Client", "Worker", "Backend"),
        (
            Arrow(0, 1, "POST initialize"),
            Arrow(1, 2, "store"),
            Arrow(1, 0, "Mcp-Session-Id"),
            Part("open"),
            Arrow(0, 1, "POST tools/call", "with the id"),
            Arrow(1, 0, "result"),
            Arrow(0, 1, "GET", "with the id"),
            Arrow(1, 0, "changes, questions"),
            Note(0, 1, "the connection breaks off", "plain"),
            Arrow(0, 1, "GET", "Last-Event-ID"),
            Arrow(2, 1, "missed events"),
            Arrow(1, 0, "events since then"),
            Note(1, 2, "another worker may serve\nit from here", "plain"),
            Part("ended: DELETE, or half an hour unused"),
            Arrow(0, 1, "POST", "with the id"),
            Arrow(1, 0, "404: begin anew"),
        ),
    ),
    "call": Sequence(
        "The life of a call in both eras",
        "In the handshake era a client first says who it is and then calls; its identity belongs to the connection or "
        "session. In the stateless era each call carries who calls, its capabilities and the revision. The steps inside "
        "of the server are the same.",
        ("Client", "Server", "*Your function"),
        (
            Part("Handshake era, until 2025-11-25"),
            Arrow(0, 1, "initialize", "once: who it is"),
            Arrow(1, 0, "what it offers"),
            Arrow(0, 1, "tools/call", "name, arguments"),
            Part("Stateless era, from 2026-07-28"),
            Arrow(0, 1, "tools/call", "and who it is"),
            Part("Both"),
            Note(1, 1, "token, scopes, limits\nmiddleware\narguments against the schema", "plain"),
            Arrow(1, 2, "calls"),
            Arrow(2, 1, "report_progress"),
            Arrow(1, 0, "progress", "if asked for"),
            Arrow(2, 1, "returns a value"),
            Note(1, 1, "value against the schema,\nin the shape of the revision", "plain"),
            Arrow(1, 0, "result"),
            Part("The client cancels"),
            Arrow(0, 1, "cancelled, or\nit disconnects"),
            Arrow(1, 2, "CancelledError"),
        ),
    ),
    "question": Sequence(
        "A tool that asks the user",
        "Handshake era: the server sends elicitation/create during the call, and the function waits for the answer. "
        "Stateless era: the call ends with input_required, the client repeats it with the answer, and the function runs "
        "again.",
        ("Client", "Server", "*Your function"),
        (
            Part("Handshake era, until 2025-11-25"),
            Arrow(0, 1, "tools/call"),
            Arrow(1, 2, "runs"),
            Arrow(2, 1, "ctx.elicit"),
            Arrow(1, 0, "elicitation/create"),
            Note(0, 0, "the user\nanswers", "plain"),
            Arrow(0, 1, "answer"),
            Arrow(1, 2, "goes on"),
            Arrow(2, 1, "returns"),
            Arrow(1, 0, "result"),
            Part("Stateless era, from 2026-07-28"),
            Arrow(0, 1, "tools/call"),
            Arrow(1, 2, "runs"),
            Arrow(2, 1, "ctx.elicit"),
            Arrow(1, 0, "input_required", "question, state"),
            Note(0, 0, "the user\nanswers", "plain"),
            Arrow(0, 1, "tools/call", "answer, state"),
            Arrow(1, 2, "runs again"),
            Note(1, 2, "ctx.elicit returns the answer at once"),
            Arrow(2, 1, "returns"),
            Arrow(1, 0, "result"),
        ),
    ),
}


def written() -> dict[Path, str]:
    """The files of the pictures with their text."""
    return {FOLDER / f"{name}.svg": drawn(picture) for name, picture in PICTURES.items()}


def main() -> None:
    """Write every picture that is not as it is drawn."""
    for path, text in written().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
