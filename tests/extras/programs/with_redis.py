"""A change that one server announces over Redis reaches a client of another one."""

import asyncio
import shutil
import socket
import tempfile

from gemel import Changed, Client, Server


async def main() -> None:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise SystemExit("redis-server is missing: apt install redis-server")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ("--port", str(port), "--bind", "127.0.0.1", "--dir", folder, "--appendonly", "yes")
        quiet = asyncio.subprocess.DEVNULL
        process = await asyncio.create_subprocess_exec(program, *options, stdout=quiet)
        try:
            while True:
                try:
                    (await asyncio.open_connection("127.0.0.1", port))[1].close()
                    break
                except ConnectionRefusedError:
                    assert process.returncode is None, "redis-server did not start"
                    await asyncio.sleep(0.01)
            await share(f"redis://127.0.0.1:{port}")
        finally:
            process.terminate()
            await process.wait()


async def share(url: str) -> None:
    one, other = Server("one", backend=url), Server("other", backend=url)
    other.resource("notes://all", name="notes")(lambda: "tea")
    async with one.running(), Client(other) as client, client.listen(resources=["notes://all"]) as changes:
        one.notify(Changed("resource", "notes://all"))
        async with asyncio.timeout(30):
            assert await anext(aiter(changes)) == Changed("resource", "notes://all")


asyncio.run(main())
