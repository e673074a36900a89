"""Recordings: what was recorded with the real server plays either side of the conversation."""

from __future__ import annotations

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemel import (
    Client,
    ConnectionLost,
    Context,
    DefinitionError,
    HttpStatus,
    Limits,
    PeerError,
    ProgressParams,
    Refusal,
    Server,
    StartError,
)
from gemel.testing import Recording, ScriptedPeer
from tests.serving import over_http
from tests.testing.tour import ANSWERS, ERAS, ROUTES, everything, reachable, take_tour

each_route = pytest.mark.parametrize("route", ROUTES)
each_era = pytest.mark.parametrize("era", ERAS)


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def cut(path: Path, before: str) -> None:
    """Leave of a file what stands before these words."""
    text = text_of(path)
    path.write_text(text[: text.index(before)], encoding="utf-8")


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@each_era
@each_route
async def test_an_application_sees_the_same_of_the_recording_as_of_the_server(
    route: str, era: Any, tmp_path: Path
) -> None:
    path = tmp_path / "tour.jsonl"
    async with reachable(route) as target:
        first = await take_tour(Recording(path, target), era)
    played = Recording(path)
    assert await take_tour(played, era) == first
    played.check(all_played=True)


@each_era
@each_route
async def test_a_server_that_says_the_same_as_then_differs_nowhere(route: str, era: Any, tmp_path: Path) -> None:
    path = tmp_path / "tour.jsonl"
    await take_tour(Recording(path, everything()), era)
    async with reachable(route) as target:
        assert await Recording(path).compare(target) == []


@each_era
async def test_a_recording_plays_the_server_over_http_as_well(era: Any, tmp_path: Path) -> None:
    path = tmp_path / "tour.jsonl"
    first = await take_tour(Recording(path, everything()), era)
    played: Any = Recording(path)
    async with over_http(played) as url:
        assert await take_tour(url, era) == first
    assert played.missed == []


@each_era
@each_route
async def test_between_a_client_elsewhere_and_the_server_everything_passes_and_is_recorded(
    route: str, era: Any, tmp_path: Path
) -> None:
    path = tmp_path / "tour.jsonl"
    async with reachable(route) as target:
        between: Any = Recording(path, target, record="always")
        async with over_http(between) as url:
            seen = await take_tour(url, era)
        assert seen == await take_tour(target, era)
    assert await take_tour(Recording(path), era) == seen


# ---------------------------------------------------------------- what is not in it


def weather(words: str = "sunny") -> Server[Any]:
    """A server that asks, tells and answers."""
    server: Server[Any] = Server("weather")

    @server.tool
    async def forecast(city: str, days: int = 3) -> str:
        return f"{city}: {words}, {days} days"

    @server.tool
    async def book(ctx: Context[Any], city: str) -> str:
        row = await ctx.elicit("Which row?", int)
        await ctx.report_progress(1, 1, "booked")
        return f"row {row} to {city}"

    @server.tool
    async def wait(ctx: Context[Any]) -> str:
        await ctx.report_progress(1, 2, "waiting")
        await asyncio.Event().wait()
        return ""

    return server


@pytest.fixture
async def recorded(tmp_path: Path) -> Path:
    """A recording of two calls in the stateless era."""
    path = tmp_path / "weather.jsonl"
    async with Client(Recording(path, weather()), era="2026", on_elicit=lambda form: {"value": 7}) as client:
        await client.call_tool("forecast", {"city": "Oslo"})
        await client.call_tool("book", {"city": "Oslo"})
    return path


async def refusal(recording: Recording, name: str, arguments: dict[str, Any], era: Any = "2026") -> str:
    async with Client(recording, era=era, on_elicit=lambda form: {"value": 8}) as client:
        with pytest.raises(PeerError) as caught:
            await client.call_tool(name, arguments)
    return caught.value.message


async def test_a_request_that_is_not_recorded_names_the_nearest_that_is(recorded: Path) -> None:
    words = await refusal(Recording(recorded), "forecast", {"city": "Bergen"})
    assert words.startswith("tools/call 'forecast' is not in the recording weather.jsonl like this.")
    assert "params.arguments.city: 'Oslo' is recorded, 'Bergen' was sent" in words
    assert "record='missing'" in words
    line = int(words.partition("in line ")[2].partition(":")[0])
    assert '"forecast"' in text_of(recorded).splitlines()[line - 1]


async def test_a_method_that_is_not_recorded_names_those_that_are(recorded: Path) -> None:
    async with Client(Recording(recorded)) as client:
        with pytest.raises(PeerError, match=r"prompts/list is not in the recording .*, which has .*tools/call"):
            await client.list_prompts()


async def test_a_call_that_was_made_once_can_be_made_once(recorded: Path) -> None:
    async with Client(Recording(recorded)) as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).text == "Oslo: sunny, 3 days"
        with pytest.raises(PeerError, match=r"sent more often than .* has it once \(line \d+\).*repeat=True"):
            await client.call_tool("forecast", {"city": "Oslo"})


async def test_with_repeat_the_last_answer_is_given_again(recorded: Path) -> None:
    async with Client(Recording(recorded, repeat=True)) as client:
        answers = [(await client.call_tool("forecast", {"city": "Oslo"})).text for _ in range(3)]
    assert answers == ["Oslo: sunny, 3 days"] * 3


async def test_what_was_missed_and_what_was_not_played_fails_the_check(recorded: Path) -> None:
    played = Recording(recorded)
    played.check()
    await refusal(played, "forecast", {"city": "Bergen"})
    with pytest.raises(AssertionError, match=r"not followed:\n.*'Bergen' was sent"):
        played.check()
    with pytest.raises(AssertionError, match=r"Not sent: tools/call 'book' \(line \d+\)"):
        played.check(all_played=True)


@pytest.mark.parametrize("era", ERAS)
async def test_an_answer_of_the_client_that_differs_from_the_recorded_one_is_an_error(era: Any, tmp_path: Path) -> None:
    path = tmp_path / "weather.jsonl"
    async with Client(Recording(path, weather()), era=era, on_elicit=lambda form: {"value": 7}) as client:
        await client.call_tool("book", {"city": "Oslo"})
    played = Recording(path)
    words = await refusal(played, "book", {"city": "Oslo"}, era)
    assert "content.value: 7 is recorded, 8 was" in words
    assert played.missed == [words]


async def test_paths_that_are_ignored_do_not_count(recorded: Path) -> None:
    recording = Recording(recorded, ignore=["params.arguments.city"])
    async with Client(recording) as client:
        assert (await client.call_tool("forecast", {"city": "Bergen"})).text == "Oslo: sunny, 3 days"


@pytest.mark.parametrize("era", ERAS)
async def test_concurrent_calls_may_interleave_as_they_like(era: Any, tmp_path: Path) -> None:
    path = tmp_path / "weather.jsonl"

    async def ask(cities: str, target: Recording) -> dict[str, Any]:
        progress: dict[str, list[str | None]] = {city: [] for city in cities}
        async with Client(target, era=era, on_elicit=lambda form: {"value": 7}) as client:
            calls = [
                client.call_tool("book", {"city": city}, on_progress=partial(noted, progress[city])) for city in cities
            ]
            texts = [result.text for result in await asyncio.gather(*calls)]
        return dict(zip(cities, zip(texts, progress.values(), strict=True), strict=True))

    first = await ask("ABCDE", Recording(path, weather()))
    assert await ask("ECABD", Recording(path)) == first
    for city in "CA":
        assert (await ask(city, Recording(path)))[city] == first[city]


def noted(where: list[str | None], progress: ProgressParams) -> None:
    where.append(progress.message)


# ---------------------------------------------------------------- when the target is asked


async def test_without_a_file_and_a_target_there_is_one_line_of_advice(tmp_path: Path) -> None:
    with pytest.raises(
        StartError, match=r"The recording .*none.jsonl does not exist: make it with gemel record, or pass a target"
    ):
        async with Client(Recording(tmp_path / "none.jsonl")):
            pass


async def test_never_does_not_ask_the_target(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="does not exist"):
        async with Client(Recording(tmp_path / "none.jsonl", weather(), record="never")):
            pass


async def test_always_asks_anew_and_writes_the_file_anew(recorded: Path) -> None:
    async with Client(Recording(recorded, weather("rainy"), record="always")) as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).text == "Oslo: rainy, 3 days"
    assert "sunny" not in text_of(recorded)


async def test_the_environment_says_when_to_record(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMEL_RECORD", "always")
    async with Client(Recording(recorded, weather("rainy"))) as client:
        assert "rainy" in (await client.call_tool("forecast", {"city": "Oslo"})).text


def test_a_mode_that_does_not_exist_is_told(tmp_path: Path) -> None:
    mode: Any = "sometimes"
    with pytest.raises(DefinitionError, match="record='sometimes' is not valid: use 'once', 'missing'"):
        Recording(tmp_path / "x.jsonl", record=mode)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("route", ROUTES)
async def test_what_is_missing_is_asked_and_added(route: str, era: Any, tmp_path: Path) -> None:
    path = tmp_path / "tour.jsonl"
    async with reachable(route) as target:
        async with Client(Recording(path, target), era=era, **ANSWERS) as client:
            await client.list_tools()
            first = await client.call_tool("add", {"a": 1, "b": 2})
        async with Client(Recording(path, target, record="missing"), era=era, **ANSWERS) as client:
            await client.list_tools()
            assert await client.call_tool("add", {"a": 1, "b": 2}) == first
            progress: list[Any] = []
            await client.call_tool("test_tool_with_progress", on_progress=progress.append)
            assert len(progress) == 3
            region = await client.call_tool("test_x_mcp_header", {"region": "north"})
            asked = await client.call_tool("test_input_required_result_multi_round")
            with pytest.raises(PeerError, match="no_such_tool"):
                await client.call_tool("no_such_tool")
    async with Client(Recording(path), era=era, **ANSWERS) as client:
        assert await client.call_tool("test_x_mcp_header", {"region": "north"}) == region
        assert await client.call_tool("test_input_required_result_multi_round") == asked
        with pytest.raises(PeerError, match="no_such_tool"):
            await client.call_tool("no_such_tool")


# ---------------------------------------------------------------- ends


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_was_called_off_waits_to_be_called_off_again(era: Any, tmp_path: Path) -> None:
    path = tmp_path / "weather.jsonl"

    async def give_up(target: Recording) -> None:
        waiting = asyncio.Event()
        async with Client(target, era=era) as client:
            call = asyncio.ensure_future(client.call_tool("wait", on_progress=lambda progress: waiting.set()))
            await waiting.wait()
            call.cancel()
            await asyncio.wait([call])

    await give_up(Recording(path, weather()))
    await give_up(Recording(path))
    async with Client(Recording(path, patience=0.01), era=era) as client:
        with pytest.raises(PeerError, match="has no response in the recording"):
            await client.call_tool("wait")


@pytest.mark.parametrize("late", [True, False])
async def test_a_server_that_was_slow_to_be_greeted_is_greeted_at_once(late: bool, tmp_path: Path) -> None:
    path = tmp_path / "slow.jsonl"
    async with ScriptedPeer() as peer:
        calling = asyncio.ensure_future(_tools(Recording(path, peer), era="auto", limits=Limits(probe=0.01)))
        probe = await peer.expect("server/discover")
        hello = await peer.expect("initialize")
        if late:
            await peer.answer(probe, error={"code": -32601, "message": "Method not found"})
        await peer.answer(hello, {"protocolVersion": hello["params"]["protocolVersion"], "capabilities": {}, **PEER})
        await peer.answer(await peer.until("tools/list"), {"tools": []})
        assert await calling == []
    played = Recording(path, patience=60)
    assert await _tools(played, era="auto") == []
    assert await _tools(played, era="2025") == []
    played.check(all_played=True)


async def test_a_server_that_died_dies_again(tmp_path: Path) -> None:
    path, program = tmp_path / "dying.jsonl", tmp_path / "dying.py"
    program.write_text(
        "import os, gemel\nserver = gemel.Server('dying')\n@server.tool\ndef die() -> str: os._exit(3)\nserver.run()\n"
    )
    for recording in (Recording(path, program), Recording(path)):
        async with Client(recording, reconnect=False) as client:
            with pytest.raises(ConnectionLost):
                await client.call_tool("die")


async def test_a_status_of_http_is_that_status_again(tmp_path: Path) -> None:
    path = tmp_path / "refused.jsonl"

    async def authenticate(scope: Any, headers: Any) -> Any:
        return Refusal(401, "who are you?") if headers.get("authorization") != "Bearer sesame" else "somebody"

    async with over_http(weather(), authenticate=authenticate) as url:
        for recording in (Recording(path, url), Recording(path)):
            with pytest.raises(HttpStatus) as caught:
                async with Client(recording, era="2026"):
                    pass
            assert caught.value.status == 401


async def test_a_crash_leaves_a_prefix_that_plays(recorded: Path) -> None:
    cut(recorded, "Oslo: sunny")  # the call is there, of its answer a piece
    words = await refusal(Recording(recorded), "forecast", {"city": "Oslo"})
    assert "has no response in the recording" in words


async def test_what_is_added_to_a_prefix_follows_its_last_whole_line(recorded: Path) -> None:
    cut(recorded, '"tools/call"')
    async with Client(Recording(recorded, weather(), record="missing"), era="2026") as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).text == "Oslo: sunny, 3 days"
    async with Client(Recording(recorded), era="2026") as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).text == "Oslo: sunny, 3 days"


# ---------------------------------------------------------------- secrets


@pytest.mark.parametrize("era", ERAS)
async def test_who_was_let_in_and_into_which_session_is_never_written(era: Any, tmp_path: Path) -> None:
    path, served = tmp_path / "client.jsonl", tmp_path / "server.jsonl"
    server = everything()
    headers = {"X-Api-Key": "hunter2", "Cookie": "id=hunter2"}
    with Recording(served).attach(server):
        async with over_http(server) as url:
            recording = Recording(path, url, headers=headers, auth=lambda: "Bearer hunter2")
            async with Client(recording, era=era) as client:
                await client.list_tools()
                await client.call_tool("test_x_mcp_header", {"region": "north"})
    for file in (path, served):
        assert "hunter2" not in text_of(file)
        assert "session-id" not in text_of(file).lower()


@pytest.mark.parametrize("era", ERAS)
async def test_what_is_redacted_is_in_no_message_and_no_header_and_plays_all_the_same(era: Any, tmp_path: Path) -> None:
    path, served = tmp_path / "client.jsonl", tmp_path / "server.jsonl"

    def redact(message: dict[str, Any]) -> None:
        arguments = message.get("params", {}).get("arguments", {})
        if "region" in arguments:
            arguments["region"] = "somewhere"

    server = everything()
    with Recording(served, redact=redact).attach(server):
        async with over_http(server) as url, Client(Recording(path, url, redact=redact), era=era) as client:
            await client.list_tools()
            first = await client.call_tool("test_x_mcp_header", {"region": "northwest"})
    for file in (path, served):
        sent = "".join(line for line in text_of(file).splitlines() if '"from":"client"' in line)
        assert "northwest" not in sent
    async with Client(Recording(path, redact=redact), era=era) as client:
        assert await client.call_tool("test_x_mcp_header", {"region": "northwest"}) == first


async def test_a_message_that_redact_fails_on_is_not_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "weather.jsonl"

    def redact(message: dict[str, Any]) -> dict[str, Any]:
        return message["nothing"]  # type: ignore[no-any-return]  # it never comes to that

    async with Client(Recording(path, weather(), redact=redact)) as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).text
    assert "Oslo" not in text_of(path)
    assert "redact failed" in caplog.text


# ---------------------------------------------------------------- the file


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is not a recording: it is empty"),
        ('{"hello": 1}\n', "is not a recording: the first line must contain"),
        ('{"recording": 99}\n', "has format 99; this version of Gemel reads 1: upgrade Gemel"),
        ('{"recording": 1}\nnonsense\n{}\n', "line 2, is not a line of a recording"),
        ('{"recording": 1}\n{"from": "elsewhere", "channel": 1, "message": {}}\n', "line 2, .*'elsewhere'"),
    ],
)
async def test_what_is_no_recording_is_told_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text(text)
    with pytest.raises(StartError, match=words):
        async with Client(Recording(path)):
            pass


async def test_a_file_has_a_bound_when_it_is_written_and_when_it_is_read(
    recorded: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StartError, match="has more than 100 bytes: raise max_bytes="):
        async with Client(Recording(recorded, max_bytes=100)):
            pass
    async with Client(Recording(recorded, weather(), record="always", max_bytes=1000)) as client:
        assert (await client.call_tool("forecast", {"city": "Oslo"})).text
    assert len(text_of(recorded)) <= 1000
    assert "it reached max_bytes" in caplog.text


async def test_a_recording_reads_line_by_line_in_the_order_of_things(tmp_path: Path) -> None:
    path = tmp_path / "weather.jsonl"
    async with Client(Recording(path, weather()), era="2025", on_elicit=lambda form: {"value": 7}) as client:
        await client.call_tool("book", {"city": "Oslo"})
    head, opened, *rest = lines(path)
    assert head["recording"] == 1
    assert opened == {"open": 1, "kind": "memory"}
    said = [(line.get("from"), line.get("message", {}).get("method")) for line in rest]
    assert said == [
        ("client", "initialize"),
        ("server", None),
        ("client", "notifications/initialized"),
        ("client", "tools/call"),
        ("server", "elicitation/create"),
        ("client", None),
        ("server", "notifications/progress"),
        ("server", None),
        (None, None),
    ]
    assert rest[-1] == {"close": 1, "by": "client", "reason": "closed on this side"}


# ---------------------------------------------------------------- in place of the client


async def test_differences_are_told_with_line_path_and_both_values(recorded: Path) -> None:
    found = await Recording(recorded).compare(weather("rainy"))
    assert [(one.what, one.path) for one in found] == [("tools/call 'forecast'", "result.content.0.text")]
    with pytest.raises(AssertionError) as caught:
        await Recording(recorded).verify(weather("rainy"))
    assert str(caught.value).splitlines() == [
        "1 difference from weather.jsonl:",
        f"tools/call 'forecast' (line {found[0].line})",
        "  result.content.0.text",
        "    recorded: 'Oslo: sunny, 3 days'",
        "    now:      'Oslo: rainy, 3 days'",
    ]
    await Recording(recorded, ignore=["result.content.*.text"]).verify(weather("rainy"))


async def test_questions_and_progress_that_changed_are_differences(recorded: Path) -> None:
    server: Server[Any] = Server("weather")

    @server.tool
    async def forecast(city: str, days: int = 3) -> str:
        return f"{city}: sunny, {days} days"

    @server.tool
    async def book(ctx: Context[Any], city: str) -> str:
        row = await ctx.elicit("Which seat?", int)
        await ctx.report_progress(1, 1, "done")
        return f"row {row} to {city}"

    found = {one.path: (one.recorded, one.now) for one in await Recording(recorded).compare(server)}
    assert found == {
        "result.inputRequests.0.params.message": ("Which row?", "Which seat?"),
        "notifications/progress.0.message": ("booked", "done"),
    }


async def test_a_tool_that_has_gone_is_a_difference(recorded: Path) -> None:
    server: Server[Any] = Server("weather")
    server.tool("other")(lambda: "x")
    (first, *_) = await Recording(recorded).compare(server)
    assert first.what == "tools/call 'forecast'"
    assert (first.path, repr(first.now)) == ("result", "missing")


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_server_heard_from_any_client_is_asked_again(era: Any, tmp_path: Path) -> None:
    path, server = tmp_path / "served.jsonl", everything()
    with Recording(path).attach(server):
        async with over_http(server) as url:
            await asyncio.gather(*(take_tour(url, era) for _ in range(2)))
    before = path.stat().st_size
    await Recording(path).verify(everything())
    async with over_http(everything()) as url:
        await Recording(path).verify(url)
    async with Client(server):
        pass
    assert path.stat().st_size == before, "nothing is recorded after the block"


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_server_recorded_plays_the_server(era: Any, tmp_path: Path) -> None:
    path, server = tmp_path / "served.jsonl", everything()
    with Recording(path).attach(server):
        first = await take_tour(server, era)
    assert await take_tour(Recording(path), era) == first


# ---------------------------------------------------------------- other clients and other doors


def test_the_client_without_async_plays_recordings_too(tmp_path: Path) -> None:
    from gemel.sync import Client as PlainClient

    path = tmp_path / "weather.jsonl"
    for recording in (Recording(path, weather()), Recording(path)):
        with PlainClient(recording) as client:
            assert client.call_tool("forecast", {"city": "Oslo"}).text == "Oslo: sunny, 3 days"


async def test_a_line_that_is_no_message_is_played_as_it_was(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "noisy.jsonl"
    async with ScriptedPeer(over="stdio") as peer:
        calling = asyncio.ensure_future(_tools(Recording(path, peer)))
        await peer.greet("2025")
        request = await peer.expect("tools/list")
        await peer.send(b"Loading the tools \xff\n")
        await peer.answer(request, {"tools": []})
        assert await calling == []
    caplog.clear()
    assert await _tools(Recording(path)) == []
    assert "Loading the tools" in caplog.text


PEER = {"serverInfo": {"name": "slow", "version": "1"}}


async def _tools(target: Any, era: Any = "2025", **options: Any) -> list[Any]:
    async with Client(target, era=era, **options) as client:
        return list(await client.list_tools())


async def test_a_server_that_runs_by_itself_records_until_it_dies(tmp_path: Path) -> None:
    path, program = tmp_path / "served.jsonl", tmp_path / "served.py"
    program.write_text(
        "import os, sys, gemel\n"
        "from gemel.testing import Recording\n"
        "server = gemel.Server('served')\n"
        "@server.tool\n"
        "def double(number: int) -> int: return 2 * number\n"
        "@server.tool\n"
        "def die() -> str: os._exit(3)\n"
        "with Recording(sys.argv[1]).attach(server): server.run()\n"
    )
    async with Client([sys.executable, str(program), str(path)], reconnect=False) as client:
        assert (await client.call_tool("double", {"number": 4})).text == "8"
        with pytest.raises(ConnectionLost):
            await client.call_tool("die")
    async with Client(Recording(path)) as client:
        assert (await client.call_tool("double", {"number": 4})).text == "8"
        with pytest.raises(PeerError, match="tools/call 'die' has no response in the recording"):
            await client.call_tool("die")
