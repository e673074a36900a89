"""The options of a client of a server in this process. Annotations are evaluated here: see `hinge.options`."""

from typing import Annotated, TypedDict

from hinge.options import FLAG, Option


class MemoryOptions(TypedDict, total=False):
    """The options of a client of a `Server`."""

    raise_exceptions: Annotated[
        bool,
        Option("Whether an unexpected exception of a handler is raised in the caller, for tests.", False, FLAG),
    ]
