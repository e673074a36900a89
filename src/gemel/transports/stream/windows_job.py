"""A Windows job: ends a process together with all that it has started. The only place with calls of the Windows API.

https://learn.microsoft.com/en-us/windows/win32/procthread/job-objects
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Mapping
from ctypes import wintypes
from subprocess import PIPE
from typing import Any

_EXTENDED_LIMIT_INFORMATION = 9
_KILL_ON_JOB_CLOSE = 0x2000
_CREATE_SUSPENDED = 0x4
_CREATE_NEW_PROCESS_GROUP = 0x200  # Ctrl-C at the terminal of this process doesn't reach the child
_CREATE_NO_WINDOW = 0x08000000
#: The exit code of processes that are ended.
_ENDED = 1


class _BasicLimits(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", wintypes.LARGE_INTEGER),
        ("PerJobUserTimeLimit", wintypes.LARGE_INTEGER),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _ExtendedLimits(ctypes.Structure):
    _fields_ = (
        ("BasicLimitInformation", _BasicLimits),
        ("IoInfo", ctypes.c_ulonglong * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


class Job:
    """Holds a process and its descendants. They also end if this process ends without having ended them."""

    def __init__(self) -> None:
        self._kernel = _library("kernel32")
        self._kernel.CreateJobObjectW.restype = wintypes.HANDLE
        handle = self._kernel.CreateJobObjectW(None, None)
        if not handle:
            raise OSError("Windows can't create a job object")
        self._handle: wintypes.HANDLE | None = wintypes.HANDLE(handle)
        limits = _ExtendedLimits()
        limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
        self._kernel.SetInformationJobObject(
            self._handle, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), wintypes.DWORD(ctypes.sizeof(limits))
        )

    def add(self, process: int) -> bool:
        """Take in a process by its handle. False if Windows refuses that."""
        return bool(self._kernel.AssignProcessToJobObject(self._handle, wintypes.HANDLE(process)))

    def end(self) -> None:
        """End all processes of the job, and close it."""
        if self._handle is not None:
            self._kernel.TerminateJobObject(self._handle, wintypes.UINT(_ENDED))
            self._kernel.CloseHandle(self._handle)
            self._handle = None


def start_in_job(
    command_line: str, environment: Mapping[str, str], cwd: str | os.PathLike[str] | None
) -> tuple[subprocess.Popen[bytes], Job]:
    """Start a program in a job of its own, with pipes as its standard streams.

    The process begins suspended, so that it can't start another one before it belongs to the job.

    Args:
        command_line: As `windows_command_line` makes it.
        environment: All variables of the new process.
        cwd: The folder to start it in; None for the current one.

    Raises:
        OSError: It can't be started.
    """
    job = Job()
    flags = _CREATE_SUSPENDED | _CREATE_NEW_PROCESS_GROUP | _CREATE_NO_WINDOW
    try:
        process = subprocess.Popen(
            command_line, bufsize=0, env=environment, cwd=cwd, creationflags=flags, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
    except BaseException:
        job.end()
        raise
    handle = int(getattr(process, "_handle"))  # noqa: B009 (only on Windows, unknown to type checkers)
    job.add(handle)
    if _library("ntdll").NtResumeProcess(wintypes.HANDLE(handle)):
        with contextlib.suppress(OSError):
            process.kill()
        job.end()
        raise OSError("Windows can't resume the new process")
    return process, job


def _library(name: str) -> Any:
    return getattr(ctypes, "WinDLL")(name)  # noqa: B009 (only on Windows, unknown to type checkers)
