"""The options of `gemel run` besides those of `server.run("http")`. Annotations are evaluated here: see `gemel.options`."""

from collections.abc import Sequence
from typing import Annotated, Literal, TypeAlias

from gemel.options import Option
from gemel.transports.http.server.options import HttpOptions

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error", "critical"]


class RunOptions(HttpOptions, total=False):
    """What `gemel run` takes as a flag or as an environment variable."""

    tls_cert: Annotated[str | None, Option("Certificate for HTTPS, with its chain: a PEM file.")]
    tls_key: Annotated[str | None, Option("Private key of the certificate, if it is not in the same file.")]
    limit: Annotated[
        Sequence[str], Option("One of the limits of the server, `NAME=NUMBER`, in place of the one that the file sets.")
    ]
    metrics_token: Annotated[
        str | None,
        Option(
            "What requests of /metrics must send, as `Authorization: Bearer TOKEN`; a variable hides it from others."
        ),
    ]
    log_level: Annotated[LogLevel | None, Option("Write Python's log messages from this level on to standard error.")]
