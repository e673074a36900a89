"""Log in on another device (RFC 8628): the person types a short code there, and the client asks until that is done."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import urlencode

import msgspec

from gemel.auth.client.token_request import (
    IssuerOptions,
    Proof,
    RegisteredClient,
    TokenRequestFailed,
    authenticate,
    is_success,
    read_answer,
    read_error,
    request_tokens,
    secrets_in,
)
from gemel.auth.client.tokens import Tokens
from gemel.auth.client.user import check_login_url
from gemel.auth.flow import FetchFailed, Flow, HttpRequest
from gemel.auth.metadata import AuthorizationServer
from gemel.auth.url_rules import describe
from gemel.errors import AuthorizationFailed

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
#: Seconds between two requests: the least, that of servers which name none, and what `slow_down` adds.
LEAST_INTERVAL = 1.0
INTERVAL = 5.0
SLOW_DOWN = 5.0
#: Seconds between two requests after many `slow_down` or lost connections.
LONGEST_INTERVAL = 120.0
#: Seconds that a code is valid, whatever the server says.
LONGEST_LIFE = 3600.0

_USER_CODE = re.compile(r"[\x21-\x7e]([\x20-\x7e]{0,62}[\x21-\x7e])?")

T = TypeVar("T")


class DeviceCode(msgspec.Struct, frozen=True):
    """The answer of a device authorization endpoint (RFC 8628 §3.2)."""

    device_code: str
    user_code: str
    verification_uri: str
    expires_in: float
    verification_uri_complete: str | None = None
    interval: float = INTERVAL

    def __repr__(self) -> str:
        return f"<DeviceCode for {self.verification_uri!r}>"


class RunFlow(Protocol):
    """Drives a flow to its end: `Fetcher.run`."""

    def __call__(self, flow: Flow[T], /) -> Awaitable[T]:
        """Return what the flow returns."""
        ...


class DeviceLogin:
    """Log in on another device, such as a phone: for machines without a browser.

    Args:
        show: Called with a text for the person, which has the address and the code; it is printed to standard error by
            default.
        timeout: Seconds that the person has at most; the authorization server may allow less.
        sleep: Waits for a number of seconds.
    """

    def __init__(
        self,
        *,
        show: Callable[[str], object] | None = None,
        timeout: float = LONGEST_LIFE,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._show = show or _print
        self._timeout = timeout
        self._sleep = sleep

    async def login(
        self,
        run: RunFlow,
        server: AuthorizationServer,
        client: RegisteredClient,
        *,
        resource: str,
        scopes: Sequence[str] = (),
        proof: Proof | None = None,
        options: IssuerOptions = IssuerOptions(),  # noqa: B008 - it is frozen
    ) -> Tokens:
        """Show a code to the person and ask for the tokens until they have used it.

        Args:
            run: Makes the requests.
            server: The authorization server.
            client: The client.
            resource: The identifier of the MCP server.
            scopes: The scopes to request.
            proof: Binds the tokens to a key.
            options: What the user chose for this authorization server.

        Returns:
            The tokens.

        Raises:
            AuthorizationFailed: The server can't do this, refused, or the person was not done in time.
        """
        endpoint = server.token_endpoint
        if endpoint is None:
            raise AuthorizationFailed(f"{describe(server.issuer)} has no token endpoint")
        sent = {"resource": options.resource_of(resource)}
        wish = {"scope": options.scope_of(scopes), **sent, **options.parameters}
        code = await run(request_code(server, client, wish))
        self._show(_instructions(code))
        form = {"grant_type": DEVICE_GRANT, "device_code": code.device_code, **sent}
        interval = max(code.interval, LEAST_INTERVAL)
        left = min(code.expires_in, self._timeout, LONGEST_LIFE)
        while left >= interval - LEAST_INTERVAL:
            await self._sleep(interval)
            left -= interval
            begin = time.monotonic()
            try:
                tokens = await run(
                    request_tokens(
                        endpoint,
                        form,
                        client,
                        methods=server.token_endpoint_auth_methods_supported,
                        scopes=tuple(scopes),
                        proof=proof,
                        issuer=server.issuer,
                    )
                )
            except FetchFailed:
                interval = min(interval * 2, LONGEST_INTERVAL)
            except TokenRequestFailed as exc:
                if exc.error == "slow_down":
                    interval = min(interval + SLOW_DOWN, LONGEST_INTERVAL)
                elif exc.error == "access_denied":
                    raise AuthorizationFailed("The login was refused on the other device") from None
                elif exc.error == "expired_token":
                    break
                elif exc.status == 429 or exc.status >= 500:
                    interval = min(interval * 2, LONGEST_INTERVAL)
                elif exc.error != "authorization_pending":
                    raise
            else:
                return tokens
            left -= time.monotonic() - begin
        raise AuthorizationFailed("Nobody logged in with the code in time; start the login again")


def device_endpoint(server: AuthorizationServer) -> str:
    """Return the device authorization endpoint. Raises AuthorizationFailed: the server has none."""
    if server.device_authorization_endpoint is None:
        raise AuthorizationFailed(
            f"{describe(server.issuer)} has no login with a code on another device: log in with a browser instead, of "
            "this machine or of another one (PasteLogin, on the command line --paste)"
        )
    return server.device_authorization_endpoint


def request_code(
    server: AuthorizationServer, client: RegisteredClient, form: dict[str, str | None]
) -> Flow[DeviceCode]:
    """Request a code for the person.

    Args:
        server: The authorization server.
        client: The client.
        form: The parameters; None leaves one out.

    Returns:
        The flow; its result is the code, whose addresses may be shown.

    Raises:
        AuthorizationFailed: The server has no such endpoint, refused, or its answer is not valid.
    """
    endpoint = device_endpoint(server)
    fields = {name: value for name, value in form.items() if value is not None}
    fields, headers = authenticate(client, server.token_endpoint_auth_methods_supported, fields)
    sent = [("Content-Type", "application/x-www-form-urlencoded"), ("Accept", "application/json"), *headers]
    response = yield HttpRequest("POST", endpoint, sent, urlencode(fields).encode())
    where = f"The device authorization endpoint {describe(endpoint)}"
    if not is_success(response):
        raise read_error(response, f"{where} refuses the request", secrets_in(fields, headers))
    try:
        code = msgspec.convert(_lenient(read_answer(response)), DeviceCode, strict=False)
    except msgspec.MsgspecError:
        raise AuthorizationFailed(f"{where} sent an answer that can't be read") from None
    is_timed = 0 < code.expires_in < float("inf") and 0 <= code.interval < float("inf")
    if not code.device_code or _USER_CODE.fullmatch(code.user_code) is None or not is_timed:
        raise AuthorizationFailed(f"{where} sent an answer that is not valid")
    check_login_url(code.verification_uri)
    if code.verification_uri_complete is not None:
        check_login_url(code.verification_uri_complete)
    return code


def _lenient(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Some servers write `verification_url`, as a draft did, or null for what they leave out."""
    members = {name: value for name, value in answer.items() if value is not None}
    if "verification_url" in members:
        members.setdefault("verification_uri", members["verification_url"])
    return members


def _instructions(code: DeviceCode) -> str:
    text = f"To log in, open {code.verification_uri} on any device and enter the code {code.user_code}"
    if code.verification_uri_complete is not None:
        text += f"\nor open {code.verification_uri_complete}"
    return text


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
