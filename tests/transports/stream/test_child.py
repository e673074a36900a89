"""A client and the server that it starts: real processes, their lives and deaths, on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from gemel import ChannelClosed, ConnectFailed, ConnectionLost, DefinitionError, Limits
from gemel.transports.stream import subprocess as process
from gemel.transports.stream.options import Shown
from gemel.transports.stream.subprocess import INHERITED, ChildChannel, Stdio, child_environment
from tests.support import Channel
from tests.transports.echo import AskConversation
from tests.transports.loops import FACTORIES, on_both_loops, until

SERVER = [sys.executable, str(Path(__file__).parents[1] / "echo_server.py"), "asyncio"]


def script(code: str) -> list[str]:
    """A server that reads one line and then does this."""
    return [sys.executable, "-c", f"import os, signal, subprocess, sys, time\nsys.stdin.readline()\n{code}"]


@contextlib.asynccontextmanager
async def started(command: list[str] | str, **options: Any) -> AsyncIterator[tuple[ChildChannel, AskConversation]]:
    made: list[AskConversation] = []

    def serve(channel: Channel) -> AskConversation:
        made.append(AskConversation(channel))
        return made[0]

    options.setdefault("stderr", "discard")
    channel = await Stdio(command, **options).open(serve)
    try:
        yield channel, made[0]
    finally:
        await channel.close()
        assert len(made[0].closed) == 1
        await until(lambda: not group_lives(channel.process.pid))


def group_lives(group: int) -> bool:
    """Whether a process of the group runs; zombies that nobody reaps don't count."""
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, IndexError):
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) == group and fields[0] != "Z":
                return True
    return False


@on_both_loops
async def test_calls_reach_a_server_in_a_child_process_and_it_ends_with_the_channel() -> None:
    """LIFE-15, STDIO-06: it ends when its input is closed, with exit code 0."""
    async with started(SERVER) as (channel, conversation):
        assert await conversation.ask("echo", a=1) == {"a": 1}
        codes = [channel.process.returncode]
    codes.append(channel.process.returncode)
    assert codes == [None, 0]
    with pytest.raises(ChannelClosed):
        await conversation.ask("echo")


@on_both_loops
async def test_many_large_messages_pass_both_ways() -> None:
    """No limit of a pipe's buffer shows."""
    async with started(SERVER, limits=Limits(stream_bytes=100_000)) as (_, conversation):
        asked = [conversation.ask("echo", n=number, pad="x" * 50_000) for number in range(60)]
        assert [answer["n"] for answer in await asyncio.gather(*asked)] == list(range(60))


@on_both_loops
async def test_a_command_line_is_split_into_words_and_no_shell_is_started(tmp_path: Path) -> None:
    """A semicolon is a character."""
    code = "import sys; sys.stdin.read(); open(sys.argv[1], 'w').write(repr(sys.argv[2:]))"
    async with started(f"{sys.executable} -c \"{code}\" {tmp_path}/out 'a b;' $HOME"):
        pass
    assert (tmp_path / "out").read_text() == "['a b;', '$HOME']"


@on_both_loops
async def test_waiting_calls_learn_the_exit_code_and_the_last_words() -> None:
    """Section 2 of the reliability rules: with why, and at once."""
    code = "for n in range(30): print('word', n, file=sys.stderr)\nsys.exit(3)"
    async with started(script(code)) as (channel, conversation):
        with pytest.raises(ConnectionLost) as caught:
            await conversation.ask("echo")
        text = str(caught.value)
        assert "exited with code 3; its last words:\nword 10\n" in text
        assert text.endswith("word 29")
        assert "word 9\n" not in text
        with pytest.raises(ChannelClosed, match="exited with code 3"):
            await conversation.tell("anything")
    assert channel.process.returncode == 3


@on_both_loops
async def test_last_words_that_were_shown_are_not_said_again() -> None:
    """Whoever reads standard error beside the errors has them already; whether there were any still counts."""
    shown: list[str] = []
    async with started(script("print('no luck', file=sys.stderr)\nsys.exit(3)"), stderr=Shown(shown.append)) as (
        _,
        end,
    ):
        with pytest.raises(ConnectionLost) as caught:
            await end.ask("echo")
    assert shown == ["no luck"]
    assert str(caught.value).endswith("exited with code 3; see what it wrote to standard error")
    async with started(script("sys.exit(3)"), stderr=Shown(shown.append)) as (_, end):
        with pytest.raises(ConnectionLost, match="exited with code 3; it wrote nothing to standard error"):
            await end.ask("echo")


@on_both_loops
async def test_a_killed_server_is_called_that() -> None:
    async with started(script("os.kill(os.getpid(), signal.SIGKILL)")) as (channel, conversation):
        with pytest.raises(ConnectionLost, match="was killed by SIGKILL; it wrote nothing to standard error"):
            await conversation.ask("echo")
    assert channel.process.returncode == -signal.SIGKILL


@on_both_loops
async def test_answers_that_were_written_before_the_death_arrive() -> None:
    """The last answer and the exit come together."""
    code = """print('{"jsonrpc":"2.0","id":1,"result":"done"}', flush=True); os._exit(0)"""
    async with started(script(code)) as (_, conversation):
        assert await conversation.ask("echo") == "done"
        await until(lambda: conversation.closed)
        assert "exited with code 0" in conversation.closed[0]


@on_both_loops
async def test_a_server_that_closes_its_output_and_lives_on_ends_the_calls_and_is_ended() -> None:
    """4.3: closes stdout, lives on."""
    async with started(script("os.close(1); time.sleep(100)"), patience=0.1) as (channel, conversation):
        with pytest.raises(ConnectionLost, match="closed its output, but still runs"):
            await conversation.ask("echo")
        await asyncio.wait_for(channel.wait_closed(), 10)
    assert channel.process.returncode == -signal.SIGTERM


@on_both_loops
async def test_a_server_that_closes_its_input_is_explained_too() -> None:
    """Writing fails: the same words, and the exit code if there is one."""
    code = "os.close(0); time.sleep(0.05); sys.exit(7)"
    async with started(script(code)) as (_, conversation):
        asked = asyncio.ensure_future(conversation.ask("echo"))
        await asyncio.sleep(0.02)
        with contextlib.suppress(ChannelClosed):
            for _ in range(20):
                await conversation.tell("anything")
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLost, match="exited with code 7"):
            await asked


@on_both_loops
async def test_a_dead_server_whose_child_holds_the_pipe_is_over_after_a_second_of_silence() -> None:
    """All three peers hang; the child is ended with the group."""
    code = "subprocess.Popen(['sleep', '100']); os._exit(4)"
    async with started(script(code)) as (_, conversation):
        with pytest.raises(ConnectionLost, match="exited with code 4"):
            await asyncio.wait_for(conversation.ask("echo"), 10)


@on_both_loops
async def test_what_a_dead_servers_child_still_says_is_heard() -> None:
    """Only silence ends it: a wrapper may end before the server that it started."""
    inner = "import sys, time\nfor n in '1234': time.sleep(0.4); print(sys.argv[1].replace('N', n), flush=True)"
    message = '{"jsonrpc":"2.0","method":"tick","params":{"n":N}}'
    code = f"subprocess.Popen([sys.executable, '-c', {inner!r}, {message!r}]); os._exit(0)"
    async with started(script(code)) as (_, conversation):
        await conversation.tell("go")
        await until(lambda: conversation.closed)
        assert conversation.heard == [{"n": 1}, {"n": 2}, {"n": 3}, {"n": 4}]


@on_both_loops
async def test_a_server_that_ignores_everything_is_killed() -> None:
    """LIFE-15: its input, then SIGTERM, then SIGKILL; bounded."""
    code = "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', file=sys.stderr)\nwhile True: time.sleep(100)"
    lines: list[str] = []
    async with started(script(code), patience=0.1, stderr=lines.append) as (channel, conversation):
        await conversation.tell("anything")
        await until(lambda: lines)
    await until(lambda: channel.process.returncode is not None)  # the loop may hear of the end a little later
    assert channel.process.returncode == -signal.SIGKILL


@on_both_loops
async def test_the_whole_process_group_is_ended() -> None:
    """Wrappers (npx, uv run) leave no orphans."""
    async with started(["/bin/sh", "-c", "sleep 100 & sleep 100 & wait"], patience=0.1) as (channel, _):
        await asyncio.sleep(0.1)
        assert group_lives(channel.process.pid)


@on_both_loops
async def test_closing_in_the_middle_of_a_call_fails_the_call() -> None:
    async with started(SERVER, patience=0.1) as (channel, conversation):
        asked = asyncio.ensure_future(conversation.ask("sleep", seconds=100))
        await conversation.ask("echo")
        await asyncio.gather(channel.close(), channel.close())
        with pytest.raises(ConnectionLost, match="closed on this side"):
            await asked


@on_both_loops
async def test_a_close_that_is_cancelled_goes_on_by_itself() -> None:
    """Opened in one task, closed in another, which gives up: the child ends all the same."""
    async with started(SERVER, patience=0.1) as (channel, conversation):
        asked = asyncio.ensure_future(conversation.ask("sleep", seconds=100))
        await conversation.ask("echo")
        closing = asyncio.create_task(channel.close())
        await asyncio.sleep(0.01)
        closing.cancel()
        await asyncio.wait_for(channel.wait_closed(), 10)
        assert isinstance((await asyncio.gather(asked, return_exceptions=True))[0], ConnectionLost)


@on_both_loops
async def test_channels_opened_in_one_task_can_be_closed_in_others_in_any_order() -> None:
    """ "Attempted to exit cancel scope in a different task" has no place here."""
    made: list[AskConversation] = []

    def serve(channel: Channel) -> AskConversation:
        made.append(AskConversation(channel))
        return made[-1]

    channels = [await Stdio(["cat"], stderr="discard").open(serve) for _ in range(8)]
    random.shuffle(channels)
    await asyncio.gather(*(asyncio.create_task(channel.close()) for channel in channels))
    assert {channel.process.returncode for channel in channels} == {0}


def test_a_loop_that_ends_without_a_close_leaves_no_child() -> None:
    """asyncio.run cancels what ends the child; the child is killed then."""
    pids: list[int] = []

    async def main() -> None:
        channel = await Stdio(["sleep", "100"], stderr="discard").open(AskConversation)
        pids.append(channel.process.pid)
        asyncio.get_running_loop().call_soon(asyncio.ensure_future(channel.close()).cancel)
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert not group_lives(pids[0])


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([f"{sys.executable} -V"], " -V'; write its arguments apart from it: in `args`"),
        (["no-such-program"], "there is no program 'no-such-program'; give its full path"),
        (["/etc/passwd"], "is not executable"),
        (["/etc"], "'/etc' is a folder; name the program in it"),
        (["tests/conftest.py"], "is not executable"),
        (["a\0b"], "null byte"),
    ],
)
@on_both_loops
async def test_a_command_that_cannot_be_started_says_so_and_what_to_do(command: list[str], words: str) -> None:
    """ConnectFailed names the command."""
    with pytest.raises(ConnectFailed, match="Can't start") as caught:
        await Stdio(command).open(AskConversation)
    assert words in str(caught.value)


@on_both_loops
async def test_a_script_without_interpreter_and_a_missing_directory_are_told_apart(tmp_path: Path) -> None:
    """Errors help."""
    (tmp_path / "script").write_text("hello")
    (tmp_path / "script").chmod(0o755)
    with pytest.raises(ConnectFailed, match=r"Exec format error; is .* interpreter"):
        await Stdio([str(tmp_path / "script")]).open(AskConversation)
    with pytest.raises(ConnectFailed, match=r"working directory .*none doesn't exist"):
        await Stdio(["cat"], cwd=tmp_path / "none").open(AskConversation)


def test_an_empty_or_torn_command_is_refused_when_it_is_written() -> None:
    """DefinitionError: the author's mistake."""
    for command in ("", [], [""], "python 'server.py"):
        with pytest.raises(DefinitionError):
            Stdio(command)


@on_both_loops
async def test_a_conversation_that_cannot_begin_ends_the_child() -> None:
    """Transport.open."""

    def refuse(channel: Channel) -> AskConversation:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        await Stdio(["cat"], stderr="discard").open(refuse)


# ---------------------------------------------------------------- environment and standard error


def test_a_child_inherits_only_harmless_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """No secrets, no shell functions; what is given comes on top."""
    monkeypatch.setenv("SECRET_TOKEN", "x")
    monkeypatch.setenv("TERM", "() { evil; }")
    monkeypatch.setenv("HOME", "/home/somebody")
    environment = child_environment({"GIVEN": "1", "PATH": "/given"})
    assert environment["HOME"] == "/home/somebody"
    assert environment["GIVEN"] == "1"
    assert environment["PATH"] == "/given"
    assert "SECRET_TOKEN" not in environment
    assert "TERM" not in environment
    assert set(environment) <= {*INHERITED, "GIVEN"}


@on_both_loops
async def test_standard_error_is_passed_on_as_it_comes(capsys: pytest.CaptureFixture[str]) -> None:
    """STDIO-03, the default."""
    code = "print('first', file=sys.stderr, flush=True); sys.stdin.read(); print('last', end='', file=sys.stderr)"
    async with started(script(code), stderr="inherit") as (_, conversation):
        await conversation.tell("go")
        seen = ""
        while "first\n" not in seen:
            seen += capsys.readouterr().err
            await asyncio.sleep(0.005)
    assert capsys.readouterr().err == "last"


@on_both_loops
async def test_standard_error_can_go_to_a_file_or_line_by_line_to_a_function(tmp_path: Path) -> None:
    """STDIO-03: UTF-8, even where a chunk ends within a character; a function that fails is called no more."""
    code = "sys.stderr.buffer.write('höher\\r\\n\\nzwei'.encode()); sys.stderr.flush(); sys.exit()"
    lines: list[str] = []

    def fail(line: str) -> None:
        lines.append(line)
        raise ValueError("no")

    expected: list[tuple[Any, list[str]]] = [
        (tmp_path / "log", []),
        (lines.append, ["höher", "", "zwei"]),
        (fail, ["höher"]),
    ]
    for stderr, seen in expected:
        lines.clear()
        async with started(script(code), stderr=stderr) as (_, conversation):
            await conversation.tell("go")
            await until(lambda: conversation.closed)
        assert lines == seen
    assert (tmp_path / "log").read_bytes() == "höher\r\n\nzwei".encode()


@on_both_loops
async def test_a_child_is_waited_for_where_that_frees_its_process_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """macOS before Python 3.13."""
    monkeypatch.setattr(process, "_HAS_WAITID", False)
    async with started(script("sys.exit(5)")) as (channel, conversation):
        with pytest.raises(ConnectionLost, match="exited with code 5"):
            await conversation.ask("echo")
    assert channel.process.returncode == 5


# ---------------------------------------------------------------- an event loop that ends first


async def silent(**options: Any) -> ChildChannel:
    """A server that is only there."""
    command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    return await Stdio(command, stderr="discard", **options).open(AskConversation)


@pytest.mark.parametrize("loop_name", FACTORIES)
def test_a_child_is_ended_although_the_loop_ends_before_that_began(loop_name: str) -> None:
    """A loop that ends cancels what has not run yet: no process is left all the same."""

    async def main() -> ChildChannel:
        channel, this = await silent(), asyncio.current_task()
        assert this is not None
        this.add_done_callback(lambda _: channel.abort("enough"))  # in the loop's last turn
        return channel

    with asyncio.Runner(loop_factory=FACTORIES[loop_name]) as runner:
        channel = runner.run(main())
    assert not group_lives(channel.process.pid)
    with pytest.raises(ChildProcessError):
        os.waitpid(channel.process.pid, os.WNOHANG)


@on_both_loops
async def test_a_killed_child_that_takes_its_time_is_waited_for_without_holding_up_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise it would stay with the system, and Python would warn of it."""
    monkeypatch.setattr(process, "REAP_SECONDS", 0.0)
    channel = await silent(patience=0.02)
    channel.process.reap()
    await until(lambda: not Path(f"/proc/{channel.process.pid}").exists())
    await channel.close()
