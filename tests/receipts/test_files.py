"""The files of receipts: rotation, kills, several processes, full disks, and what verification finds."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gemel import CallError, Client, DefinitionError, NotSent, PeerError, Server, StartError
from gemel.receipts import BrokenChain, Receipts, verify
from gemel.receipts.files import chains, rotated
from tests.receipts.written import KEY, all_lines, ended, raw_lines, receipts
from tests.transports.loops import until

#: Serves calls to itself until it is killed; prints how many were answered.
CALLER = """
import asyncio, sys
from gemel import Client, Server
from gemel.receipts import Receipts

server = Server("killed", middleware=[Receipts(sys.argv[1], key=KEY, sync=sys.argv[2], max_bytes=50_000, keep=None)])

@server.tool
async def count(number: int) -> int:
    return number

async def main():
    async with Client(server) as client:
        for number in range(int(sys.argv[3])):
            await client.call_tool("count", {"number": number})
            print(number + 1, flush=True)
        if len(sys.argv) > 4:
            await asyncio.Event().wait()

asyncio.run(main())
""".replace("KEY", repr(KEY))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "receipts.jsonl"


def counting(*middleware: Any) -> Server[Any]:
    server: Server[Any] = Server("counting", middleware=list(middleware))

    @server.tool
    async def count(number: int) -> int:
        return number

    return server


async def call(path: Path, numbers: Any, **options: Any) -> None:
    """Write a receipt for each number, and close the file."""
    made = Receipts(path, **{"sync": "written", **options})
    try:
        async with Client(counting(made)) as client:
            for number in numbers:
                await client.call_tool("count", {"number": number})
    finally:
        made.close()


def caller(path: Path, sync: str, calls: int, *more: str) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-c", CALLER, str(path), sync, str(calls), *more]
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


# ---------------------------------------------------------------- chains


async def test_a_chain_goes_on_over_restarts_and_rotated_files(path: Path) -> None:
    for start in range(0, 100, 25):
        await call(path, range(start, start + 25), max_bytes=10_000, keep=None)
    files = chains(path)[0]
    assert len(files) > 3
    assert [each.name for each in files] == [f"receipts.jsonl.{k}" for k in range(len(files) - 1, 0, -1)] + [path.name]
    (report,) = verify(path)
    assert (report.first, report.receipts, report.killed, report.lost) == (1, 100, 0, 0)
    assert all(os.stat(each).st_size <= 10_500 for each in files)
    assert os.stat(path).st_mode & 0o077 == 0


async def test_old_files_are_deleted_and_that_shows(path: Path) -> None:
    await call(path, range(100), max_bytes=10_000, keep=2)
    assert len(rotated(path)) == 2
    (report,) = verify(path)
    assert report.first > 1
    other = path.with_name("other.jsonl")
    await call(other, range(100), max_bytes=10_000, keep=0)
    assert not rotated(other)
    assert verify(other)[0].first > 1


async def test_a_file_is_closed_with_the_event_loop_and_opened_again(path: Path) -> None:
    made = Receipts(path)
    for _ in range(2):
        await asyncio.to_thread(asyncio.run, one_call(made))
    assert [line["kind"] for line in all_lines(path)] == ["open", "call", "close"] * 2


async def one_call(made: Receipts) -> None:
    async with Client(counting(made)) as client:
        await client.call_tool("count", {"number": 1})


async def test_a_file_that_was_moved_away_is_made_anew_and_the_gap_shows(path: Path) -> None:
    made = Receipts(path, sync="written")
    async with Client(counting(made)) as client:
        await client.call_tool("count", {"number": 1})
        path.rename(path.with_name("moved"))
        await client.call_tool("count", {"number": 2})
    made.close()
    assert [line["n"] for line in all_lines(path)] == [3, 4, 5]
    (report,) = verify(path)
    assert report.first == 3


# ---------------------------------------------------------------- tampering


def change(path: Path, edit: Callable[[list[bytes]], Any]) -> None:
    lines = raw_lines(path)
    edit(lines)
    path.write_bytes(b"".join(line + b"\n" for line in lines))


def swap(lines: list[bytes]) -> None:
    lines[3], lines[4] = lines[4], lines[3]


def changed(lines: list[bytes]) -> None:
    lines[3] = lines[3].replace(b'"ok"', b'"error"')


def cut(lines: list[bytes]) -> None:
    lines[3] = lines[3][:-20]


def repeat(lines: list[bytes]) -> None:
    lines.insert(4, lines[3])


def last_changed(lines: list[bytes]) -> None:
    lines[-2] = lines[-2].replace(b'"ok"', b'"error"')
    del lines[-1]


@pytest.mark.parametrize("key", [None, KEY])
@pytest.mark.parametrize(
    ("edit", "place", "text"),
    [
        (changed, 4, "was changed"),
        (lambda lines: lines.pop(3), 4, "1 line missing before this one"),
        (swap, 4, "lines? missing"),
        (cut, 4, "not a line of a receipts file"),
        (repeat, 5, "this is line 4 of the chain, and stands behind line 4"),
        (last_changed, 7, "was changed"),
        (lambda lines: lines.insert(3, b"{}"), 4, "not a line of a receipts file"),
        (lambda lines: lines.pop(0), 1, "the first line of a file"),
        (lambda lines: lines.clear(), 1, "empty"),
    ],
)
async def test_the_first_line_that_is_wrong_is_named(
    path: Path, key: str | None, edit: Callable[[list[bytes]], Any], place: int, text: str
) -> None:
    await call(path, range(6), key=key)
    keys = [] if key is None else [key]
    verify(path, keys=keys)
    change(path, edit)
    with pytest.raises(BrokenChain, match=text) as caught:
        verify(path, keys=keys)
    assert (caught.value.file, caught.value.line) == (path, place)


async def test_without_a_key_a_chain_can_be_written_anew_and_with_one_it_can_not(path: Path, tmp_path: Path) -> None:
    """What the documentation says of both."""
    await call(path, range(3), key=KEY)
    forged = tmp_path / "forged" / "receipts.jsonl"
    forged.parent.mkdir()
    await call(forged, [7, 8])
    assert verify(forged)
    with pytest.raises(BrokenChain, match="without a key, and a key is given"):
        verify(forged, keys=[KEY])
    with pytest.raises(BrokenChain, match="another key"):
        verify(path, keys=["another key of more than 16 bytes"])
    with pytest.raises(StartError, match="written with a key"):
        verify(path)
    with pytest.raises(DefinitionError, match="the least"):
        verify(path, keys=["short"])


async def test_lines_that_are_removed_at_the_end_are_noticed_by_a_head_that_was_kept(path: Path) -> None:
    await call(path, range(6))
    (report,) = verify(path)
    verify(path, heads=[report.head])
    change(path, lambda lines: lines.__delitem__(slice(-3, None)))
    verify(path)
    with pytest.raises(StartError, match="removed at the end"):
        verify(path, heads=[report.head])


async def test_a_rotated_file_that_is_missing_is_noticed(path: Path) -> None:
    await call(path, range(100), max_bytes=10_000, keep=None)
    path.with_name("receipts.jsonl.2").unlink()
    with pytest.raises(BrokenChain, match=r"lines? missing") as caught:
        verify(path)
    assert caught.value.file.name == "receipts.jsonl.1"


async def test_a_process_that_was_killed_while_it_rotated_its_file_leaves_a_chain_that_goes_on(path: Path) -> None:
    made = Receipts(path, sync="written")
    async with Client(counting(made)) as client:
        await client.call_tool("count", {"number": 1})
        shutil.copy(path, path.with_name("receipts.jsonl.1"))  # as it is when the process is killed, and then renamed
    made.close()
    path.unlink()
    await call(path, range(3))
    (report,) = verify(path)
    assert (report.first, report.receipts, report.killed, len(report.files)) == (1, 4, 1, 2)


async def test_a_file_can_be_verified_while_it_is_written_and_rotated(path: Path) -> None:
    child = await asyncio.to_thread(caller, path, "later", 2_000)
    await until(lambda: bool(raw_lines(path)))
    counts = []
    with child:
        while child.poll() is None:
            await asyncio.to_thread(read_all, child)
            counts.append((await asyncio.to_thread(verify, path, keys=[KEY]))[0].receipts)
    assert counts == sorted(counts)
    assert (await asyncio.to_thread(verify, path, keys=[KEY]))[0].receipts == 2_000


def read_all(child: subprocess.Popen[bytes]) -> None:
    """Take what a child prints, so that it goes on."""
    assert child.stdout is not None
    os.set_blocking(child.stdout.fileno(), False)
    child.stdout.read()


@pytest.mark.parametrize("part", [slice(None), slice(3), slice(4, 7)])
async def test_a_copy_is_no_chain_of_another_process(path: Path, part: slice) -> None:
    """Whoever has no key can copy lines, but not into a chain: nothing is there twice."""
    for _ in range(2):
        await call(path, range(2), key=KEY)
    lines = path.read_bytes().splitlines(keepends=True)
    copy = path.with_name("receipts-5.jsonl")
    copy.write_bytes(b"".join(lines[part]))
    with pytest.raises(BrokenChain, match="a copy of a line") as caught:
        verify(path, keys=[KEY])
    assert (caught.value.file, caught.value.line) == (copy, 1)
    copy.rename(path.with_name("receipts-20261129.jsonl"))  # of somebody who keeps copies
    assert [report.receipts for report in verify(path, keys=[KEY])] == [4]


async def test_a_key_may_be_changed(path: Path) -> None:
    await call(path, range(3), key=KEY)
    other = "another key of more than 16 bytes"
    await asyncio.to_thread(subprocess.run, _with_key(path, other), check=True)
    assert verify(path, keys=[KEY, other])[0].receipts == 4


def _with_key(path: Path, key: str) -> list[str]:
    program = CALLER.replace(repr(KEY), repr(key))
    return [sys.executable, "-c", program, str(path), "written", "1"]


async def test_hashes_of_arguments_are_never_those_of_lines(path: Path) -> None:
    """A caller who sends a line as arguments does not learn its hash."""
    await call(path, range(1), key=KEY)
    line = raw_lines(path)[1]
    hashed = line[: line.index(b',"hash":')] + b"}"
    made = Receipts(path, key=KEY, sync="written")
    async with Client(counting(made)) as client:
        with pytest.raises(CallError):
            await client.call_tool("count", json.loads(hashed))
    made.close()
    assert json.loads(line)["hash"] not in receipts(path)[-1]["arguments"]


# ---------------------------------------------------------------- kills


@pytest.mark.parametrize("sync", ["written", "disk"])
async def test_what_was_answered_is_in_the_file_after_a_kill(path: Path, sync: str) -> None:
    child = caller(path, sync, 10_000)
    assert child.stdout is not None
    answered = b""
    while answered.strip() != b"40":
        answered = await asyncio.to_thread(child.stdout.readline)
    child.send_signal(signal.SIGKILL)
    rest, _ = await asyncio.to_thread(child.communicate)
    count = int((answered + rest).split()[-1])
    assert verify(path, keys=[KEY])[0].is_open
    await call(path, [1], key=KEY, max_bytes=50_000, keep=None)
    (report,) = verify(path, keys=[KEY])
    assert (report.killed, report.is_open) == (1, False)
    assert count + 1 <= report.receipts <= count + 2


async def test_a_torn_line_is_cut_off_and_told(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    await call(path, range(3))
    whole = path.read_bytes()
    last = raw_lines(path)[-1]
    for length in (1, len(last) // 2, len(last) - 1, len(last)):
        path.write_bytes(whole + last[:length])
        with pytest.raises(BrokenChain, match="has no end"):
            verify(path)
    path.write_bytes(whole + last[:50])
    await call(path, range(3, 5))
    assert "50 bytes are cut off" in caplog.text
    (told,) = [line for line in all_lines(path) if line["kind"] == "repaired"]
    assert (told["bytes"], told["text"]) == (50, last[:50].decode())
    (report,) = verify(path)
    assert (report.receipts, report.repaired) == (5, 1)


async def test_a_line_that_only_misses_its_end_is_kept(path: Path) -> None:
    await call(path, range(3))
    path.write_bytes(path.read_bytes()[:-1])
    await call(path, range(3, 5))
    (report,) = verify(path)
    assert (report.receipts, report.repaired) == (5, 0)


async def test_a_kill_in_the_middle_of_a_write_leaves_a_chain_that_goes_on(path: Path) -> None:
    """The kernel cuts the line: the limit of the size of files ends the write of the child, and then the child is killed."""
    program = CALLER.replace("import asyncio, sys", "import asyncio, os, sys, resource, signal")
    program = program.replace(
        "async def main():",
        "resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))\n"
        "os.ftruncate = lambda *args: os.kill(os.getpid(), signal.SIGKILL)\n"
        "\nasync def main():",
    )
    child = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", program, str(path), "written", "100"], capture_output=True, check=False
    )
    assert child.returncode < 0
    assert not path.read_bytes().endswith(b"\n")
    await call(path, [1], key=KEY)
    (report,) = verify(path, keys=[KEY])
    assert (report.killed, report.repaired) == (1, 1)
    assert report.receipts == int(child.stdout.split()[-1]) + 1


# ---------------------------------------------------------------- several processes


async def test_each_process_writes_a_chain_of_its_own(path: Path) -> None:
    children = [caller(path, "written", 20, "wait") for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        while (await asyncio.to_thread(child.stdout.readline)).strip() != b"20":
            pass
    names = {files[-1].name for files in chains(path)}
    assert names == {"receipts.jsonl", "receipts-2.jsonl", "receipts-3.jsonl"}
    for child in children:
        child.kill()
        await asyncio.to_thread(child.communicate)
    assert [report.receipts for report in verify(path, keys=[KEY])] == [20] * 3
    await call(path, [1], key=KEY)  # takes the first file, which is free again
    assert [report.receipts for report in verify(path, keys=[KEY])] == [21, 20, 20]


async def test_a_process_whose_file_was_taken_meanwhile_goes_on_in_another_one(path: Path) -> None:
    await call(path, range(3), key=KEY, max_bytes=50_000, keep=None)
    child = caller(path, "written", 5, "wait")
    assert child.stdout is not None
    while (await asyncio.to_thread(child.stdout.readline)).strip() != b"5":
        pass
    await call(path, range(4), key=KEY, max_bytes=50_000, keep=None)
    child.kill()
    await asyncio.to_thread(child.communicate)
    assert [(report.first, report.receipts) for report in verify(path, keys=[KEY])] == [(1, 8), (1, 4)]


def lock_gone(path: Path) -> None:
    path.with_name(f"{path.name}.lock").unlink()


def all_gone(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


def folder_moved(path: Path) -> None:
    path.parent.rename(path.parent.with_name("before"))
    path.parent.mkdir()


@pytest.mark.parametrize("clear", [lock_gone, all_gone, folder_moved])
async def test_two_processes_write_no_chain_together_after_a_folder_was_cleared(
    path: Path, clear: Callable[[Path], None]
) -> None:
    path = path.parent / "logs" / path.name
    path.parent.mkdir()
    made = Receipts(path, key=KEY, sync="written")
    async with Client(counting(made)) as client:
        await client.call_tool("count", {"number": 0})
        clear(path)
        child = caller(path, "written", 5, "wait")
        assert child.stdout is not None
        while (await asyncio.to_thread(child.stdout.readline)).strip() != b"5":
            pass
        for number in range(3):
            await client.call_tool("count", {"number": number})
    made.close()
    child.kill()
    await asyncio.to_thread(child.communicate)
    kept = 1 if clear is lock_gone else 0
    assert [report.receipts for report in verify(path, keys=[KEY])] == [5 + kept, 3]


async def test_a_lock_that_is_gone_is_made_anew_and_the_chain_goes_on(path: Path) -> None:
    made = Receipts(path, key=KEY, sync="written")
    async with Client(counting(made)) as client:
        for number in range(3):
            await client.call_tool("count", {"number": number})
            lock_gone(path)
    made.close()
    (report,) = verify(path, keys=[KEY])
    assert (report.receipts, report.killed, report.last) == (3, 0, 5)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
async def test_a_process_that_is_forked_takes_a_file_of_its_own(path: Path) -> None:
    program = CALLER.replace(
        "asyncio.run(main())", "asyncio.run(main()); child = os.fork(); asyncio.run(main())"
    ).replace("import asyncio, sys", "import asyncio, os, sys")
    program += "\nif child: os.waitpid(child, 0)\n"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", program, str(path), "written", "5"], check=True)
    reports = verify(path, keys=[KEY])
    assert sum(report.receipts for report in reports) == 15
    assert sum(report.killed for report in reports) == 0


# ---------------------------------------------------------------- files that can't be written


async def test_calls_are_refused_while_the_file_can_not_be_written(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.mkdir()
    made = Receipts(path)
    ran: list[int] = []
    server = counting(made)

    @server.tool
    async def run() -> None:
        ran.append(1)

    async with Client(server) as client:
        with pytest.raises(PeerError, match="can't write receipts") as caught:
            await client.call_tool("run")
    assert not ran
    assert str(path) not in str(caught.value)
    assert str(path) in caplog.text
    async with Client(counting(), middleware=[made]) as client:
        with pytest.raises(NotSent, match="could not be written"):
            await client.call_tool("count", {"number": 1})


async def test_calls_go_on_if_that_is_asked_for(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir()
    made = Receipts(path, unwritable="go on", queue=2)
    async with Client(counting(made)) as client:
        for number in range(5):
            await client.call_tool("count", {"number": number})
        path.rmdir()
        async with asyncio.timeout(10):
            await until(lambda: bool(ended(path)))
    made.close()
    assert "can't be written" in caplog.text
    (report,) = verify(path)
    assert report.receipts + report.lost == 5
    assert report.lost >= 2


async def test_a_full_disk_refuses_calls_until_there_is_room_and_loses_nothing(path: Path) -> None:
    """In a process of its own, whose files have a limit: what a full disk does, a part of a line included."""
    program = f"""
import asyncio, resource, signal, sys
from gemel import Client, PeerError, Server
from gemel.receipts import Receipts, verify

made = Receipts({str(path)!r}, sync=sys.argv[1])
server = Server("full", middleware=[made])
ran = []

@server.tool
async def run() -> None:
    ran.append(1)

async def main():
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, resource.RLIM_INFINITY))
    refused = []
    async with Client(server) as client:
        while len(refused) < 3:
            try:
                await client.call_tool("run")
            except PeerError as exc:
                refused.append(exc)
        before = len(ran)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        async with asyncio.timeout(20):
            while len(ran) == before:
                try:
                    await client.call_tool("run")
                except PeerError:
                    await asyncio.sleep(0.05)
    print([exc.code for exc in refused], len(ran))

asyncio.run(main())
(report,) = verify({str(path)!r})
print(report.receipts, report.lost, report.killed)
"""
    for sync, codes in (("written", "[504, 429, 429]"), ("later", "[429, 429, 429]")):
        path.unlink(missing_ok=True)
        words = [sys.executable, "-c", program, sync]
        done = await asyncio.to_thread(subprocess.run, words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        first, second = done.stdout.splitlines()
        told, ran = first.rsplit(" ", 1)
        assert told == codes
        assert second == f"{ran} 0 0"


async def test_many_receipts_at_once_are_bounded(path: Path) -> None:
    made = Receipts(path, queue=10)
    server = counting(made)
    gate = asyncio.Event()

    @server.tool
    async def wait() -> None:
        await gate.wait()

    async with Client(server) as client, asyncio.timeout(20):
        calls = [asyncio.create_task(client.call_tool("wait")) for _ in range(50)]
        await asyncio.sleep(0)
        gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
    made.close()
    answered = sum(not isinstance(result, BaseException) for result in results)
    (report,) = verify(path)
    assert report.receipts == answered
