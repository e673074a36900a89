"""What a client makes of each answer to its probe and its handshake, and what it says in return."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gemel import (
    CallError,
    CallTimeout,
    Client,
    ConnectFailed,
    ConnectionLost,
    DefinitionError,
    Discovery,
    HttpStatus,
    Limits,
    PeerError,
    Server,
)
from gemel.http1.client.wire import HeaderPairs
from tests.client.puppet import HANG_UP, INFO, META, SILENCE, Error, Puppet, discovered, done, legacy, modern, shaken
from tests.client.site import URL, Reply, Site
from tests.jumping_clock import in_no_time
from tests.support import DEFAULT_LIMITS, HANDSHAKE_REVISIONS, V2025_11, V2026_07


async def found(puppet: Puppet, **options: Any) -> Discovery:
    """What a client finds out."""
    async with Client(puppet, **options) as client:
        return client.discovery


async def test_a_discovery_with_a_revision_in_common_is_a_stateless_server() -> None:
    """VER-06, VER-07, DISC-01, REQM-01, REQM-02, REQM-03."""
    puppet = Puppet({"server/discover": discovered(V2026_07, V2025_11, instructions="be kind")})
    got = await found(puppet)
    assert (got.era, got.revision, got.instructions) == ("2026", V2026_07, "be kind")
    assert got.server_info is not None
    assert got.server_info.name == INFO["name"]
    assert got.capabilities.tools is not None
    assert puppet.methods() == ["server/discover"]
    (params,) = puppet.asked("server/discover")
    assert params.keys() == {"_meta"}
    assert params["_meta"][f"{META}protocolVersion"] == V2026_07
    assert params["_meta"][f"{META}clientCapabilities"] == {}
    assert params["_meta"][f"{META}clientInfo"]["name"] == "gemel"


async def test_later_requests_are_of_a_revision_that_the_server_named() -> None:
    """DISC-05, REQM-01."""
    listed = {"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"}
    puppet = Puppet({"server/discover": discovered("2031-01-01", V2026_07, V2025_11), "tools/list": listed})
    async with Client(puppet) as client:
        await client.list_tools()
    (params,) = puppet.asked("tools/list")
    assert params["_meta"][f"{META}protocolVersion"] == V2026_07


async def test_a_discovery_that_names_handshake_revisions_only_leads_to_the_handshake() -> None:
    """VER-07."""
    puppet = Puppet({"server/discover": discovered(V2025_11), "initialize": shaken()})
    assert (await found(puppet)).era == "2025"
    assert puppet.methods() == ["server/discover", "initialize", "notifications/initialized"]


async def test_an_unsupported_version_is_tried_again_with_one_in_common() -> None:
    """VER-02, VER-08."""
    answers = [Error(-32022, data={"supported": [V2026_07]}), discovered()]
    puppet = Puppet({"server/discover": lambda puppet, message: answers.pop(0)})
    assert (await found(puppet)).era == "2026"
    assert puppet.methods() == ["server/discover"] * 2


async def test_an_unsupported_version_with_handshake_revisions_alone_leads_to_the_handshake() -> None:
    """VER-08."""
    puppet = legacy()
    puppet.by_method["server/discover"] = Error(-32022, data={"supported": ["2031-01-01", V2025_11]})
    assert (await found(puppet)).era == "2025"


@pytest.mark.parametrize("supported", [["2031-01-01"], [], None, "2026-07-28", [1, None]])
async def test_nothing_in_common_is_reported_and_no_handshake_tried(supported: Any) -> None:
    """VER-02, VER-08."""
    puppet = legacy()
    puppet.by_method["server/discover"] = Error(-32022, data={"supported": supported})
    with pytest.raises(ConnectFailed, match="No protocol revision in common"):
        await found(puppet)
    assert puppet.methods() == ["server/discover"]


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_other_errors_of_the_stateless_era_mean_a_stateless_server(code: int) -> None:
    """VER-08."""
    puppet = legacy()
    puppet.by_method["server/discover"] = Error(code)
    with pytest.raises(ConnectFailed, match="refused the discovery"):
        await found(puppet)
    assert "initialize" not in puppet.methods()


@pytest.mark.parametrize("answer", [Error(-32601), Error(-32602), Error(-32600), Error(-32000), Error(1), {}, {"x": 1}])
async def test_any_other_answer_means_a_handshake_server(answer: Any) -> None:
    """VER-09, VER-10: the fallback hangs on no code."""
    puppet = legacy()
    puppet.by_method["server/discover"] = answer
    got = await found(puppet)
    assert (got.era, got.revision) == ("2025", V2025_11)
    assert puppet.connections == 1


@in_no_time
async def test_silence_means_a_handshake_server_on_the_same_pipe() -> None:
    """VER-09."""
    puppet = legacy(server_discover=SILENCE, roots_list={})
    async with Client(puppet) as client:
        assert client.era == "2025"
        await client.ping()
    assert puppet.connections == 1
    ids = [message["id"] for message in puppet.came if "id" in message]
    assert len(ids) == len(set(ids)) == 3
    said = [method for method in puppet.methods() if method != "notifications/cancelled"]
    assert said == ["server/discover", "initialize", "notifications/initialized", "ping"]


@in_no_time
async def test_a_slow_stateless_server_is_recognised_although_the_handshake_began() -> None:
    """VER-07."""

    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.answer(puppet.came[0], discovered())
        return SILENCE

    puppet = Puppet({"server/discover": SILENCE, "initialize": shake})
    assert (await found(puppet)).era == "2026"
    assert "notifications/initialized" not in puppet.methods()


@in_no_time
async def test_a_server_that_answers_the_probe_and_the_handshake_at_once_is_stateless() -> None:
    """VER-07: it was slow to start, and both requests waited for it."""

    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.answer(puppet.came[0], discovered())
        return shaken()

    puppet = Puppet({"server/discover": SILENCE, "initialize": shake, "tools/list": {"tools": []}})
    async with Client(puppet) as client:
        assert client.era == "2026"
        await client.request("tools/list")
    assert "notifications/initialized" not in puppet.methods()


@in_no_time
@pytest.mark.parametrize("at_once", [False, True])
async def test_a_slow_stateless_server_of_another_revision_is_asked_again(at_once: bool) -> None:
    """VER-08: its late answer names the revisions that it has."""
    answers = [SILENCE, discovered()]

    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.answer(puppet.came[0], Error(-32022, data={"supported": [V2026_07]}))
        return shaken() if at_once else SILENCE

    puppet = Puppet({"server/discover": lambda puppet, message: answers.pop(0), "initialize": shake})
    assert (await found(puppet)).era == "2026"
    assert [method for method in puppet.methods() if method == "server/discover"] == ["server/discover"] * 2


@in_no_time
async def test_a_slow_handshake_server_is_not_taken_for_anything_else() -> None:
    """VER-09, VER-10."""

    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.answer(puppet.came[0], Error(-32601))
        return shaken()

    puppet = Puppet({"server/discover": SILENCE, "initialize": shake})
    assert (await found(puppet)).era == "2025"


async def test_a_server_that_ends_at_the_probe_is_started_again_for_the_handshake() -> None:
    """Servers of the official Python SDK up to 1.9 do."""
    puppet = legacy(server_discover=HANG_UP, tools_list={"tools": []})
    async with Client(puppet) as client:
        assert client.era == "2025"
        assert puppet.methods() == ["server/discover", "initialize", "notifications/initialized"]
        assert puppet.connections == 2
        puppet.hang_up()
        await puppet.until(lambda: not client.connected)
        assert await client.list_tools() == []
    assert puppet.connections == 3, "it is probed once in the life of a client"


PROGRAM_THAT_EXITS = """
import json, sys
with open(sys.argv[1], "a") as starts:
    starts.write("started ")
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        result = {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
    elif message["method"] == "ping":
        result = {}
    elif "id" in message:
        sys.exit(f"unknown method {message['method']}")
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


async def test_a_program_that_exits_at_the_probe_is_started_twice(tmp_path: Path) -> None:
    program, starts = tmp_path / "old.py", tmp_path / "starts"
    program.write_text(PROGRAM_THAT_EXITS)
    async with Client([sys.executable, str(program), str(starts)]) as client:
        assert client.protocol_version == "2024-11-05"
        await client.ping()
    assert starts.read_text() == "started started "


@in_no_time
async def test_a_server_that_ends_at_the_message_after_the_probe_is_started_again_for_the_handshake() -> None:
    """Servers of the official Python SDK 1.2 do."""

    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        return shaken() if puppet.connections == 2 else HANG_UP

    puppet = legacy(server_discover=SILENCE, initialize=shake)
    assert (await found(puppet)).era == "2025"
    assert puppet.methods() == ["server/discover", "initialize", "initialize", "notifications/initialized"]


@pytest.mark.parametrize(("options", "connections"), [({}, 2), ({"era": "2026"}, 1)])
async def test_a_server_that_always_ends_is_started_again_once(options: Any, connections: int) -> None:
    puppet = Puppet({"server/discover": HANG_UP, "initialize": HANG_UP})
    with pytest.raises(ConnectFailed):
        await found(puppet, **options)
    assert puppet.connections == connections


@pytest.mark.parametrize("status", [401, 403, 407, 429, 502, 503, 504])
@pytest.mark.parametrize("code", [None, -32603, -32000, 429])
async def test_a_refusal_or_load_says_nothing_about_the_era(status: int, code: int | None) -> None:
    """What tells of load is repeated."""

    def refuse(message: dict[str, Any]) -> Reply:
        error = None if code is None else {"code": code, "message": "no"}
        return Reply({"jsonrpc": "2.0", "id": message["id"], "error": error} if error else None, status)

    site = Site()
    site.replies["server/discover"] = refuse
    with pytest.raises(CallError):
        async with Client(URL, wire=site, limits=Limits(retries=1, backoff=0)):
            pass
    assert site.requests == [("", "server/discover")] * (1 if status < 429 and code != 429 else 2)


async def test_a_server_that_fails_at_the_probe_and_the_handshake_is_told_with_both_answers() -> None:
    site = Site()
    site.replies["server/discover"] = lambda message: Reply(None, 500)
    site.replies["initialize"] = lambda message: Reply(None, 418)
    with pytest.raises(ConnectFailed, match=r"HTTP 500.*HTTP 418.*era="):
        await Client(URL, wire=site).connect()


async def test_an_odd_answer_to_the_probe_of_a_pinned_client_is_its_error() -> None:
    site = Site()
    site.replies["server/discover"] = lambda message: Reply(None, 500)
    with pytest.raises(HttpStatus, match="500"):
        await Client(URL, wire=site, era="2026").connect()
    assert site.requests == [("", "server/discover")]


async def test_what_an_odd_answer_says_about_the_era_is_not_remembered() -> None:
    """Neither by the client nor by a discovery that is saved."""
    site = Site()
    site.replies["server/discover"] = lambda message: Reply(None, 500)
    client = Client(URL, wire=site)
    for _ in range(2):
        async with client:
            assert (client.era, client.discovery.certain) == ("2025", False)
    async with Client(URL, wire=site, discovery=client.discovery):
        pass
    assert [method for _, method in site.requests].count("server/discover") == 3
    assert [one.count for one in client.warnings] == [2]


async def test_a_probe_without_an_answer_over_http_leads_to_the_handshake() -> None:
    """VER-09."""
    gone = asyncio.Event()

    class Silent(Site):
        async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> Reply:
            if body is not None and msgspec.json.decode(body)["method"] == "server/discover":
                await gone.wait()
            return await super().open(method, url, headers, body)

    site = Silent()
    async with Client(URL, wire=site, limits=Limits(probe=0.05)) as client:
        assert client.era == "2025"


async def test_a_400_whose_body_is_an_error_of_the_stateless_era_is_of_a_stateless_server() -> None:
    """VER-13."""
    site = Site()

    def refuse(message: dict[str, Any]) -> Reply:
        del site.replies["server/discover"]
        error = {"code": -32022, "message": "no", "data": {"supported": [V2026_07]}}
        return Reply({"jsonrpc": "2.0", "id": message["id"], "error": error}, 400)

    site.replies["server/discover"] = refuse
    async with Client(URL, wire=site) as client:
        assert client.era == "2026"
    assert [method for _, method in site.requests] == ["server/discover"] * 2


async def test_neither_a_failure_nor_the_fallback_leaves_the_revision_of_the_probe_behind() -> None:
    """In the header of what comes next."""
    sent: list[tuple[str, str | None]] = []

    class Noting(Site):
        async def open(self, method: str, url: str, headers: HeaderPairs, body: bytes | None, /) -> Reply:
            if body is not None:
                fields = {name.lower(): value for name, value in headers}
                sent.append((msgspec.json.decode(body)["method"], fields.get("mcp-protocol-version")))
            return await super().open(method, url, headers, body)

    site = Noting()
    client = Client(URL, wire=site, limits=Limits(retries=0))
    site.replies["server/discover"] = lambda message: Reply(None, 503)
    with pytest.raises(CallError):
        await client.connect()
    site.replies["server/discover"] = lambda message: Reply(None, 404)
    async with client:
        assert client.era == "2025"
    probes = [("server/discover", V2026_07)] * 2
    assert sent == [*probes, ("initialize", None), ("notifications/initialized", V2025_11)]


async def test_a_server_with_too_much_to_do_is_not_taken_for_a_handshake_server() -> None:
    puppet = legacy(server_discover=Error(429, "busy"))
    with pytest.raises(CallError, match="busy"):
        await found(puppet)
    assert puppet.methods() == ["server/discover"] * (1 + Limits().retries)


async def test_a_pinned_era_asks_for_nothing_else() -> None:
    puppet = legacy()
    assert (await found(puppet, era="2025")).era == "2025"
    assert puppet.methods() == ["initialize", "notifications/initialized"]
    with pytest.raises(ConnectFailed, match="does not speak the stateless era"):
        await found(puppet, era="2026")
    assert puppet.methods()[2:] == ["server/discover"]
    with pytest.raises(DefinitionError, match='use "auto", "2025" or "2026"'):
        Client(puppet, era="2027")  # type: ignore[arg-type]  # that is what is tested


async def test_a_pinned_stateless_client_probes_all_the_same() -> None:
    """VER-11."""
    puppet = modern()
    assert (await found(puppet, era="2026")).era == "2026"
    assert puppet.methods() == ["server/discover"]


@in_no_time
async def test_a_pinned_stateless_client_waits_for_a_server_that_starts_slowly() -> None:
    """VER-11: silence decides between two eras; where there is one to choose from, only `limits.connect` ends the wait."""

    def slowly(puppet: Puppet, message: dict[str, Any]) -> Any:
        seconds = DEFAULT_LIMITS.probe * 4
        asyncio.get_running_loop().call_later(seconds, puppet.answer, message, discovered())
        return SILENCE

    puppet = modern(server_discover=slowly)
    assert (await found(puppet, era="2026")).era == "2026"
    assert puppet.methods() == ["server/discover"]


async def test_a_saved_discovery_connects_without_a_round_trip() -> None:
    """VER-15."""
    puppet = modern(tools_list={"resultType": "complete", "tools": [], "ttlMs": 0, "cacheScope": "private"})
    saved = msgspec.json.decode(msgspec.json.encode(await found(puppet)), type=Discovery)
    puppet.came.clear()
    async with Client(puppet, discovery=saved) as client:
        assert client.discovery == saved
        assert puppet.methods() == []
        assert await client.list_tools() == []
    assert puppet.methods() == ["tools/list"]


async def test_a_saved_handshake_server_is_not_probed_again() -> None:
    """VER-15."""
    puppet = legacy()
    saved = await found(puppet)
    puppet.came.clear()
    assert (await found(puppet, discovery=saved)).era == "2025"
    assert puppet.methods() == ["initialize", "notifications/initialized"]


@pytest.mark.parametrize(("saved", "wanted"), [("2025", "2026"), ("2026", "2025")])
async def test_what_is_saved_has_no_say_against_the_era_that_is_wanted(saved: Any, wanted: Any) -> None:
    server: Server[Any] = Server("both")
    async with Client(server, era=saved) as client:
        before = client.discovery
    async with Client(server, era=wanted, discovery=before) as client:
        assert client.era == wanted


async def test_a_saved_handshake_server_that_speaks_only_the_stateless_era_by_now_is_found_out_anew() -> None:
    """VER-15: what was true of it before is no reason to fail."""
    async with Client(Server("old", eras="2025")) as client:
        before = client.discovery
    async with Client(Server("new", eras="2026"), discovery=before) as client:
        assert client.era == "2026"
        assert client.discovery.era == "2026"


@pytest.mark.parametrize("code", [-32600, -32601, -32602])
async def test_a_saved_stateless_server_that_shakes_hands_by_now_is_found_out_at_its_first_refusal(code: int) -> None:
    """VER-15: nothing ran, so the call is made again as soon as it is known how."""
    served: list[Any] = []

    def call(puppet: Puppet, message: Any) -> Any:
        if "_meta" in message["params"] and f"{META}protocolVersion" in message["params"]["_meta"]:
            return Error(code)
        served.append(message["params"]["name"])
        return done("fine")

    puppet = legacy(tools_call=call)
    saved = Discovery(era="2026", revision=V2026_07)
    async with Client(puppet, discovery=saved) as client:
        answers = await asyncio.gather(*(client.call_tool(name) for name in "abc"))
        assert [answer.text for answer in answers] == ["fine"] * 3
        assert (client.era, sorted(served)) == ("2025", ["a", "b", "c"])
        await client.call_tool("d")
    assert puppet.methods().count("server/discover") == 2


@pytest.mark.parametrize(
    ("status", "outdated"), [*((status, True) for status in (400, 404, 405, 406, 415, 422)), (416, False), (500, False)]
)
async def test_a_saved_server_that_refuses_by_an_http_status_is_found_out_anew(status: int, outdated: bool) -> None:
    """VER-15: a status that says nothing of the era leaves everything as it is."""
    site = Site()
    site.replies["server/discover"] = lambda message: Reply(None, 404)
    site.replies["tools/call"] = lambda message: Reply(None, status)
    with pytest.raises(CallError):
        async with Client(URL, wire=site, discovery=Discovery(era="2026", revision=V2026_07)) as client:
            await client.call_tool("a")
    assert bool(site.count("initialize")) is outdated


async def test_a_server_that_is_what_was_saved_of_it_is_asked_once_why_it_refuses() -> None:
    puppet = modern(tools_call=Error(-32602, "no such tool"))
    async with Client(puppet, discovery=Discovery(era="2026", revision=V2026_07)) as client:
        for _ in range(3):
            with pytest.raises(PeerError, match="no such tool"):
                await client.call_tool("x")
    assert puppet.methods() == ["tools/call", "server/discover", "tools/call", "tools/call"]


@pytest.mark.parametrize(("code", "options"), [(-32603, {}), (7, {}), (-32601, {"reconnect": False})])
async def test_a_call_that_may_have_run_or_can_not_be_repeated_is_not(code: int, options: Any) -> None:
    puppet = legacy(tools_call=Error(code))
    async with Client(puppet, discovery=Discovery(era="2026", revision=V2026_07), **options) as client:
        with pytest.raises(PeerError):
            await client.call_tool("x")
    assert puppet.methods().count("tools/call") == 1


@pytest.mark.parametrize("revision", HANDSHAKE_REVISIONS)
async def test_the_revision_is_the_one_that_the_server_names(revision: str) -> None:
    """LIFE-01, LIFE-02, LIFE-03, LIFE-07, LIFE-08, LIFE-11."""
    puppet = legacy(initialize=shaken(revision))
    got = await found(puppet, on_roots=[])
    assert got.revision == revision
    (params,) = puppet.asked("initialize")
    assert params["protocolVersion"] == V2025_11
    assert params["capabilities"] == {"roots": {"listChanged": True}}
    assert params["clientInfo"]["name"] == "gemel"
    assert puppet.methods() == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.parametrize("answer", [shaken("2031-01-01"), shaken(V2026_07), {}, {"protocolVersion": 7}])
async def test_an_answer_to_the_handshake_that_makes_no_sense_ends_the_connection(answer: Any) -> None:
    """LIFE-05, LIFE-06."""
    puppet = legacy(initialize=answer)
    with pytest.raises(ConnectFailed):
        await found(puppet)
    assert "notifications/initialized" not in puppet.methods()


async def test_a_server_that_refuses_a_revision_by_an_error_is_asked_for_one_that_it_names() -> None:
    """LIFE-16."""

    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        if message["params"]["protocolVersion"] != "2024-11-05":
            return Error(-32602, data={"supported": ["2024-11-05"], "requested": "?"})
        return shaken("2024-11-05")

    puppet = legacy(initialize=shake)
    assert (await found(puppet, on_elicit=print, on_roots=[])).revision == "2024-11-05"
    newer, older = puppet.asked("initialize")
    assert newer["capabilities"].keys() == {"elicitation", "roots"}
    assert older["capabilities"].keys() == {"roots"}


@pytest.mark.parametrize("code", [-32600, -32602])
async def test_a_server_that_only_says_that_it_knows_another_version_is_asked_for_older_ones(code: int) -> None:
    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        known = message["params"]["protocolVersion"] == "2025-03-26"
        return shaken("2025-03-26") if known else Error(code, "Unsupported protocol version")

    puppet = legacy(initialize=shake)
    assert (await found(puppet)).revision == "2025-03-26"
    assert len(puppet.asked("initialize")) == 3


async def test_a_server_that_knows_no_version_is_asked_for_each_once() -> None:
    puppet = legacy(initialize=Error(-32602, "Unsupported protocol version"))
    with pytest.raises(ConnectFailed, match="The server refused initialize: Unsupported protocol version"):
        await found(puppet)
    asked = [each["protocolVersion"] for each in puppet.asked("initialize")]
    assert len(asked) == len(set(asked)) == 4


async def test_a_server_that_refuses_the_handshake_says_why() -> None:
    with pytest.raises(ConnectFailed, match="The server refused initialize: not today"):
        await found(legacy(initialize=Error(-32603, "not today")))


@in_no_time
async def test_a_stateless_server_that_missed_the_probe_is_probed_once_more() -> None:
    """VER-08: it refuses the handshake and names what it speaks."""
    answers = [SILENCE, discovered()]
    puppet = Puppet(
        {
            "server/discover": lambda puppet, message: answers.pop(0),
            "initialize": Error(-32022, data={"supported": [V2026_07]}),
        }
    )
    assert (await found(puppet)).era == "2026"


@in_no_time
async def test_a_server_that_never_answers_is_given_up_in_time() -> None:
    """LIFE-14."""
    puppet = Puppet({"server/discover": SILENCE, "initialize": SILENCE})
    with pytest.raises(ConnectFailed, match="No connection to Puppet in this process within 30 seconds"):
        await found(puppet)


@in_no_time
@pytest.mark.parametrize(
    ("probed", "answer"),
    [(SILENCE, "no answer"), (Error(-32601, "never heard of it"), r"never heard of it \(-32601\)")],
)
async def test_a_server_that_is_given_up_is_told_with_the_answers_and_what_to_do(probed: Any, answer: str) -> None:
    puppet = Puppet({"server/discover": probed, "initialize": SILENCE})
    told = rf"server/discover \({answer}\), initialize \(no answer\).*limits=Limits\(connect=…\).*era="
    with pytest.raises(ConnectFailed, match=told):
        await found(puppet)
    with pytest.raises(ConnectFailed, match=r"30 seconds: initialize \(no answer\)\..*connect=…\)$"):
        await found(puppet, era="2025")


async def test_a_server_that_refuses_the_probe_and_then_the_handshake_is_told_with_both_answers() -> None:
    puppet = Puppet({"server/discover": Error(-32601, "never heard of it"), "initialize": Error(-32603, "not today")})
    with pytest.raises(ConnectFailed, match=r"never heard of it \(-32601\).*not today \(-32603\).*era="):
        await found(puppet)
    site = Site()
    site.replies["server/discover"] = lambda message: Reply(None, 404)
    site.replies["initialize"] = lambda message: Reply(None, 400)
    with pytest.raises(ConnectFailed, match=r"HTTP 404.*HTTP 400.*era="):
        await Client(URL, wire=site).connect()


async def test_two_refusals_with_the_same_status_are_one_error() -> None:
    site = Site()
    site.replies["server/discover"] = site.replies["initialize"] = lambda message: Reply(None, 404)
    with pytest.raises(HttpStatus, match=r"HTTP 404\. Is the path of the URL right\?"):
        await Client(URL, wire=site).connect()


async def test_a_server_that_goes_away_meanwhile_is_an_error_of_one_kind() -> None:
    """No verdict about the era, and no fallback on a connection that is gone."""
    puppet = legacy(initialize=HANG_UP)
    with pytest.raises(ConnectFailed) as caught:
        await found(puppet)
    assert isinstance(caught.value.__cause__, ConnectionLost)


async def test_a_server_that_ends_right_after_the_handshake_is_an_error_of_the_same_kind() -> None:
    def shake(puppet: Puppet, message: dict[str, Any]) -> Any:
        puppet.answer(message, shaken())
        puppet.hang_up()
        return SILENCE

    with pytest.raises(CallError):
        async with Client(legacy(initialize=shake), reconnect=False) as client:
            await client.ping()


@in_no_time
async def test_a_client_that_is_cancelled_while_it_connects_leaves_nothing_behind() -> None:
    for puppet in (Puppet({"server/discover": SILENCE}), legacy(server_discover=SILENCE, initialize=SILENCE)):
        client = Client(puppet, limits=Limits(probe=1.0))
        connecting = asyncio.create_task(client.connect())
        await asyncio.sleep(0.5 if "initialize" not in puppet.by_method else 2)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        await client.close()


@in_no_time
async def test_a_server_that_only_writes_what_is_no_message_is_quoted() -> None:
    """What came instead of an answer is the best hint at what is wrong."""

    def chatter(puppet: Puppet, message: Any) -> Any:
        puppet.say_raw(b"Usage: server --stdio")
        return SILENCE

    puppet = Puppet({"server/discover": chatter, "initialize": chatter})
    with pytest.raises(ConnectFailed, match=r"; it wrote a line that is not a message: Usage: server --stdio\. If"):
        await found(puppet)


@in_no_time
async def test_so_is_one_that_writes_it_instead_of_an_answer_to_a_call() -> None:
    def chatter(puppet: Puppet, message: Any) -> Any:
        puppet.say_raw(b"no such tool")
        return SILENCE

    puppet = modern(tools_call=chatter)
    async with Client(puppet) as client:
        with pytest.raises(
            CallTimeout, match=r"within 60 seconds; it wrote a line that is not a message: no such tool$"
        ):
            await client.call_tool("x")
