"""Asking people elsewhere than at the client, for clients without forms: what `Server(ask=…)` takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, cast

from gemel.http1.asgi import AsgiApp
from gemel.protocol.records import Call
from gemel.server.elicitation.elicit import ElicitationStrategy
from gemel.server.elicitation.request_state import RequestStateCodec
from gemel.session import Session
from gemel.transports.http.server.options import Auth, Authenticate

if TYPE_CHECKING:
    from gemel.backends.server_backend import ServerBackend


class AskElsewhere(Protocol):
    """Asks the users of clients that have no forms: `gemel.ask_by_page.AskByPage` is one. It belongs to one server."""

    @property
    def middleware(self) -> Sequence[Any]:
        """What runs around all other middleware of the server."""
        ...

    @property
    def not_shared(self) -> str:
        """What other processes of the server miss, since it is in the memory of this one; "" for nothing."""
        ...

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Keep what waits for an answer under the name of a server; called when it is given to one."""

    def lifespan(self, server: Any, /) -> AbstractAsyncContextManager[Any]:
        """Entered in each event loop in which the server serves."""
        ...

    def routes(
        self, endpoint_path: str, auth: Auth | None, authenticate: Authenticate | None, /
    ) -> Mapping[str, AsgiApp]:
        """Return what is served beside an endpoint, by path.

        Args:
            endpoint_path: The path of the endpoint.
            auth: Authorizes the callers of the server; None without.
            authenticate: Tells who is calling there without it; None if nobody is authenticated.

        Raises:
            DefinitionError: It can't be told who may answer.
        """
        ...

    def elicitation(self, session: Session, call: Call, codec: RequestStateCodec, /) -> ElicitationStrategy | None:
        """Return how this call requests input; None for the way of its era."""
        ...


def elicitation_elsewhere(session: Session, call: Call, codec: RequestStateCodec) -> ElicitationStrategy | None:
    """How a call requests input elsewhere than at its client; None if nothing does."""
    description = session.connection.description
    ask = None if description is None else cast("AskElsewhere | None", description.ask)
    return None if ask is None else ask.elicitation(session, call, codec)
