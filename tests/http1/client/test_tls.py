"""The HTTP client over TLS, straight and through a proxy's tunnel."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from gemel import DefinitionError, NotSent
from tests.transports.certificates import server_tls
from tests.transports.scripted_http import Answer, Asked, ScriptedServer, Talking, tunnel


async def answers(asked: Asked, answer: Answer) -> None:
    await answer.result(asked)


async def test_tls_checks_the_certificate_against_the_given_authorities(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with ScriptedServer(answers, server_tls(certificate)) as server:
        for tls in (str(certificate), trusting, False):
            async with Talking(server.url, tls=tls) as client:
                assert await client.call() == {}
                assert await client.call() == {}
        assert server.connections == 3
        async with Talking(server.url) as client:
            with pytest.raises(NotSent, match="certificate"):
                await client.call()


async def test_the_certificate_must_be_for_the_host_that_was_named(certificate: Path) -> None:
    async with ScriptedServer(answers, server_tls(certificate)) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        async with Talking(url, tls=str(certificate)) as client:
            with pytest.raises(NotSent, match="localhost"):
                await client.call()


async def test_a_file_of_authorities_that_is_not_there_is_named() -> None:
    async with Talking("https://127.0.0.1:9/", tls="/nowhere/ca.pem") as client:
        with pytest.raises(DefinitionError, match=r"/nowhere/ca\.pem"):
            await client.call()


async def test_a_tunnel_through_a_proxy_carries_tls_to_the_server(certificate: Path) -> None:
    async with ScriptedServer(answers, server_tls(certificate)) as server, ScriptedServer(tunnel) as proxy:
        options = {"tls": str(certificate), "proxy": f"http://127.0.0.1:{proxy.port}"}
        async with Talking(server.url, **options) as client:  # type: ignore[arg-type] # options of the transport
            assert await client.call() == {}
            assert await client.call() == {}
        assert (proxy.connections, len(server.asked)) == (1, 2)
        assert [asked.path for asked in proxy.asked] == [f"127.0.0.1:{server.port}"]
