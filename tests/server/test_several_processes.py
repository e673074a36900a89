"""Several processes of one server share what all of them must know: by default in its backend, else they don't start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Overloaded, PeerError, RateLimit, ResultLimit, Server, StartError, Tasks
from gemel.auth import DPoPProofs, GitHub, JWTAuth, OAuthProxy
from gemel.backends import MemoryBackend
from gemel.code import CodeMode
from tests.auth.hostile.issuer import AUDIENCE, ISSUER, key_set


def with_proxy(shared: Any, **options: Any) -> Server[Any]:
    app = GitHub(client_id="a", client_secret="b" * 32)
    return Server("notes", auth=OAuthProxy(app, url="https://notes.example.com/mcp", **options), backend=shared)


def with_proofs(shared: Any, **options: Any) -> Server[Any]:
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=key_set(), dpop=DPoPProofs(**options))
    return Server("notes", auth=auth, backend=shared)


def with_limit(shared: Any, **options: Any) -> Server[Any]:
    return Server("notes", backend=shared, middleware=[RateLimit(0.001, burst=1, **options)])


def with_pages(shared: Any, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("notes", backend=shared)
    server.add_middleware(ResultLimit(5000, spill=True, **options))
    return server


def with_limit_inside(shared: Any, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("outer", backend=shared)
    server.mount(with_limit(shared, **options), "notes")
    return server


def with_tasks(shared: Any, **options: Any) -> Server[Any]:
    server: Server[Any] = Server("notes", backend=shared)
    server.add_extension(Tasks(**options))
    return server


def with_states(shared: Any, **options: Any) -> Server[Any]:
    return Server("notes", state_once=True, **{"backend": shared, **options})


PARTS = {
    "the request states that were used": with_states,
    "the logins of OAuthProxy": with_proxy,
    "the used proofs of DPoPProofs": with_proofs,
    "the requests that RateLimit counts": with_limit,
    "the pages of long results": with_pages,
    "the tasks": with_tasks,
    "the requests that RateLimit counts in a mounted server": with_limit_inside,
}
Make = Callable[..., Server[Any]]


@pytest.mark.parametrize("what", PARTS)
def test_workers_that_would_each_keep_something_alone_do_not_start(what: str) -> None:
    server = PARTS[what](None)
    with pytest.raises(StartError, match=what.removesuffix(" in a mounted server")) as caught:
        server.run("http", port=0, workers=2, sessions=False)
    assert 'Server(backend="sqlite:///FILE")' in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_error_names_the_middleware_that_the_operator_wrote() -> None:
    server: Server[Any] = Server("notes", middleware=[CodeMode(mode="search")])
    with pytest.raises(StartError, match="that CodeMode keeps"):
        server.run("http", port=0, workers=2, sessions=False)


@pytest.mark.parametrize("make", PARTS.values())
def test_what_workers_share_is_in_the_backend_of_the_server(make: Make, tmp_path: Path) -> None:
    make(f"sqlite:///{tmp_path}/state.db").check_workers()


@pytest.mark.parametrize("make", PARTS.values())
def test_it_may_be_in_a_backend_of_its_own(make: Make, tmp_path: Path) -> None:
    from gemel.backends import SqliteBackend

    make(None, backend=SqliteBackend(tmp_path / "state.db")).check_workers()


@pytest.mark.parametrize("make", [with_limit, with_pages])
def test_each_worker_may_limit_on_its_own_if_that_is_said(make: Make) -> None:
    make(None, backend=MemoryBackend()).check_workers()


@pytest.mark.parametrize("make", [with_proxy, with_proofs])
async def test_a_shared_server_with_logins_in_memory_does_not_start(make: Make, tmp_path: Path) -> None:
    server = make(f"sqlite:///{tmp_path}/state.db", backend="memory://")
    with pytest.raises(StartError, match=r"'notes' miss the .* backend="):
        async with server.running():
            pass


async def test_processes_of_a_server_count_requests_together_without_an_option(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    one, two = (with_limit(url, methods=["tools/list"], by=lambda ctx: "everybody") for _ in range(2))
    async with Client(one) as client, Client(two) as other:
        one.tool("first")(lambda: "1")
        two.tool("first")(lambda: "1")
        await client.list_tools()
        with pytest.raises((PeerError, Overloaded), match="Too many requests"):
            await other.list_tools()
