"""Agents of each framework with a scripted model, on a server of ours and on one of the official SDK.

They run where the framework is installed: `python -m tests.adapters.run` sees to that. A broken connection and
cancellation are tested where the frameworks let them through.
"""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Awaitable, Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gemel import CallError, Client, DefinitionError, Server
from tests.adapters.conversation import Conversation
from tests.adapters.server import server
from tests.interop.peers import FOREIGN, ROOT, locate

#: Each adapter with a module of its framework.
FRAMEWORKS = {
    "langchain": "langchain",
    "pydantic_ai": "pydantic_ai",
    "openai_agents": "agents",
    "llama_index": "llama_index",
    "google_adk": "google",
    "smolagents": "smolagents",
}
OURS = Path(__file__).with_name("server.py")

Run = Callable[..., Awaitable[Conversation]]

pytestmark = pytest.mark.timeout(120)  # the import of a framework takes seconds


def installed(adapter: str) -> bool:
    name = FRAMEWORKS[adapter]
    if find_spec(name) is None:
        return False
    return name != "google" or find_spec("google.adk") is not None


@pytest.fixture(params=[pytest.param(name, id=name) for name in FRAMEWORKS])
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if not installed(name):
        pytest.skip(f"{name} is not installed")
    return name


@pytest.fixture
def run(framework: str) -> Run:
    driver: Run = import_module(f"tests.adapters.drivers.{framework}").run
    return driver


@pytest.fixture(params=["ours", "foreign"])
def target(request: pytest.FixtureRequest) -> Any:
    if request.param == "ours":
        return OURS
    python = locate().peers_python
    if not python.exists():
        pytest.skip("the official SDK is not installed: python -m tests.interop.peers peers")
    return [str(python), str(FOREIGN / "server_python.py"), "stdio"]


async def test_an_agent_calls_tools_and_is_told_their_errors(run: Run, target: Any) -> None:
    calls: Any = [("add", {"a": 2, "b": 3}), ("fail", {"reason": "no tea"}), ("weather", {"city": "Oslo"})]
    conversation = await run(target, calls)
    added, failed, weather = conversation.told
    assert "5" in added
    assert "no tea" in failed
    assert "Oslo" in weather
    assert "21.5" in weather
    assert conversation.answer == "done"
    assert conversation.tools["add"]["properties"]["a"]["type"] == "integer"


async def test_arguments_may_have_any_name(run: Run) -> None:
    words = ("config", "run_manager", "callbacks", "input", "tool", "name")
    conversation = await run(server, [("names", {word: word.upper() for word in words})])
    assert " ".join(words).upper() in conversation.told[0]


async def test_wrong_arguments_are_the_models_errors(run: Run, framework: str) -> None:
    conversation = await run(server, [("add", {"a": "x", "b": 3})])
    assert (
        "'integer'" in conversation.told[0] if framework == "smolagents" else "expected integer" in conversation.told[0]
    )
    assert conversation.answer == "done"


async def test_a_group_is_one_list(run: Run) -> None:
    other = Server("other")

    @other.tool
    async def boil(litres: int) -> str:
        """Boil water."""
        return f"boiled {litres}"

    conversation = await run({"pantry": server, "other": other}, [("boil", {"litres": 2}), ("add", {"a": 1, "b": 1})])
    assert "boiled 2" in conversation.told[0]
    assert "2" in conversation.told[1]


async def test_tools_can_be_chosen_and_resources_be_read(run: Run) -> None:
    conversation = await run(server, [("read_resource", {"uri": "pantry://tea"})], include=["add"], resources=True)
    assert conversation.tools.keys() - {"final_answer"} == {"add", "read_resource"}
    assert "two bags" in conversation.told[0]


async def test_a_resource_that_does_not_exist_is_the_models_error(run: Run) -> None:
    conversation = await run(server, [("read_resource", {"uri": "pantry://x"})], include=[], resources=True)
    assert "not found" in conversation.told[0]
    assert conversation.answer == "done"


async def test_content_that_is_no_text_reaches_the_model_or_its_description_does(run: Run) -> None:
    conversation = await run(server, [("mixed", {})])
    told = conversation.told[0]
    assert "see" in told
    assert "pantry://tea" in told


async def test_questions_and_progress_go_to_the_callbacks_of_the_client(run: Run, framework: str) -> None:
    if framework == "smolagents":
        pytest.skip("its driver makes the client")
    steps: list[float] = []
    client = Client(
        server, on_elicit=lambda form: {"value": "Ada"}, on_progress=lambda progress: steps.append(progress.progress)
    )
    async with client:
        conversation = await run(client, [("asks", {})])
    assert "Hello Ada" in conversation.told[0]
    assert steps[0] == 1


#: These show every error to the model.
SHOWN = {"llama_index", "smolagents"}


async def test_a_broken_connection_ends_the_run(run: Run, framework: str) -> None:
    dying = Server("dying")

    @dying.tool
    async def leave() -> str:
        """End the connection."""
        asyncio.get_running_loop().call_soon(lambda: closing.append(asyncio.create_task(client.close())))
        await asyncio.sleep(10)
        return "never"

    closing: list[asyncio.Task[None]] = []
    if framework in SHOWN:
        pytest.skip("the framework shows every error to the model")
    client = Client(dying, reconnect=False)
    async with client:
        with pytest.raises(Exception) as caught:  # noqa: PT011  # frameworks may wrap it
            await run(client, [("leave", {})])
    assert isinstance(caught.value, CallError) or isinstance(caught.value.__cause__, CallError)


async def test_cancelling_a_run_cancels_the_call(run: Run, framework: str) -> None:
    if framework == "smolagents":
        pytest.skip("it is not async")
    started, cancelled = asyncio.Event(), asyncio.Event()
    slow = Server("slow")

    @slow.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise
        return "never"

    async with Client(slow) as client:
        running = asyncio.ensure_future(run(client, [("wait", {})]))
        await asyncio.wait_for(started.wait(), 60)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(cancelled.wait(), 10)
        await client.ping()


async def test_a_misspelled_name_is_refused(run: Run, framework: str) -> None:
    if framework == "google_adk":
        pytest.skip("it logs why a toolset can't be listed, and goes on without it")
    with pytest.raises(DefinitionError, match="include has 'ad', but the tools are 'add', "):
        await run(server, [], include=["ad"])


async def test_the_example_answers(
    framework: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    examples = ROOT / "examples"
    monkeypatch.chdir(examples)
    example = runpy.run_path(str(examples / "agents" / f"{framework}_agent.py"), run_name="example")
    driver = import_module(f"tests.adapters.drivers.{framework}")
    if framework == "smolagents":
        await asyncio.to_thread(example["main"], driver.Writes('final_answer(forecast("Oslo", 1) and "done")'))
    else:
        await example["main"](driver.scripted([("forecast", {"city": "Oslo", "days": 1})]))
    assert "done" in capsys.readouterr().out
