"""The handler of a task sees the claims of its caller as the token had them, however deep they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gemel import Client, Context, Server, Tasks
from gemel.auth import JWTAuth
from tests.auth.hostile.forge import make_token
from tests.auth.hostile.issuer import AUDIENCE, ISSUER, claims_with, key_set, signing_key
from tests.transports import http_rig


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_a_task_of_a_caller_with_nested_claims(tmp_path: Path, era: Any, backend: str) -> None:
    where = "memory://" if backend == "memory" else f"sqlite:///{tmp_path / 'state.db'}"
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys=key_set())
    server: Server[Any] = Server("jobs", backend=where, auth=auth)
    server.add_extension(Tasks(poll_interval=0.01))

    @server.tool(task=True)
    async def roles(ctx: Context[Any]) -> list[str]:
        access = ctx.claims["realm_access"]
        with pytest.raises(TypeError):  # as in a call that isn't a task
            access["roles"] = ["admin"]
        assert access["roles"] == ("reader", "editor")
        return [*access["roles"], *ctx.claims["groups"][0]["path"]]

    key = signing_key("es")
    claims = claims_with({"realm_access": {"roles": ["reader", "editor"]}, "groups": [{"path": ["staff"]}]})
    token = make_token({"alg": key.algorithm, "kid": key.kid, "typ": "at+jwt"}, claims, key.key, key.algorithm)
    async with http_rig.serving(server) as site:
        url = f"http://127.0.0.1:{site.port}/mcp"
        async with Client(url, era=era, headers={"Authorization": f"Bearer {token}"}) as client:
            task = await client.call_tool("roles", task=True)
            assert task.id is not None
            assert (await task.result(total=10)).data == ["reader", "editor", "staff"]
