"""How fast a call makes progress, and how long it will still take."""

from __future__ import annotations

#: Seconds of progress before a rate is shown: two notifications that come at once say nothing of it.
_FIRST = 1.0


class Pace:
    """The rate of one call's progress since its first notification."""

    def __init__(self) -> None:
        self._first: tuple[float, float] | None = None

    def describe(self, progress: float, total: float | None, now: float) -> str:
        """Take the progress, and return its rate and the remaining time, such as `1.5/s, 0:07 left`; empty if unknown.

        Args:
            progress: The progress so far.
            total: What it is when the call is complete; None if unknown.
            now: The time in seconds of a clock that never goes back.
        """
        if self._first is None or progress < self._first[0]:
            self._first = progress, now
        amount, seconds = progress - self._first[0], now - self._first[1]
        if amount <= 0 or seconds < _FIRST:
            return ""
        rate = amount / seconds
        # A total of 1 is a share, whose rate says less than the time.
        parts = [_format_rate(rate)] if total is None or total > 1 else []
        if total is not None and total > progress:
            parts.append(f"{_format_time((total - progress) / rate)} left")
        return ", ".join(parts)


def _format_rate(rate: float) -> str:
    units = ((1, "s"), (60, "min"), (3600, "h"), (86400, "day"))
    factor, unit = next((unit for unit in units if rate * unit[0] >= 1), units[-1])
    return f"{rate * factor:.{0 if rate * factor >= 10 else 1}f}/{unit}"


def _format_time(seconds: float) -> str:
    if seconds >= 100 * 3600:
        return f"{seconds / 86400:.0f} days"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
