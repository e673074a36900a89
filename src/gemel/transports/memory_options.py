"""The options of a client of a server in this process. Annotations are evaluated here: see `gemel.options`."""

from typing import Annotated, TypedDict

from gemel.options import FLAG, Option
from gemel.protocol.http.request import PRINCIPAL, Principal


class MemoryOptions(TypedDict, total=False):
    """The options of a client of a `Server`."""

    raise_exceptions: Annotated[
        bool,
        Option("Whether an unexpected exception of a handler is raised in the caller, for tests.", False, FLAG),
    ]
    principal: Annotated[
        Principal | str | None,
        Option(
            "As whom it connects: `Principal(name, scopes=…)`, or a name without scopes. By default as the application "
            "itself, for which all `scopes=` are fulfilled.",
            None,
            PRINCIPAL,
        ),
    ]
