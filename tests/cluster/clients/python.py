"""The official Python SDK's client, or FastMCP's, uses the cluster: `python.py official|fastmcp ERA URL NAME`."""

import asyncio
import os
import sys
import time
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost, listen
from tally import CALL_SECONDS, Tally, Walk, answers, tells_anew

KIND, ERA, URL, NAME = sys.argv[1:5]
URI = f"cluster://{NAME}"


class Client:
    """One client; a new one whenever it breaks: the official one ends with any connection that is cut."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._ready = asyncio.Event()
        #: Set when a call found the connection of this client broken.
        self._failed = asyncio.Event()
        self.client: Any = None
        self.broken = 0
        #: The HTTP sessions of all of them, which must still be there at the end.
        self.sessions: list[str] = []

    def _make(self, transport: Any) -> Any:
        mode = "legacy" if ERA == "2025" else "auto"
        if KIND == "official":
            from mcp import Client as Official

            return Official(transport, mode=mode, message_handler=self._heard, elicitation_callback=self._asked)
        from fastmcp import Client as Fast

        return Fast(URL, mode=mode, message_handler=self._heard, elicitation_handler=self._fast_asked)

    async def hold(self) -> None:
        """Be connected until cancelled."""
        while True:
            connected = False
            try:
                hooks = {"response": [self._remember]}
                async with (
                    httpx2.AsyncClient(event_hooks=hooks, timeout=httpx2.Timeout(30, read=300)) as http,
                    # A client that breaks must not end its session: it is to be there at the end.
                    self._make(streamable_http_client(URL, http_client=http, terminate_on_close=False)) as client,
                ):
                    if ERA == "2025":
                        await client.session.subscribe_resource(URI)
                    self.client = client
                    connected = True
                    self._ready.set()
                    await self._failed.wait()
                    raise ConnectionError
            except BaseException as exc:
                if isinstance(exc, KeyboardInterrupt | SystemExit):
                    raise
                self.broken += connected
            self._ready.clear()
            self._failed.clear()
            self._tally.lost()
            await asyncio.sleep(0.3)

    async def connected(self) -> None:
        """Wait until there is a client."""
        async with asyncio.timeout(60):
            await self._ready.wait()

    async def ask_anew(self) -> str:
        """See Walk. These clients give up their own stream when it broke off twice."""
        session = None
        if ERA == "2025":
            session = self.sessions[-1] if self.sessions else self.client.transport.get_session_id()
        return "no session" if session is None else await asyncio.to_thread(tells_anew, URL, session, URI)

    async def _remember(self, response: Any) -> None:
        session = response.headers.get("mcp-session-id")
        if session is not None and session not in self.sessions:
            self.sessions.append(session)

    async def _heard(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/resources/updated":
            self._tally.hint()

    async def _asked(self, context: Any, params: Any) -> types.ElicitResult:
        fields = params.requested_schema["properties"]
        return types.ElicitResult(action="accept", content=dict.fromkeys(fields, f"answer of {params.message}"))

    async def _fast_asked(self, message: str, kind: Any, params: Any, context: Any) -> Any:
        from fastmcp.client.elicitation import ElicitResult

        fields = params.requested_schema["properties"]
        return ElicitResult(action="accept", content=dict.fromkeys(fields, f"answer of {message}"))

    async def call(self, name: str, arguments: dict[str, Any], progress: Any) -> str:
        """Call a tool; returns its text. Raises if it has an error, or does not end."""
        try:
            return await self._call(name, arguments, progress)
        except Exception as exc:
            # Either client raises one of these for each call from then on.
            ended = "Connection closed" in str(exc) or "not connected" in str(exc)
            if ended or isinstance(exc, httpx2.TransportError | ConnectionError):
                self._ready.clear()  # closing it may take a while
                self._failed.set()
            raise

    async def _call(self, name: str, arguments: dict[str, Any], progress: Any) -> str:
        async with asyncio.timeout(CALL_SECONDS):
            await self._ready.wait()
            if KIND == "official":
                result = await self.client.call_tool(
                    name, arguments, read_timeout_seconds=CALL_SECONDS, progress_callback=progress
                )
            else:
                result = await self.client.call_tool(
                    name, arguments, timeout=CALL_SECONDS, progress_handler=progress, raise_on_error=False
                )
        text = str(result.content[0].text)
        if result.is_error:
            raise RuntimeError(text)
        return text

    async def listen(self) -> None:
        """In the stateless era: hear of changes of one resource; subscribe again whenever a subscription ends."""
        while True:
            await self._ready.wait()
            try:
                async with listen(self.client.session, resource_subscriptions=[URI]) as subscription:
                    self._tally.hint()  # what changed before is not told
                    async for _ in subscription:
                        self._tally.hint()
            except (SubscriptionLost, Exception):
                await asyncio.sleep(0.2)
            self._tally.lost()


async def main() -> None:
    tally = Tally()
    client = Client(tally)
    tasks = [asyncio.ensure_future(client.hold())]
    await client.connected()
    if ERA == "2026":
        tasks.append(asyncio.ensure_future(client.listen()))
        await asyncio.sleep(0.5)
    print("connected", flush=True)
    end, settled = map(float, (await asyncio.to_thread(sys.stdin.readline)).split())
    walk = Walk(tally, client.call, NAME, client.ask_anew)
    await walk.until(end)
    await asyncio.sleep(max(0.0, settled - time.time()))
    usable = await walk.check()
    gone = [session for session in client.sessions if not await asyncio.to_thread(answers, URL, session)]
    tally.violations += ["a session is gone"] * len(gone)
    tally.print(client=f"{KIND} {ERA}", usable=usable and not gone, broken=client.broken, sessions=len(client.sessions))
    os._exit(0)  # how a client closes is not what this is about


asyncio.run(main())
