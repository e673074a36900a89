"""A server accepts the token of its issuer, signed with a key of joserfc, and no other."""

import asyncio
import time

from joserfc import jwk, jwt

from gemel import Client, Context, HttpStatus, Server
from gemel.auth import JWTAuth

ISSUER, AUDIENCE = "https://issuer.example.com", "https://shop.example.com/mcp"
KEY = jwk.ECKey.generate_key("P-256", {"kid": "1", "alg": "ES256"})


def token(key: jwk.ECKey) -> str:
    """A token of somebody, which `key` signs."""
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 60}
    return jwt.encode({"alg": "ES256", "kid": "1"}, claims, key)


server = Server("shop", auth=JWTAuth(issuer=ISSUER, audience=AUDIENCE, keys={"keys": [KEY.as_dict(private=False)]}))


@server.tool
def who(ctx: Context) -> str:
    """Say who calls."""
    return str(ctx.principal)


async def main() -> None:
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(server.run_async("http", port=0, announce=ready.set_result))
    url = await ready
    async with Client(url, headers={"authorization": f"Bearer {token(KEY)}"}) as client:
        assert (await client.call_tool("who")).text == "ann"
    status = 0
    try:
        async with Client(url, headers={"authorization": f"Bearer {token(jwk.ECKey.generate_key('P-256'))}"}):
            pass
    except HttpStatus as refusal:
        status = refusal.status
    assert status == 401, "a token of another key was accepted"
    serving.cancel()
    await asyncio.wait([serving])


asyncio.run(main())
