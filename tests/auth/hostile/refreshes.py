"""What a token endpoint may answer to a refresh, and what other programs may do to stored logins, as data.

Each case begins with a login whose access token has expired. Besides its own answer, every case is held to what is always true:
see `test_refreshes.py`.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.auth.double import AuthDouble, Reply
from tests.transports.scripted_http import Asked

#: Stands in descriptions of errors and in answers, and must not be shown.
CANARY = "canary-51d0"


class RefreshCase(NamedTuple):
    """One answer to a refresh.

    Attributes:
        name: What is wrong.
        reply: The answer; a mapping changes members of the right one (None leaves one out).
        works: Whether the call must succeed, without a person.
        over: Whether the login is over, so that a person is asked; else the same refresh is tried again later.
    """

    name: str
    reply: Reply | dict[str, Any]
    works: bool = False
    over: bool = False

    def prepare(self, double: AuthDouble) -> None:
        """Change the answer to refreshes."""

        def answer(asked: Asked) -> Reply:
            if b"grant_type=refresh_token" not in asked.body:
                return double.answer_token(asked)
            if isinstance(self.reply, Reply):
                return self.reply
            access, refresh = double.grant()
            members: dict[str, Any] = {
                "access_token": access,
                "token_type": "Bearer",
                "refresh_token": refresh,
                "expires_in": 3600,
                **self.reply,
            }
            return Reply(200, {name: value for name, value in members.items() if value is not None})

        double.change("/token", answer)


def refresh_cases() -> Iterator[RefreshCase]:
    """All of them, good ones among them."""
    right: dict[str, dict[str, Any]] = {
        "nothing": {},
        "no lifetime": {"expires_in": None},
        "a lifetime as text": {"expires_in": "3600"},
        "a lifetime of zero": {"expires_in": 0},
        "a negative lifetime": {"expires_in": -5},
        "a lifetime of ages": {"expires_in": 10**15},
        "no new refresh token": {"refresh_token": None},
        "fewer scopes": {"scope": ""},
        "members of others": {"id_token": CANARY, "extra": {"deep": [1] * 100}},
        "a type in other letters": {"token_type": "bEARER"},
        "a new line in the refresh token": {"refresh_token": f"a\n{CANARY}"},
        "a huge refresh token": {"refresh_token": "a" * 500_000},
        "a lifetime that is no number": {"expires_in": "soon"},
        "a lifetime that is a list": {"expires_in": [3600]},
    }
    for name, members in right.items():
        yield RefreshCase(f"works: {name}", members, works=True)
    wrong: dict[str, dict[str, Any]] = {
        "no access token": {"access_token": None},
        "an empty access token": {"access_token": ""},
        "an access token that is a number": {"access_token": 17},
        "a new line in the access token": {"access_token": f"a\r\nX-Stolen: {CANARY}"},
        "a blank in the access token": {"access_token": "a b"},
        "an access token beyond ASCII": {"access_token": "\u00e4\u2028"},
        "a huge access token": {"access_token": "a" * 500_000},
        "an unknown type": {"token_type": f"mac {CANARY}\n"},
    }
    for name, members in wrong.items():
        yield RefreshCase(f"refused: {name}", members)
    for name, reply in {
        "nothing at all": Reply(200, b""),
        "a page": Reply(200, b"<html>login</html>", {"content-type": "text/html"}),
        "a list": Reply(200, []),
        "null": Reply(200, b"null"),
        "deep JSON": Reply(200, b"[" * 200_000),
        "2 MiB": Reply(200, b"{" + b" " * (2 << 20) + b"}"),
        "compressed": Reply(200, gzip.compress(b" " * (50 << 20)), {"content-encoding": "gzip"}),
        "no text": Reply(200, b"\xff\xfe\x00"),
        "301": Reply(301, b"", {"location": "/stolen"}),
        "302": Reply(302, b"", {"location": "/stolen"}),
        "307": Reply(307, b"", {"location": "/stolen"}),
        "308": Reply(308, b"", {"location": "/stolen"}),
        "500": Reply(500, b"<h1>error</h1>"),
        "502": Reply(502, b""),
        "503 with an error": Reply(503, {"error": "temporarily_unavailable", "error_description": CANARY * 1000}),
        "429": Reply(429, {"error": "slow_down"}),
        "403 of a gateway": Reply(403, b"<h1>captive portal</h1>"),
    }.items():
        yield RefreshCase(f"later: {name}", reply)
    for name, reply in {
        "invalid_grant": Reply(400, {"error": "invalid_grant", "error_description": f"\x1b[31m\r\n{CANARY}" * 500}),
        "invalid_client": Reply(401, {"error": "invalid_client"}),
        "unauthorized_client": Reply(400, {"error": "unauthorized_client"}),
        "an error of its own": Reply(400, {"error": "bad_refresh_token"}),
        "an error with the status 200": Reply(200, {"error": "bad_refresh_token"}),
        "not ok, with the status 200": Reply(200, {"ok": False, "error": "invalid_refresh_token"}),
        "an error as an object": Reply(400, {"error": {"code": "invalid_grant", "message": CANARY}}),
        "an error in the detail of a framework": Reply(400, {"detail": {"error": "invalid_grant"}}),
        "a text in the detail of a framework": Reply(400, {"detail": "Invalid refresh token"}),
        "validation errors": Reply(422, {"detail": [{"loc": ["body"], "msg": "field required"}]}),
        "a page with 401": Reply(401, b"<html>", {"content-type": "text/html"}),
        "a form-encoded error": Reply(
            200, b"error=bad_refresh_token", {"content-type": "application/x-www-form-urlencoded"}
        ),
        "403 with a message": Reply(403, {"message": "no"}),
        "no such endpoint": Reply(404, b"Not Found"),
        "gone": Reply(410, b""),
    }.items():
        yield RefreshCase(f"over: {name}", reply, works=True, over=True)
