"""Runs `authorities.py` against the client."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest

from gemel import AuthorizationFailed, Client, HttpStatus
from gemel.auth import OAuth
from gemel.http1.client import network
from tests.auth.double import AuthDouble
from tests.auth.hostile.authorities import CANARY, INSIDE, Case, cases

CASES = list(cases())
#: What names in the cases mean, as the resolver of an attacker says.
NAMES = {"metadata.google.internal": "169.254.169.254", "localhost": "127.0.0.1"}
connect = network._connect


def test_there_are_many_cases_and_each_has_a_name_of_its_own() -> None:
    assert len(CASES) >= 80
    assert len({case.name for case in CASES}) == len(CASES)
    assert len(INSIDE) >= 25


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name.encode("unicode_escape").decode()[:60])
async def test_a_server_can_not_misuse_a_client(case: Case, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    """AUTHC-19, AUTHC-20, AUTHC-21."""
    connected: list[tuple[str, int]] = []

    async def resolve(host: str, port: int) -> Any:
        try:
            return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            address = NAMES.get(host, "93.184.215.14")
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    async def connecting(address: Any) -> socket.socket:
        connected.append(address[4][:2])
        if address[4][0] != "127.0.0.1":
            raise ConnectionRefusedError("the test stays on this machine")
        return await connect(address)

    monkeypatch.setattr(network, "resolve", resolve)
    monkeypatch.setattr(network, "_connect", connecting)
    caplog.set_level("DEBUG")
    async with AuthDouble() as double:
        case.prepare(double)
        error: Exception | None = None
        try:
            async with asyncio.timeout(20), Client(double.url, auth=OAuth(authorizer=double.person())) as client:
                assert [tool.name for tool in await client.list_tools()] == ["read", "write"]
        except (AuthorizationFailed, HttpStatus) as exc:
            error = exc
        assert (error is None) == case.works, error
        assert len(double.opened) <= case.logins
        assert len([form for form in double.forms("/token") if "code" in form]) <= case.codes
        assert "/stolen" not in double.paths(double.authority)
        # Nothing but the two servers is connected to, whatever the documents say.
        assert set(connected) <= {("127.0.0.1", double.server.port), ("127.0.0.1", double.authority.port)}
        secrets = [CANARY, *double.tokens, *double.refresh_tokens, *double.codes]
        secrets += [query["state"] for query in double.authorizations()]
        shown = caplog.text + (f"{error}{error!r}" if error is not None else "")
        assert not [secret for secret in secrets if secret in shown]
        assert error is None or (len(str(error)) < 1500 and str(error).isprintable())
