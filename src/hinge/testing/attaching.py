"""Standing in every door of a server: its transports lead through another `serve` for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hinge.channel import Serve
from hinge.server.server import Server


@contextmanager
def attached(server: Server[Any], serve: Serve) -> Iterator[None]:
    """Every door of a server asks it for `serve`; within the block they find this one."""
    own = vars(server)
    before = own.get("serve")
    own["serve"] = serve
    try:
        yield
    finally:
        if before is None:
            del own["serve"]
        else:
            own["serve"] = before
