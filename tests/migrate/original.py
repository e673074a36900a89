"""Runs programs with the package that they were written for, and compares each with its comments; for the peers' environments.

python original.py PROGRAM…: prints what differs, a line for each difference; exit code 1 if something does.
"""

import asyncio
import contextlib
import inspect
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from expectations import expected_of, load, parsed, value_of

warnings.simplefilter("ignore")


def _client(server, expected):
    """A client of the package, and the function that turns its errors into results."""
    answer, sampled = expected.first("answers"), expected.first("sampled")
    if "fastmcp" in type(server).__module__.split(".")[0]:
        from fastmcp import Client

        async def on_elicit(message, response_type, params, context):
            from fastmcp.client.elicitation import ElicitResult

            if answer == "decline":
                return ElicitResult(action="decline")
            return ElicitResult(action="accept", content=parsed(answer))

        async def on_sample(messages, params, context):
            return sampled

        options = {"elicitation_handler": on_elicit} if answer else {}
        options |= {"sampling_handler": on_sample} if sampled else {}
        if "mode" in inspect.signature(Client).parameters and expected.first("era"):
            options["mode"] = "legacy"
        return Client(server, **options)

    from mcp import types

    async def answered(context, params):
        if answer == "decline":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content=parsed(answer))

    async def said(context, params):
        return types.CreateMessageResult(
            role="assistant", model="a", content=types.TextContent(type="text", text=sampled)
        )

    options = {"elicitation_callback": answered} if answer else {}
    options |= {"sampling_callback": said} if sampled else {}
    with contextlib.suppress(ImportError):  # version 1
        from mcp.shared.memory import create_connected_server_and_client_session

        return create_connected_server_and_client_session(getattr(server, "_mcp_server", server), **options)
    from mcp import Client

    if expected.first("era"):
        options["mode"] = "legacy"
    return Client(server, **options)


async def _compare(server, expected):
    wrong = []

    def check(what, wanted, got):
        if wanted != got:
            wrong.append(f"{what}: expected {wanted!r}, got {got!r}")

    async with _client(server, expected) as client:
        names = expected.first("lists")
        if names is not None:
            tools = await client.list_tools()
            tools = getattr(tools, "tools", tools)
            check("lists", names.split(), sorted(tool.name for tool in tools))
        for key in ("call", "fails"):
            for name, arguments, wanted in expected.calls(key):
                options = {"raise_on_error": False} if "fastmcp" in type(client).__module__ else {}
                result = await client.call_tool(name, arguments, **options)
                failed = getattr(result, "is_error", None)
                failed = result.isError if failed is None else failed
                structured = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
                check(f"{name} failed", key == "fails", failed)
                if key == "fails":
                    check(name, True, wanted in result.content[0].text)
                else:
                    check(name, parsed(wanted), value_of(structured, result.content))
        for value in expected.all("read"):
            uri, _, wanted = value.partition(" = ")
            result = await client.read_resource(uri)
            contents = getattr(result, "contents", result)
            check(uri, parsed(wanted), parsed(contents[0].text))
        for name, arguments, wanted in expected.calls("prompt"):
            result = await client.get_prompt(name, arguments)
            check(name, wanted, result.messages[-1].content.text)
    return wrong


def differences(path: Path) -> list[str]:
    """What a program does otherwise than its comments say."""
    expected = expected_of(path)
    lines = expected.all("prints")
    if not lines:
        return asyncio.run(_compare(load(path, path.read_text(encoding="utf-8"))["mcp"], expected))
    # In a process of its own, beside a server of the same library.
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(path, folder)
        shutil.copy(path.with_name("served_sums_mcp1.py"), Path(folder, "served_sums.py"))
        command = [sys.executable, "-W", "ignore", path.name]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    if done.returncode == 0 and done.stdout.splitlines() == lines:
        return []
    return [f"expected {lines!r}, got {done.stdout!r}: {done.stderr[-500:]}"]


def main() -> int:
    """Compare the programs; return the exit code."""
    wrong = 0
    for name in sys.argv[1:]:
        path = Path(name)
        try:
            lines = differences(path)
        except Exception as exc:
            lines = [f"{type(exc).__name__}: {exc}"]
        for line in lines:
            print(f"{path.stem}: {line}", flush=True)
        wrong += bool(lines)
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
