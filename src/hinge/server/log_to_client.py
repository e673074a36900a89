"""Python's logging as log messages to the client: records of the call that is running here, if its client wants them."""

from __future__ import annotations

import logging

from hinge.schema.notifications import LoggingLevel
from hinge.server.current import running

#: From which of Python's levels on a record is of which level of the protocol (LOG-02).
_LEVELS: tuple[tuple[int, LoggingLevel], ...] = (
    (logging.CRITICAL + 20, "emergency"),
    (logging.CRITICAL + 10, "alert"),
    (logging.CRITICAL, "critical"),
    (logging.ERROR, "error"),
    (logging.WARNING, "warning"),
    (logging.INFO + 5, "notice"),
    (logging.INFO, "info"),
)


class LogToClient(logging.Handler):
    """Sends log records to the client whose call is running: `logging.getLogger("app").addHandler(LogToClient())`.

    A record goes to the client of the call in which it was made (in the handler, its tasks and its threads), if that
    client wants its level: see `Context.logs`. Records made elsewhere, and those of Hinge itself, go nowhere. They leave
    before the call's answer, in order; emitting never waits, and at most 1,000 wait per call.

    What is sent is the message, without traceback, unless a formatter is set; `logger` names the logger. A client may be
    anybody: don't attach it to loggers that see secrets (LOG-08).
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Give the record to its call, from any thread."""
        now = running.get(None)
        if now is None or record.name == "hinge" or record.name.startswith("hinge."):
            return
        level = level_of(record.levelno)
        try:
            if now.ctx.logs(level):
                now.say(level, record.getMessage() if self.formatter is None else self.format(record), record.name)
        except Exception:
            self.handleError(record)


def level_of(number: int) -> LoggingLevel:
    """The protocol's level for one of Python's: 25 is "notice", 60 "alert", 70 "emergency"."""
    for least, level in _LEVELS:
        if number >= least:
            return level
    return "debug"
