"""The pages that a person sees: a question, or what became of it. They have no scripts, load nothing and can't be framed."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Final, NamedTuple

import msgspec

from gemel.ask_by_page.form import FormPage, Posted
from gemel.ask_by_page.questions import OpenQuestion
from gemel.http1.asgi import HeaderPairs
from gemel.visible import escape_text

_STYLE = (
    ":root{color-scheme:light dark}*{box-sizing:border-box}"
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:36rem;margin:0 auto;padding:1.5rem 1rem 3rem;overflow-wrap:anywhere}"
    "h1{font-size:1.3rem;line-height:1.3}h2{font-size:1rem}.field{margin:1.2rem 0}"
    "fieldset{border:1px solid #888;border-radius:.3rem}"
    "label,legend{font-weight:600;display:block}label.choice{font-weight:400;padding:.4rem 0;min-height:2.75rem}"
    "input:not([type=checkbox]),select,textarea{font:inherit;width:100%;min-height:2.75rem;padding:.4rem .6rem;"
    "border:1px solid #888;border-radius:.3rem;background:transparent;color:inherit}select option{color:#111;background:#fff}"
    "input[type=checkbox]{width:1.3rem;height:1.3rem;vertical-align:-.25rem}"
    ".hint{margin:.1rem 0 .3rem;font-size:.9rem;opacity:.8}.error{margin:.2rem 0;color:#c00;font-weight:600}"
    "[aria-invalid=true]{border:2px solid #c00!important}"
    "pre{white-space:pre-wrap;border-left:.25rem solid #888;padding:.3rem .8rem;max-height:16rem;overflow:auto}"
    "dt{font-size:.9rem;opacity:.8}dd{margin:0 0 .6rem}.question{font-size:1.1rem;white-space:pre-wrap}"
    "button{font:inherit;min-height:2.75rem;padding:.5rem 1.6rem;margin:.3rem .8rem .3rem 0;border:1px solid #888;"
    "border-radius:.3rem;cursor:pointer}button[value=accept]{background:#0b57d0;border-color:#0b57d0;color:#fff}"
    ":focus-visible{outline:3px solid #f90;outline-offset:2px}"
    "@media(prefers-color-scheme:dark){.error{color:#ff8a80}[aria-invalid=true]{border-color:#ff8a80!important}}"
)
_STYLE_HASH = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width,initial-scale=1"><meta name="robots" content="noindex">'
    "<title>{title}</title><style>{style}</style></head><body><main><h1>{title}</h1>{body}</main></body></html>"
)
_HEADERS: Final[HeaderPairs] = (
    (b"content-type", b"text/html; charset=utf-8"),
    (
        b"content-security-policy",
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'".encode(),
    ),
    (b"x-frame-options", b"DENY"),
    (b"x-content-type-options", b"nosniff"),
    # With no-referrer, browsers would send "Origin: null" with the form.
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class Reply(NamedTuple):
    """A response."""

    status: int
    body: bytes
    headers: HeaderPairs


def page(title: str, body: str, status: int = 200, headers: HeaderPairs = ()) -> Reply:
    """Return a page.

    Args:
        title: The heading, as text.
        body: The rest, as HTML.
        status: The HTTP status.
        headers: More headers.
    """
    html = _PAGE.format(title=escape(title), style=_STYLE, body=body)
    return Reply(status, html.encode("utf-8", "replace"), (*_HEADERS, *headers))


def message_page(title: str, text: str, status: int, headers: HeaderPairs = ()) -> Reply:
    """Return a page with a sentence. Arguments as those of `page`, `text` is text."""
    return page(title, f"<p>{escape(text)}</p>", status, headers)


def redirect(target: str, headers: HeaderPairs = ()) -> Reply:
    """Return a redirect that is followed with GET."""
    return Reply(303, b"", ((b"location", target.encode()), *_HEADERS[1:], *headers))


def question_page(
    question: OpenQuestion,
    principal: str | None,
    posted: Posted | None,
    errors: Mapping[str, str],
    headers: HeaderPairs = (),
) -> Reply:
    """Return the page of a question that is open.

    Args:
        question: The question.
        principal: Who the visitor is; None if that is not known.
        posted: What was posted before.
        errors: What was wrong with it.
        headers: More headers.
    """
    rows = [("Asked by", question.server), ("For the tool", question.tool)]
    if question.client:
        rows.append(("Called through", f"{question.client} (as it says)"))
    if principal is not None:
        rows.append(("Signed in as", principal))
    table = "".join(f"<dt>{escape(name)}</dt><dd>{escape(escape_text(value))}</dd>" for name, value in rows if value)
    arguments = _indented(question.arguments)
    if arguments:
        table += f'<dt>With these arguments</dt><dd><pre tabindex="0">{escape(arguments)}</pre></dd>'
    alert = ""
    if errors:
        text = errors.get("") or "Something is not right yet: see below."
        alert = f'<p class="error" role="alert">{escape(text)}</p>'
    form = FormPage(msgspec.json.decode(question.schema))
    fields = form.approval() if question.approves else form.html(posted, errors)
    body = (
        f'{alert}<p class="question">{escape(escape_text(question.message))}</p>'
        f"<h2>What this is about</h2><dl>{table}</dl>"
        '<p class="hint">Answer only if you have just asked your assistant for this.</p>'
        f'<form method="post" accept-charset="utf-8">{fields}'
        f'<input type="hidden" name="secret" value="{escape(question.secret)}">'
        f'<p><button name="action" value="accept">{"Allow" if question.approves else "Send"}</button>'
        '<button name="action" value="decline" formnovalidate>Decline</button></p></form>'
    )
    return page("Your assistant has a question", body, 422 if errors else 200, headers)


def _indented(arguments: bytes) -> str:
    """The arguments as people read them, whole, with escapes for characters that nobody sees."""
    try:
        text = json.dumps(msgspec.json.decode(arguments), indent=2, ensure_ascii=False)
    except msgspec.MsgspecError:
        return ""
    if text == "{}":
        return ""
    return escape_text(text)
