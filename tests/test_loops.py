"""What belongs to an event loop ends with it, is abandoned if it can't, and stays with the parent of a forked process."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from gemel.errors import DefinitionError, NotSent
from gemel.loops import Abandoned, Home, PerLoop, leave_to_parent, on_fork, running_loop
from tests.transports.loops import FACTORIES

#: What event loops are made with.
on_each_loop = pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES)


class Diary:
    """A `PerLoop` of numbers that notes what happens to them."""

    def __init__(self) -> None:
        self.made = 0
        self.ended: list[int] = []
        self.abandoned: list[tuple[int, Abandoned]] = []
        self.values = PerLoop(self._make, end=self._end, abandon=lambda value, why: self.abandoned.append((value, why)))

    def _make(self) -> int:
        self.made += 1
        return self.made

    async def _end(self, value: int) -> None:
        await asyncio.sleep(0)  # the loop still runs
        self.ended.append(value)

    async def here(self) -> int:
        return self.values.here()


def run_and_only_close(work: Callable[[], Any]) -> None:
    """Run something in a loop that is closed without the steps of `asyncio.run`."""
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()


@on_each_loop
def test_each_loop_has_a_value_which_ends_with_it(factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    diary = Diary()

    async def twice() -> set[int]:
        return {diary.values.here(), diary.values.here()}

    for number in (1, 2):
        with asyncio.Runner(loop_factory=factory) as runner:
            assert runner.run(twice()) == {number}
            assert runner.run(diary.here()) == number
            assert diary.values.all() == [number]
        assert diary.ended == list(range(1, number + 1))
        assert diary.values.all() == []
    assert diary.abandoned == []


def test_values_end_in_the_order_in_which_they_were_made() -> None:
    """What was made first may use the others."""
    ended: list[str] = []

    async def note(value: str) -> None:
        ended.append(value)

    first, second = PerLoop(lambda: "first", end=note), PerLoop(lambda: "second", end=note)

    async def use() -> None:
        first.here()
        second.here()
        first.here()

    asyncio.run(use())
    assert ended == ["first", "second"]


def test_a_failure_at_the_end_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def fail(value: object) -> None:
        raise OSError("the disk is gone")

    broken, diary = PerLoop(object, end=fail), Diary()

    async def use() -> None:
        broken.here()
        diary.values.here()

    asyncio.run(use())
    assert diary.ended == [1]
    assert "Clean-up at the end of an event loop failed" in caplog.text
    assert "the disk is gone" in caplog.text


def test_what_belongs_to_a_loop_that_was_only_closed_is_abandoned_by_the_next() -> None:
    diary = Diary()
    run_and_only_close(diary.here)
    assert diary.abandoned == []
    assert asyncio.run(diary.here()) == 2
    assert diary.abandoned == [(1, "closed")]
    assert diary.ended == [2]


def test_loops_in_several_threads_have_a_value_each() -> None:
    diary, together = Diary(), threading.Barrier(3)
    found: list[int] = []

    async def use() -> None:
        found.append(diary.values.here())
        await asyncio.to_thread(together.wait, 10)
        assert len(diary.values.all()) == 3
        await asyncio.to_thread(together.wait, 10)

    threads = [threading.Thread(target=asyncio.run, args=[use()]) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(found) == sorted(diary.ended) == [1, 2, 3]


def test_a_value_that_was_forgotten_is_made_again_and_ends_once() -> None:
    diary = Diary()

    async def use() -> None:
        assert diary.values.find() is None
        diary.values.here()
        diary.values.forget()
        assert diary.values.find() is None
        diary.values.here()

    asyncio.run(use())
    assert (diary.made, diary.ended) == (2, [2])


def test_an_owner_that_is_gone_is_not_kept_for_the_end_of_the_loop() -> None:
    ended: list[str] = []

    async def note(value: str) -> None:
        ended.append(value)

    async def use() -> None:
        PerLoop(lambda: "gone", end=note).here()

    asyncio.run(use())
    assert ended == []


def test_outside_of_asyncio_it_says_what_is_missing() -> None:
    with pytest.raises(DefinitionError, match=r"no event loop runs here: start with asyncio\.run\(main\(\)\)"):
        running_loop()


# ---------------------------------------------------------------- Home


class Place:
    """Something that is connected in one loop."""

    def __init__(self) -> None:
        self.closed = 0
        self.abandoned: list[Abandoned] = []
        self.home = Home("thing", self.close, self.abandoned.append)

    async def close(self) -> None:
        self.closed += 1
        self.home.leave()

    async def connect(self) -> None:
        self.home.enter()

    async def use(self) -> None:
        self.home.check()


def test_another_loop_is_refused_while_the_first_is_not_closed() -> None:
    place, first = Place(), asyncio.new_event_loop()
    try:
        first.run_until_complete(place.connect())
        with pytest.raises(NotSent, match="this thing is connected in another event loop: use it there"):
            asyncio.run(place.use())
        with pytest.raises(NotSent, match="in another event loop"):
            asyncio.run(place.connect())
        first.run_until_complete(place.use())
    finally:
        first.close()
    asyncio.run(place.connect())
    assert (place.abandoned, place.closed) == (["closed"], 1)


def test_it_is_closed_at_the_end_of_its_loop_and_tells_why() -> None:
    place = Place()
    asyncio.run(place.connect())
    assert (place.closed, place.abandoned) == (1, [])
    assert "has ended: connect it again in this one" in place.home.ended
    asyncio.run(place.connect())
    assert place.closed == 2


# ---------------------------------------------------------------- forks

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def in_child(check: Callable[[], bool]) -> bool:
    """What a function returns in a forked process."""
    pid = os.fork()
    if not pid:
        status = 3
        try:
            status = 0 if check() else 1
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


@forks
async def test_a_forked_process_has_no_values_of_the_loops_of_its_parent() -> None:
    diary = Diary()
    diary.values.here()

    def check() -> bool:
        return diary.values.all() == [] and diary.abandoned == [(1, "forked")] and asyncio.run(diary.here()) == 2

    assert in_child(check)
    assert diary.values.all() == [1]
    assert diary.abandoned == []


@forks
async def test_a_forked_process_is_told_that_what_was_connected_is_not() -> None:
    place = Place()
    place.home.enter()
    words = "this thing was connected before the process was forked: make another one in this process"
    assert in_child(lambda: place.home.loop is None and place.home.ended == words)
    place.home.check()
    place.home.leave()


@forks
def test_objects_that_live_are_reset_in_a_forked_process() -> None:
    class Threads:
        count = 3

        def reset(self) -> None:
            self.count = 0

    alive, gone = Threads(), Threads()
    on_fork(alive.reset)
    on_fork(gone.reset)
    del gone
    assert in_child(lambda: alive.count == 0)
    assert alive.count == 3


@forks
def test_what_is_left_to_the_parent_is_not_destroyed_in_the_child() -> None:
    class Connection:
        def __del__(self) -> None:
            ended.append("destroyed")

    ended: list[str] = []

    def check() -> bool:
        leave_to_parent(Connection())
        return not ended

    assert in_child(check)


def test_the_loops_of_uvloop_are_those_of_asyncio() -> None:
    diary = Diary()
    uvloop.run(diary.here())
    assert diary.ended == [1]
