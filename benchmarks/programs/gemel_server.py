"""Gemel's server, as users start it (`http`, `stdio`), and its ASGI app in the HTTP server of all others (`asgi`).

As `workers N` it has so many processes, and a tool that computes for half a millisecond.
As `http-token` it takes calls with an access token only: JSON Web Tokens of several callers, which it prints behind its port.
"""

import sys
import time

from gemel import Server

#: As long as `TOOLS` of `wire.py` expects, whose imports would count as a part of the start.
TEXT = "0123456789" * 100_000
#: Callers, each with a token of its own.
CALLERS = 32
ISSUER, AUDIENCE = "https://login.example.com", "https://bench.example.com/mcp"


def make(**options) -> Server:
    server = Server("bench", version="1", **options)

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    def add_in_thread(a: int, b: int) -> int:
        """Add two numbers in a thread."""
        return a + b

    @server.tool
    async def text(a: int, b: int) -> str:
        """Return a text of a megabyte."""
        return TEXT

    return server


def serve_with_token() -> None:
    from gemel.auth import JWTAuth, jose

    key = jose.generate_key("ES256")
    claims = {"iss": ISSUER, "aud": AUDIENCE, "client_id": "app", "scope": "notes", "exp": time.time() + 3600}
    callers = [{**claims, "sub": f"caller {number}"} for number in range(CALLERS)]
    tokens = [jose.sign_jwt(caller, key, header={"typ": "at+jwt"}) for caller in callers]
    auth = JWTAuth(issuer=ISSUER, audience=AUDIENCE, required_scopes=["notes"], keys=jose.public_jwk(key))
    make(auth=auth).run(
        "http", port=0, announce=lambda url: print(url.split(":")[2].split("/")[0], *tokens, flush=True)
    )


def serve_from_workers(count: int) -> None:
    server = Server("bench", version="1", state_keys=[bytes(range(32))])

    @server.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers, slowly."""
        return sum(range(40_000)) * 0 + a + b

    server.run("http", port=0, workers=count, announce=lambda url: print(url.split(":")[2].split("/")[0], flush=True))


server = make()

if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run()
    elif sys.argv[1] == "http":
        server.run("http", port=0, announce=lambda url: print(url.split(":")[2].split("/")[0], flush=True))
    elif sys.argv[1] == "workers":
        serve_from_workers(int(sys.argv[2]))
    elif sys.argv[1] == "http-token":
        serve_with_token()
    else:
        from benchmarks.programs.http_main import serve

        serve(server.http_app())
