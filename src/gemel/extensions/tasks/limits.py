"""The limits of tasks, with their defaults, in one place. All are settings: `Tasks(limits=TaskLimits(…))`."""

from __future__ import annotations

import msgspec

from gemel.options import Check, SettingsMeta, check_values, is_whole, or_none, whole

#: The record of a task has its input, and a backend keeps values of 512 KiB.
_MOST_INPUT_BYTES = 512 << 10
_OPTIONS = {
    "tasks": or_none(whole(1)),
    "tasks_per_caller": whole(1),
    "unfinished_per_caller": whole(1),
    "bytes": or_none(whole(1)),
    "bytes_per_caller": or_none(whole(1)),
    "steps": whole(1),
    "argument_bytes": whole(1),
    "result_bytes": whole(1),
    "input_bytes": Check(
        lambda value: is_whole(value, 1, _MOST_INPUT_BYTES),
        f"use a whole number from 1 to {_MOST_INPUT_BYTES} (512 KiB)",
    ),
}


class TaskLimits(msgspec.Struct, frozen=True, kw_only=True, metaclass=SettingsMeta):
    """Limits of the tasks of a server: `Tasks(limits=TaskLimits(unfinished_per_caller=1000))`. Sizes in bytes.

    A caller is who was authenticated, in all processes; else the address of an HTTP request, or the connection, in this
    process. Raises DefinitionError for an unknown name, and for a value that is not a whole number above 0.
    """

    #: Tasks that this process makes and keeps. Beyond, the caller with most tasks that have ended loses the first of them; if
    #: none has ended, calls fail with `Overloaded`. None is 10,000 in memory, 100,000 on a backend that is shared.
    tasks: int | None = None
    #: Those of one caller.
    tasks_per_caller: int = 1000
    #: Those of one caller that have not ended, in this process.
    unfinished_per_caller: int = 200
    #: Bytes of all tasks that this process makes and keeps: of the arguments of those that have not ended, and of the results of
    #: the others. Beyond, tasks that have ended are forgotten, of the caller with most bytes of results the first one first; if
    #: that is not enough, calls fail with `Overloaded`. The newest result is always kept. None is 128 MiB in memory, 1 GiB on a
    #: backend that is shared.
    bytes: int | None = None
    #: The same of one caller. None is 64 MiB in memory, 256 MiB on a backend that is shared.
    bytes_per_caller: int | None = None
    #: Results of steps and answers that a task can remember.
    steps: int = 1000
    #: Size of the arguments of a task; larger ones are refused.
    argument_bytes: int = 1 << 20
    #: Size of the result of a task; a larger one makes the task fail.
    result_bytes: int = 8 << 20
    #: Size of all requests for input of a task and their answers; at most 512 KiB.
    input_bytes: int = _MOST_INPUT_BYTES

    def __post_init__(self) -> None:
        check_values(msgspec.structs.asdict(self), _OPTIONS)
