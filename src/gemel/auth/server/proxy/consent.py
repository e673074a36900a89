"""The pages of the proxy: a person is asked whether an application may act, or is told what went wrong.

The pages have no scripts and load nothing. They can't be framed, and what clients say of themselves is escaped.
"""

from __future__ import annotations

import base64
from hashlib import sha256
from html import escape
from urllib.parse import urlsplit

from gemel.auth.server.proxy.redirects import is_loopback
from gemel.auth.server.proxy.web import NO_STORE, OAuthError, WebReply
from gemel.http1.asgi import HeaderPairs

_STYLE = (
    "body{font:1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:10vh auto;padding:0 1rem;color:#222;background:#fff}"
    "h1{font-size:1.4rem}dt{color:#666}dd{margin:0 0 .8rem;overflow-wrap:anywhere;font-weight:600}"
    "button{font:inherit;padding:.5rem 1.5rem;margin-right:1rem;border:1px solid #888;border-radius:.3rem;background:#eee}"
    "button[value=allow]{background:#0b57d0;border-color:#0b57d0;color:#fff}"
)
_STYLE_HASH = base64.b64encode(sha256(_STYLE.encode()).digest()).decode()
_PAGE = (
    '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    "<title>{title}</title><style>{style}</style></head><body><h1>{title}</h1>{body}</body></html>"
)


def page(
    title: str, body: str, status: int = 200, *, form_targets: tuple[str, ...] = (), headers: HeaderPairs = ()
) -> WebReply:
    """A page.

    Args:
        title: The heading, as text.
        body: The rest, as HTML.
        status: The HTTP status.
        form_targets: Where its form may lead, as sources of a content security policy; none if it has no form.
        headers: More headers.

    Returns:
        The response.
    """
    html = _PAGE.format(title=escape(title), style=_STYLE, body=body)
    policy = (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'; "
        f"form-action {' '.join(form_targets) or chr(39) + 'none' + chr(39)}"
    )
    return WebReply(
        status,
        html.encode(),
        (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", policy.encode()),
            (b"x-frame-options", b"DENY"),
            # With no-referrer, browsers would send "Origin: null" with the form.
            (b"referrer-policy", b"same-origin"),
            *NO_STORE,
            *headers,
        ),
    )


def error_page(error: OAuthError) -> WebReply:
    """An error for the person at the browser. Nothing that came with the request is in it."""
    text = (
        f"<p>The login can't go on: {escape(error.description)}.</p><p>Return to the application and start again.</p>"
    )
    return page(
        "Login failed", f"{text}<p><small>{escape(error.error)}</small></p>", error.status, headers=error.headers
    )


def consent_page(
    *,
    client_id: str,
    client_name: str,
    redirect_uri: str,
    resource: str,
    provider: str,
    provider_url: str,
    scopes: tuple[str, ...],
    action: str,
    sealed: str,
    headers: HeaderPairs,
) -> WebReply:
    """Ask whether an application may act for the user.

    Args:
        client_id: The id of the application: a URL if its owner is known by that.
        client_name: What it calls itself.
        redirect_uri: Where the answer goes.
        resource: What it will have access to.
        provider: Where the user logs in.
        provider_url: The authorization endpoint there.
        scopes: What it may do.
        action: Where the form is sent.
        sealed: The request, which the form sends back.
        headers: More headers.

    Returns:
        The response.
    """
    target = urlsplit(redirect_uri)
    if is_loopback(redirect_uri):
        place = f"a program on your computer (port {target.port or 80})"
    else:
        place = target.netloc if target.scheme == "https" else f"a program on your computer ({target.scheme}:)"
    owner = urlsplit(client_id).netloc if "://" in client_id else "not verified: anybody can choose this name"
    rows = [
        ("Application", client_name),
        ("Verified by", owner),
        ("The answer goes to", place),
        ("Access to", resource),
    ]
    if scopes:
        rows.append(("Permissions", ", ".join(scopes)))
    table = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)
    body = (
        f"<dl>{table}</dl><p>Allow this only if you have just started the login in that application yourself. "
        f"You continue at {escape(provider)}.</p>"
        f'<form method="post" action="{escape(action)}"><input type="hidden" name="request" value="{escape(sealed)}">'
        '<button name="decision" value="allow">Allow</button><button name="decision" value="deny">Deny</button></form>'
    )
    targets = ("'self'", "https:", *_sources(provider_url), *_sources(redirect_uri))
    return page("Allow access?", body, form_targets=tuple(dict.fromkeys(targets)), headers=headers)


def _sources(url: str) -> tuple[str, ...]:
    """How a content security policy names the place that a redirect after the form leads to; browsers check those, too."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return ()
    if parts.scheme == "http":  # a loopback address; IPv6 addresses can't be written in a policy
        return (f"http://{parts.netloc}",) if parts.hostname != "::1" else ("http:",)
    return (f"{parts.scheme}:",)
