"""Runs a program with the package that it was written for, and compares it with its comments; for the peers' environments.

python original.py PROGRAM: prints what differs; exit code 1 if something does.
"""

import asyncio
import contextlib
import inspect
import io
import sys
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

    options = {"elicitation_callback": answered} if answer else {}
    if hasattr(server, "_mcp_server"):
        from mcp.shared.memory import create_connected_server_and_client_session

        return create_connected_server_and_client_session(server._mcp_server, **options)
    from mcp import Client

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


def main() -> int:
    """Compare one program; return the exit code."""
    path = Path(sys.argv[1])
    expected = expected_of(path)
    if expected.all("prints"):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            import runpy

            runpy.run_path(str(path), run_name="__main__")
        wrong = [] if printed.getvalue().split("\n")[:-1] == expected.all("prints") else [printed.getvalue()]
    else:
        wrong = asyncio.run(_compare(load(path, path.read_text())["mcp"], expected))
    print("\n".join(map(str, wrong)))
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
