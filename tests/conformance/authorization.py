"""Runs the suite's command `authorization` against the OAuth proxy, and is the person with the browser that it asks for."""

import asyncio
from pathlib import Path

from tests.auth.proxy.rig import Browser, rig
from tests.interop.peers import ROOT
from tests.interop.processes import environment
from tests.ports import free_port


def judge_proxy(suite: list[str], options: list[str], log: Path, limit: float) -> tuple[int, str]:
    """Run the suite against a proxy in front of a test double of a provider.

    Args:
        suite: The command line of the suite.
        options: Further options of its command.
        log: Where its output goes.
        limit: Seconds after which it is ended.

    Returns:
        Its exit status and its output.
    """
    status, output = asyncio.run(_judge(suite, options, limit))
    log.write_text(output)
    return status, output


async def _judge(suite: list[str], options: list[str], limit: float) -> tuple[int, str]:
    port = free_port()
    callback = f"http://127.0.0.1:{port}/callback"
    async with rig() as site:
        client_id = await site.register(callback)
        about = ["--url", site.issuer, "--client-id", client_id, "--resource", site.resource, "--port", str(port)]
        process = await asyncio.create_subprocess_exec(
            *suite,
            "authorization",
            *about,
            *options,
            cwd=ROOT,
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = ""
        try:
            async with asyncio.timeout(limit):
                assert process.stdout is not None
                async for line in process.stdout:
                    text = line.decode("utf-8", "replace")
                    output += text
                    if text.startswith(f"{site.issuer}/authorize?"):
                        await _log_in(text.strip(), callback)
                status = await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    return status, output


async def _log_in(url: str, callback: str) -> None:
    browser = Browser()
    _, page = await browser.open(url, callback)
    back, _ = await browser.submit(page, until=callback)
    while True:  # within the limit of the whole run
        try:
            await browser.request("GET", back)
        except ConnectionRefusedError:  # the suite prints the address before it listens
            await asyncio.sleep(0.05)
        else:
            return
