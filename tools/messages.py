"""The page with every error message as Markdown, made from the places in the code that raise them: `page()`.

A message says what is wrong and, behind a colon, semicolon or full stop, what to do; where it doesn't, the class does.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gemel import errors
from gemel.version import missing_extra

SOURCE = Path(__file__).resolve().parents[1] / "src" / "gemel"

#: What to do about errors of a class whose message doesn't say it, and about the classes that are not listed elsewhere.
CURES = {
    "DefinitionError": "Correct the code at the place that the message names.",
    "StartError": "Correct the command line, the file or the address that the message names.",
    "ToolError": "Raised by tools, for the model: it can correct its call.",
    "ProtocolError": "The request is wrong, or the server can't serve it: compare it with the specification.",
    "InvalidRequest": "The client sent something that is no request at this point: report it to its author.",
    "WrongUrl": "Correct the URL.",
    "InvalidParams": "Correct the parameters.",
    "ParseError": "The sender wrote something that is not JSON, often by `print` to standard output.",
    "MethodNotFound": "The server has no such method in this revision: look at its capabilities first.",
    "HeaderMismatch": "A proxy changed headers, or the client sent other headers than its message: send both alike.",
    "InternalError": "The cause is in the server's log.",
    "Overloaded": "Wait for the retry delay and repeat the call, which did not run; or raise the limit.",
    "BackendError": "The message names the file or the address: free it, repair it, or choose another one.",
    "NoSession": "Keep the value for the user, or return a handle; see Where to keep state.",
    "LeaseLost": "Find out whether the work was done twice; a function that blocks the event loop loses its leases.",
    "LogConflict": "Another process goes on with the log: read what it has appended, and stop or append after it.",
    "ChannelClosed": "The peer is gone: connect again.",
    "NotSent": "Nothing ran: correct what the message names, or repeat the call.",
    "InvalidResponse": "The server sent something that the protocol doesn't allow: report it to its author.",
    "HttpStatus": "Look at the status: 401 and 403 need `auth=`, 404 another URL.",
    "ConnectionLost": "The call may have run: find out whether it did, or repeat it if that is harmless.",
    "NotFinished": "The call may have run: find out whether it did, or repeat it if that is harmless.",
    "CallTimeout": "The call may have run. Raise `idle=` or `total=`, or let the tool report progress.",
    "AuthorizationFailed": "The message says what is missing: a person who logs in, a grant, or a credential.",
    "ConnectFailed": "The message names the target: start the server, or correct the address or the command.",
    "CallError": "The outcome says whether it may have run.",
    "ContractDrift": "Review the changes; `gemel lock` accepts them.",
    "GemelError": "Correct what the message names.",
}
_CURE = re.compile(
    r"(?:: |; |\. )(?P<cure>(?:add|await|bundle|change|choose|connect|convert|correct|derive|don't|enter|find|give|it must|leave|"
    r"list|look|make|mount|must|name|open|or |pass|percent-encode|pip install|put|raise|register|remove|replace|report|return|run|"
    r"say|see|send|serve|set|start|stop|take|there (?:is|are)|upgrade|use|write)\b.*)$",
    re.IGNORECASE,
)


class Message(NamedTuple):
    """One message: `…` stands for what differs."""

    kind: str
    text: str
    place: str

    @property
    def cure(self) -> str:
        """What to do, as far as the message says it."""
        found = _CURE.search(self.text)
        return found["cure"][:1].upper() + found["cure"][1:] if found else ""


@cache
def messages() -> tuple[Message, ...]:
    """Every message that the code raises and that has a text of its own, sorted by class."""
    kinds = [
        name for name, value in vars(errors).items() if inspect.isclass(value) and issubclass(value, errors.GemelError)
    ]
    found: set[Message] = set()
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
                text = _template(node.args[0])
                if name in kinds and len(re.sub(r"[^A-Za-z]", "", text)) > 8:
                    found.add(Message(name, text, path.relative_to(SOURCE).parts[0].removesuffix(".py")))
    return tuple(sorted(found, key=lambda one: (kinds.index(one.kind), one.place, one.text)))


def _template(node: ast.expr) -> str:
    """The text of a literal; `…` for what is put in. Empty for what is made elsewhere."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(one.value) if isinstance(one, ast.Constant) else "…" for one in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_template(node.left) or "…") + (_template(node.right) or "…")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "missing_extra":
        return missing_extra(*map(_template, node.args))
    return ""


def page() -> str:
    """The page."""
    return "\n\n".join(_parts()) + "\n"


def _parts() -> Iterator[str]:
    yield "# Messages"
    yield (
        "Every message of an error that Gemel raises, by class and by the part that raises it. `…` stands for names, values and "
        "reasons. Where the second column is empty, what to do stands above the table."
    )
    kind = ""
    rows: list[str] = []
    for one in messages():
        if one.kind != kind:
            yield from ["\n".join(rows)] if rows else []
            kind, rows = one.kind, ["| message | what to do | in |", "|---|---|---|"]
            summary = " ".join((inspect.getdoc(getattr(errors, kind)) or "").split("\n\n")[0].split())
            yield f"## `{kind}` {{ #{kind} }}"
            yield f"{summary} {CURES.get(kind, '')}".strip()
        rows.append(f"| {_escaped(one.text)} | {_escaped(one.cure)} | `{one.place}` |")
    yield "\n".join(rows)


def _escaped(text: str) -> str:
    """The text in a cell, as it is: none of its characters are Markdown."""
    return (
        re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
        .replace("\\<", "&lt;")
        .replace("\\>", "&gt;")
        .replace("\\|", "&#124;")
    )
