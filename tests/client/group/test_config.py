"""Configurations as hosts write them: what is read, and how each mistake is named."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import Client, ClientGroup, ConnectFailed, NotSent, Server, StartError
from gemel.client.group.config import pick, read_config
from gemel.transports.http.client.legacy_sse import SseTransport

ENVIRONMENT = {"TOKEN": "t0p", "HOME": "/home/me", "EMPTY": ""}


def read(servers: Any, section: str = "mcpServers") -> Any:
    return read_config({section: servers}, environ=ENVIRONMENT)


def refusal(servers: Any) -> str:
    with pytest.raises(StartError) as caught:
        pick(read(servers), None).reach()
    return str(caught.value)


def test_a_command_becomes_a_child_process_with_its_words_environment_and_directory() -> None:
    table = {"command": "npx", "args": ["-y", "server", "/tmp/a b"], "env": {"KEY": "v"}, "cwd": "/srv"}
    entry = read({"files": table})["files"]
    assert entry.reach() == (["npx", "-y", "server", "/tmp/a b"], {"env": {"KEY": "v"}, "cwd": "/srv"})


@pytest.mark.parametrize("more", [{}, {"type": "http"}, {"type": "streamable-http"}, {"transport": "streamableHttp"}])
def test_a_url_becomes_streamable_http_with_its_headers(more: dict[str, str]) -> None:
    entry = read({"web": {"url": "https://host/mcp", "headers": {"X": "1"}, **more}})["web"]
    assert (entry.kind, entry.reach()) == ("http", ("https://host/mcp", {"headers": {"X": "1"}}))


def test_the_type_sse_becomes_the_first_revisions_transport() -> None:
    target, options = read({"old": {"url": "http://host/sse", "type": "sse", "headers": {"X": "1"}}})["old"].reach()
    assert isinstance(target, SseTransport)
    assert (target.url, options) == ("http://host/sse", {})
    given = {"headers": {"Y": "2"}, "tls": False, "env": {"A": "1"}, "era": "2025"}
    target, options = read({"old": {"url": "http://host/sse", "type": "sse"}})["old"].reach(given)
    assert (target.url, options) == ("http://host/sse", {"era": "2025"})


@pytest.mark.parametrize(
    "more", [{"command": "x"}, {"url": "https://host/mcp"}, {"url": "http://host/sse", "type": "sse"}]
)
def test_a_server_may_be_held_to_a_lock_that_lies_beside_the_configuration(
    tmp_path: Path, more: dict[str, str]
) -> None:
    path = tmp_path / "servers.json"
    path.write_text(json.dumps({"mcpServers": {"a": {**more, "lock": "${NAME:-a}.lock", "drift": "warn"}}}))
    _, options = read_config(path)["a"].reach()
    assert (options["lock"], options["drift"]) == (str(tmp_path / "a.lock"), "warn")
    with pytest.raises(StartError, match=r"a.lock can't be read"):
        Client.from_config(path)
    assert 'drift: "ignore" is not possible' in refusal({"a": {**more, "lock": "x", "drift": "ignore"}})


def test_variables_are_filled_in_from_the_environment_wherever_there_is_text() -> None:
    files = {"command": "${HOME}/bin/x", "args": ["--token=${TOKEN}", "${env:HOME}"], "env": {"A": "${NONE:-b}"}}
    web = {"url": "https://${NONE:-host}/${EMPTY:-mcp}", "headers": {"Authorization": "Bearer ${TOKEN}"}}
    entries = read({"files": files, "web": web})
    assert entries["files"].command == ("/home/me/bin/x", "--token=t0p", "/home/me")
    assert entries["files"].env == {"A": "b"}
    assert (entries["web"].url, entries["web"].headers) == ("https://host/mcp", {"Authorization": "Bearer t0p"})


def test_the_section_may_have_the_name_that_another_host_gives_it() -> None:
    assert list(read_config({"servers": {"a": {"command": "a"}}, "inputs": []})) == ["a"]


def test_a_second_section_is_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gemel"):
        entries = read_config({"servers": {"b": {"command": "b"}}, "mcpServers": {"a": {"command": "a"}}})
    assert list(entries) == ["a"]
    assert caplog.messages == ["the configuration has 'mcpServers', which is read, and 'servers', which is not"]


def test_a_disabled_server_is_marked_and_needs_no_variables() -> None:
    entries = read({"off": {"command": "${NONE}", "disabled": True}, "out": {"url": "${NONE}", "enabled": False}})
    assert [entry.disabled for entry in entries.values()] == [True, True]


@pytest.mark.parametrize("era", ["2025", "2026"])
@pytest.mark.parametrize("entry", [{"command": "a"}, {"url": "http://h/mcp"}, {"url": "http://h/mcp", "type": "sse"}])
def test_an_entry_may_fix_the_era(entry: dict[str, Any], era: str) -> None:
    servers = read({"a": {**entry, "era": era}, "b": entry})
    assert servers["a"].reach({"era": "auto"})[1]["era"] == era
    assert servers["b"].reach({"era": "auto"})[1]["era"] == "auto"


def test_keys_of_other_hosts_are_ignored_and_slips_are_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gemel"):
        read({"a": {"command": "a", "autoApprove": ["x"], "arg": ["-v"]}})
    assert [record.message for record in caplog.records] == [
        "the configuration: server 'a': 'arg' is not known; did you mean 'args'?"
    ]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("npx", 'server \'a\' must be an object with a "command" or a "url"'),
        ({}, 'server \'a\' needs either a "command" or a "url"; it has nothing'),
        ({"comand": "x"}, "it has 'comand'"),
        ({"command": "x", "url": "http://h"}, "it has both"),
        ({"command": ""}, "server 'a': command: must be a string that is not empty"),
        ({"command": [5]}, "server 'a': command: must be a string"),
        ({"command": ["x"], "args": "-v"}, "server 'a': args: must be a list"),
        ({"command": "x", "env_vars": [{"name": "A"}]}, "env_vars[0]: must be a string, in quotes, not {"),
        ({"command": "x", "env": ["A=b"], "env_vars": ["HOME"]}, "server 'a': env: must be an object"),
        ({"command": "x", "env": {"T": "${NONE:-${HOME}}"}}, "env.T: a default can't have a reference in it: ${NONE"),
        ({"url": "http://h", "env_http_headers": ["A"]}, "server 'a': env_http_headers: must be an object"),
        ({"url": "http://h", "headers": "A: b", "bearer_token_env_var": "TOKEN"}, "headers: must be an object"),
        ({"url": "http://h", "bearer_token_env_var": 5}, "bearer_token_env_var: must be a string"),
        ({"url": "http://h", "httpUrl": "http://i"}, "httpUrl: there is another name of 'url' with another value"),
        ({"url": "http://h", "auth": "t", "headers": {"authorization": "u"}}, "auth: `headers` has an Authorization"),
        ({"command": "x", "args": "-v"}, "server 'a': args: must be a list"),
        ({"command": "x", "era": "2024"}, 'server \'a\': era: "2024" is not possible: use "2025" or "2026"'),
        ({"url": "http://h", "era": 2025}, 'server \'a\': era: 2025 is not possible: use "2025" or "2026"'),
        ({"url": "http://h", "era": ["2025"]}, "server 'a': era: [\"2025\"] is not possible"),
        ({"command": "x", "args": ["-p", 80]}, "server 'a': args[1]: must be a string, in quotes, not 80"),
        ({"command": "x", "env": {"PORT": 80}}, "server 'a': env.PORT: must be a string, in quotes, not 80"),
        ({"command": "x", "env": ["A=b"]}, "server 'a': env: must be an object"),
        (
            {"command": "x", "env": {"T": "${NONE}"}},
            "env.T: the environment has no variable NONE; set it, or write ${NONE:-",
        ),
        ({"command": "${input:key}"}, "command: ${input:key} is only known to another host"),
        ({"command": "x", "disabled": "yes"}, "server 'a': disabled: must be true or false"),
        ({"command": "x", "type": "http"}, "type: 'http' doesn't go with a command"),
        ({"url": "http://h", "type": "stdio"}, "type: 'stdio' doesn't go with a url"),
        ({"url": "http://h", "type": "ws"}, "type: 'ws' is not a type of server: use stdio, http or sse"),
        ({"url": "ftp://h"}, "server 'a': url: must begin with http:// or https://, not 'ftp://h'"),
    ],
)
def test_each_mistake_is_named_with_its_server_and_key(table: Any, words: str) -> None:
    assert words in refusal({"a": table})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "c.json:1:2: not JSON"),
        ('{"mcpServers": {} // hello\n "a"}', "c.json:2:2: not JSON: expected ','"),
        ("[]", 'c.json has no "mcpServers"'),
        ('{"other": 1}', "it holds 'other'"),
        ('{"mcpServers": []}', "c.json: 'mcpServers' must be an object"),
        ('{"mcpServers": {}, "mcpServers": {}}', "c.json: 'mcpServers' is there twice"),
    ],
)
def test_each_mistake_in_a_file_is_named_with_the_file(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(StartError) as caught:
        read_config(tmp_path / "c.json")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ('"a": {"command": "a"}, "a": {"command": "b"}', "c.json: server 'a' is there twice"),
        ('"a": {"command": "a", "command": "b"}', "c.json: server 'a': command: it is there twice"),
        ('"a": {"command": "a", "env": {"A": "1", "A": "2"}}', "c.json: server 'a': env: a member is there twice"),
        ('"a": {}', "c.json: server 'a' needs either"),
    ],
)
def test_each_mistake_in_an_entry_of_a_file_is_a_problem_of_this_entry(
    tmp_path: Path, entries: str, words: str
) -> None:
    (tmp_path / "c.json").write_text(f'{{"mcpServers": {{"good": {{"command": "x"}}, {entries}}}}}')
    read = read_config(tmp_path / "c.json")
    assert read["good"].reach()[0] == ["x"]
    assert words in read["a"].problem
    with pytest.raises(StartError, match="server 'a'"):
        Client.from_config(tmp_path / "c.json", "a")


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"none\.json can't be read: No such file"):
        read_config(str(tmp_path / "none.json"))
    (tmp_path / "latin").write_bytes(b'{"mcpServers": {"h\xf6her": {}}}')
    with pytest.raises(StartError, match="is not UTF-8"):
        read_config(tmp_path / "latin")


def test_one_server_is_picked_by_its_name_or_because_it_is_the_only_one() -> None:
    entries = read({"a": {"command": "a"}, "b": {"command": "b"}, "c": {"command": "c", "disabled": True}})
    assert pick(entries, "b").command == ("b",)
    with pytest.raises(StartError, match="There is no server 'x' in the configuration: it has 'a', 'b', 'c'"):
        pick(entries, "x")
    with pytest.raises(StartError, match="Which server"):
        pick(entries, None)
    del entries["b"]
    assert pick(entries, None).name == "a"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zed.json", '// settings\n{"context_servers": {"a": {"command": "x", /* why */ "args": ["-y"],}, },}'),
        ("codex.toml", '[mcp_servers.a]\ncommand = "x"\nargs = ["-y"]\n'),
    ],
)
def test_files_with_comments_and_of_codex_are_read(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert read_config(tmp_path / name)["a"].command == ("x", "-y")


def test_entries_in_the_words_of_other_hosts() -> None:
    variables = {"TOKEN": "t", "KEY": "k"}
    servers = {
        "gemini": {"httpUrl": "https://g.com"},
        "windsurf": {"serverUrl": "https://w.com"},
        "codex": {
            "url": "https://c.com",
            "bearer_token_env_var": "TOKEN",
            "env_http_headers": {"X-Key": "KEY"},
            "http_headers": {"X-Team": "blue"},
        },
        "local": {"command": "x", "env": {"A": "1"}, "env_vars": ["TOKEN"]},
        "copilot": {"type": "local", "command": "x"},
    }
    entries = read_config({"mcpServers": servers}, environ=variables)
    assert [entry.url for entry in entries.values()][:3] == ["https://g.com", "https://w.com", "https://c.com"]
    assert entries["codex"].headers == {"X-Team": "blue", "X-Key": "k", "Authorization": "Bearer t"}
    assert entries["local"].env == {"A": "1", "TOKEN": "t"}
    assert entries["copilot"].kind == "stdio"


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"auth": "oauth"}, {}),
        ({"auth": {"type": "oauth"}}, {}),
        ({"oauth": True}, {}),
        ({"oauthClientId": "c"}, {"client_id": "c"}),
        ({"oauth": {}}, {}),
        ({"auth": "oauth", "oauth": {"clientId": "c"}}, {"client_id": "c"}),
        ({"oauth": {"clientId": "12.34"}}, {"client_id": "12.34"}),
        (
            {"auth": {"CLIENT_ID": "c", "CLIENT_SECRET": "${TOKEN}", "scopes": ["a", "b"]}},
            {"client_id": "c", "client_secret": "t0p", "scopes": ["a", "b"]},
        ),
        (
            {
                "oauth": {
                    "clientId": "c",
                    "callbackPort": 8080,
                    "authServerMetadataUrl": "https://as.example/.well-known/openid-configuration",
                }
            },
            {"client_id": "c", "callback_port": 8080, "issuer": "https://as.example"},
        ),
        (
            {"oauth": {"authServerMetadataUrl": "https://as.example/.well-known/oauth-authorization-server/tenant"}},
            {"issuer": "https://as.example/tenant"},
        ),
        (
            {"oauth": {"client_id": "c", "clientSecretEnv": "TOKEN", "scope": "a b"}},
            {"client_id": "c", "client_secret": "t0p", "scopes": ["a", "b"]},
        ),
        (
            {
                "oauth": {
                    "enabled": True,
                    "issuer": "https://as",
                    "acceptIssuers": ["https://other"],
                    "resource": "none",
                    "assumePkce": True,
                    "parameters": {"audience": "${HOME}"},
                    "scopeSeparator": ",",
                    "authMethod": "client_secret_post",
                    "redirectUri": "http://localhost:3000/cb",
                    "privateNetworks": True,
                }
            },
            {
                "issuer": "https://as",
                "accept_issuers": ["https://other"],
                "resource": False,
                "assume_pkce": True,
                "authorization_parameters": {"audience": "/home/me"},
                "scope_separator": ",",
                "auth_method": "client_secret_post",
                "redirect_uri": "http://localhost:3000/cb",
                "private_networks": True,
            },
        ),
        ({"oauth": False}, False),
        ({"auth": "none"}, False),
        ({"oauth": {"enabled": False, "clientId": "c"}}, False),
        ({}, None),
    ],
)
def test_a_login_is_read_as_hosts_write_it(written: dict[str, Any], expected: Any) -> None:
    entry = read({"a": {"url": "https://host/mcp", **written}})["a"]
    assert (entry.problem, entry.oauth) == ("", expected)


def test_a_text_for_auth_is_a_token() -> None:
    written = {"${TOKEN}": "Bearer t0p", "Bearer ${TOKEN}": "Bearer t0p", "Basic dTpw": "Basic dTpw"}
    for text, sent in written.items():
        entry = read({"a": {"url": "https://host/mcp", "auth": text}})["a"]
        assert entry.reach() == ("https://host/mcp", {"headers": {"Authorization": sent}})


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ({"auth": 5}, "server 'a': auth: must be \"oauth\", an object with the options of the login"),
        ({"auth": "${NONE}"}, "auth: the environment has no variable NONE"),
        ({"auth": {"clientId": "x"}, "oauth": {}}, "oauth: the options of the login are in `auth`, too"),
        ({"oauth": {"clientId": 5}}, "oauth.clientId: must be a string, in quotes, not 5"),
        ({"oauth": {"clientSecretEnv": "NONE"}}, "oauth.clientSecretEnv: the environment has no variable NONE"),
        ({"oauth": {"callbackPort": "80"}}, "oauth.callbackPort: must be a number from 1 to 65535"),
        ({"oauth": {"scopes": 5}}, "oauth.scopes: must be a list of strings"),
        ({"oauth": {"parameters": []}}, "oauth.parameters: must be an object"),
        ({"oauth": {"assumePkce": "yes"}}, "oauth.assumePkce: must be true or false"),
        ({"oauth": {"type": "basic"}}, "oauth.type: must be"),
        ({"oauth": {"clientId": "c", "clientSecret": 12345}}, "oauth.clientSecret: must be a string, in quotes"),
        (
            {"oauth": {"authServerMetadataUrl": "https://as/meta"}},
            "oauth.authServerMetadataUrl: 'https://as/meta' is not",
        ),
        ({"oauth": {"scope": "a", "scopes": ["b"]}}, "oauth.scopes: there is another name of 'scopes', too"),
    ],
)
def test_a_mistake_in_a_login_is_named_with_its_key(written: dict[str, Any], words: str) -> None:
    told = refusal({"a": {"url": "https://host/mcp", **written}})
    assert words in told
    assert "12345" not in told


def test_an_unknown_option_of_a_login_is_told_and_one_for_a_program_too(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gemel"):
        read(
            {
                "a": {"url": "https://h", "oauth": {"tokenUrl": "https://as/token"}},
                "b": {"command": "x", "auth": "oauth"},
            }
        )
    assert caplog.messages == [
        "the configuration: server 'a': oauth.tokenUrl is not an option of a login; it is ignored",
        "the configuration: server 'b': 'auth' has no effect with a command",
    ]


async def test_a_client_is_made_from_a_file_and_its_own_options_win(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(
        "import os\nfrom gemel import Server\nserver = Server('configured')\n"
        "@server.tool\ndef say() -> str: return os.environ['WORD']\nserver.run()\n"
    )
    table = {"command": sys.executable, "args": [str(server)], "env": {"WORD": "${WORD:-hello}"}}
    (tmp_path / "c.json").write_text(json.dumps({"mcpServers": {"one": table}}))
    async with Client.from_config(tmp_path / "c.json") as client:
        assert (await client.call_tool("say")).text == "hello"
    async with Client.from_config(tmp_path / "c.json", "one", env={"WORD": "mine"}, era="2025") as client:
        assert (await client.call_tool("say")).text == "mine"
        assert client.era == "2025"


GOOD = """
from gemel import Server
server = Server("good")
@server.tool
def add(a: int, b: int) -> int:
    return a + b
server.run()
"""


def half_broken(folder: Path) -> dict[str, Any]:
    """A configuration of two servers, one of which needs a variable that is not set."""
    (folder / "good.py").write_text(GOOD)
    good = {"command": sys.executable, "args": [str(folder / "good.py")]}
    return {"mcpServers": {"good": good, "github": {"url": "http://127.0.0.1:1/mcp", "headers": {"T": "${NOT_SET}"}}}}


@pytest.mark.parametrize(
    ("table", "kind"),
    [
        ({"command": "x", "args": ["-y"], "url": None, "env": None, "type": None, "disabled": None}, "stdio"),
        ({"url": "http://h", "command": None, "args": None, "headers": None, "auth": None}, "http"),
        ({"type": "local", "command": ["x", "-y"], "environment": {}}, "stdio"),
        ({"type": "remote", "url": "http://h"}, "http"),
        ({"type": "HTTP", "url": "http://h"}, "http"),
        ({"transport": "StreamableHTTP", "url": "http://h"}, "http"),
        ({"type": "SSE", "url": "http://h"}, "sse"),
    ],
)
def test_entries_with_nulls_and_other_forms_are_read(table: Any, kind: str) -> None:
    entry = read({"a": table})["a"]
    assert (entry.problem, entry.kind) == ("", kind)
    assert entry.command == (("x", "-y") if kind == "stdio" else ())


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"mcpServers": {"a": {"command": "x", "timeout": ' + "9" * 5000 + "}}}"]
)
def test_a_file_that_python_can_not_read_is_an_error_with_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    with pytest.raises(StartError, match=r"c\.json"):
        read_config(tmp_path / "c.json")


def test_what_only_another_host_reads_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    read({"a": {"command": "x", "envFile": ".env"}})
    [record] = caplog.records
    assert record.getMessage() == (
        "the configuration: server 'a': 'envFile' is only known to another host; write its variables into `env`"
    )


async def test_a_variable_that_is_not_set_concerns_its_server_alone(tmp_path: Path) -> None:
    async with ClientGroup.from_config(half_broken(tmp_path)) as group:
        assert [tool.name for tool in await group.list_tools()] == ["add"]
        assert group.servers["github"].state == "failed"
        assert "the environment has no variable NOT_SET" in group.servers["github"].reason
        with pytest.raises(NotSent, match=r"Server 'github' is not available: .*headers.T: the environment has no"):
            await group.call_tool("search", {}, server="github")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (5, "must be an object"),
        ({}, "needs either"),
        ({"command": "x", "env": {"PORT": 8080}}, "env.PORT"),
        ({"command": "x", "args": "-v"}, "args"),
        ({"command": "x", "disabled": "yes"}, "disabled"),
        ({"command": "x", "lock": "nowhere.lock"}, "nowhere.lock can't be read"),
        ({"url": ""}, "url"),
        ({"url": "http://user:word@h/mcp"}, "user name or password"),
        ({"type": "ws", "url": "ws://h"}, "type: 'ws'"),
        ({"url": "http://h/mcp", "headers": {"A": "${input:key}"}}, "headers.A: ${input:key}"),
        ({"url": "http://h/mcp", "headers": {"A": "b\nc"}}, "A"),
        ({"url": "http://h/mcp", "headers": {"A B": "c"}}, "A B"),
        ({"url": "http://h/mcp", "oauth": {"resource": "none"}}, "issuer"),
        ({"url": "http://h/mcp", "oauth": {"redirectUri": "https://elsewhere/cb"}}, "not on this machine"),
        ({"url": "http://h/mcp", "oauth": {"clientSecret": "s"}}, "client_id"),
    ],
)
async def test_a_wrong_entry_is_the_failure_of_this_entry(tmp_path: Path, bad: Any, words: str) -> None:
    config = half_broken(tmp_path)
    config["mcpServers"] = {"good": config["mcpServers"]["good"], "bad": bad}
    async with ClientGroup.from_config(config) as group:
        assert [tool.name for tool in await group.list_tools()] == ["add"]
        assert list(group.failures) == ["bad"]
        assert words in group.failures["bad"]
    with pytest.raises(ConnectFailed, match=r"^Server 'bad' failed: "):
        await ClientGroup.from_config(config, strict=True).connect()


async def test_a_strict_group_names_every_failure(tmp_path: Path) -> None:
    config = half_broken(tmp_path)
    config["mcpServers"]["wrong"] = {"url": ""}
    with pytest.raises(ConnectFailed, match=r"'github' failed: .* NOT_SET.*; Server 'wrong' failed: .*url"):
        await ClientGroup.from_config(config, strict=True).connect()


async def test_a_strict_group_fails_as_a_whole_and_names_the_server(tmp_path: Path) -> None:
    with pytest.raises(ConnectFailed, match=r"Server 'github' failed: .* no variable NOT_SET"):
        async with ClientGroup.from_config(half_broken(tmp_path), strict=True):
            pass
    with pytest.raises(ConnectFailed, match=r"^Server 'dead' failed: "):
        async with ClientGroup({"good": Server("good"), "dead": "http://127.0.0.1:1/mcp"}, strict=True):
            pass


async def test_a_failed_server_is_logged_with_its_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "gemel"):
        async with ClientGroup.from_config({"mcpServers": {"github": {"command": "${NOT_SET}"}}}) as group:
            assert await group.list_tools() == []
    (record,) = caplog.records
    assert record.getMessage().startswith("Server 'github' is failed: the configuration: server 'github': command: ")
