"""Python's logging as log messages to the client: the records of the call that is running, if its client wants them."""

from __future__ import annotations

import logging

from gemel.schema.notifications import LoggingLevel
from gemel.server.context import find_context, served_call
from gemel.server.log_queue import LogQueue

#: From which of Python's levels on a record has which level of the protocol.
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
    """Send log records to the client whose call is running: `logging.getLogger("app").addHandler(LogToClient())`.

    A record goes to the client of the call in which it was made (in the handler, its tasks and its threads), if that
    client wants its level: see `Context.logs`. Records made elsewhere, and those of Gemel itself, are not sent. They leave
    before the call's answer, in order; emitting never waits, and at most 1,000 records wait per call.

    The message is sent, without traceback, unless a formatter is set; `logger` names the logger. Don't attach it to
    loggers that see secrets: clients are not trusted.

    Specification: server/utilities/logging.
    """

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record for the client of its call. Works in any thread.

        Args:
            record: The record.
        """
        ctx = find_context()
        if ctx is None or record.name == "gemel" or record.name.startswith("gemel."):
            return
        level = level_of(record.levelno)
        try:
            if not ctx.logs(level):
                return
            served = served_call(ctx)
            if served.log_queue is None:
                session = served.session
                served.log_queue = LogQueue(ctx.log, session.loop, session.connection.limits.teardown)
            text = record.getMessage() if self.formatter is None else self.format(record)
            served.log_queue.put(level, text, record.name)
        except Exception:
            self.handleError(record)


def level_of(number: int) -> LoggingLevel:
    """The protocol's level for one of Python's: 25 is "notice", 60 "alert", 70 "emergency"."""
    for least, level in _LEVELS:
        if number >= least:
            return level
    return "debug"
