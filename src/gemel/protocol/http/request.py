"""An HTTP request as data: its headers, who is calling, and the response that turns it away early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias, final

from gemel.errors import ErrorObject
from gemel.options import Check

#: Optional whitespace around a header value (RFC 9110 §5.6.3). HTTP servers differ in whether they strip it.
OWS: Final = b" \t"
#: Replaces the value of an MCP header that was sent more than once. It equals no valid value: no server accepts LF.
REPEATED: Final = b"\n"

#: (lower-case name, value) pairs in the order of the request, as ASGI has them.
RawHeaders: TypeAlias = Sequence[tuple[bytes, bytes]]


@final
class Refusal(NamedTuple):
    """An HTTP response that turns a request away. `authenticate` functions return one for 401 and 403.

    Attributes:
        status: The HTTP status, 400 to 599.
        text: What is wrong, for people. It becomes the message of the JSON-RPC error in the body.
        headers: More response headers, such as `(b"www-authenticate", b"Bearer")`.
        error: The JSON-RPC error of the body; by default `-32600` with the text.
    """

    status: int
    text: str
    headers: tuple[tuple[bytes, bytes], ...] = ()
    error: ErrorObject | None = None


#: Whom sessions, request state and kept results belong to: a caller, or a caller with the client that acts for it.
Owner: TypeAlias = str | tuple[str, str] | None

#: The claims of a caller without any.
NO_CLAIMS: Final[Mapping[str, Any]] = MappingProxyType({})


def frozen(value: object) -> Any:
    """The value with all objects and lists in it read-only: claims are shared by the calls of a token."""
    if isinstance(value, Mapping):
        return MappingProxyType({name: frozen(item) for name, item in value.items()})
    if isinstance(value, list | tuple):
        return tuple(map(frozen, value))
    return value


class Principal(NamedTuple):
    """An authenticated caller, as `Server(auth=…)` and `authenticate` functions return it.

    Attributes:
        name: Identifies the caller. HTTP sessions and request state belong to one name, and to its `client` if there is one.
        scopes: What this request was authorized for.
        claims: What else its token says. They are not shown by `repr`.
        expires: When the authorization ends, in seconds since 1970; None if it doesn't.
        client: The id of the client that acts for the caller; None if it isn't known.
    """

    name: str
    scopes: frozenset[str] = frozenset()
    claims: Mapping[str, Any] = NO_CLAIMS
    expires: float | None = None
    client: str | None = None

    @property
    def owner(self) -> Owner:
        """Whom that belongs to which outlives a request."""
        return self.name if self.client is None else (self.name, self.client)

    def __repr__(self) -> str:
        """Without the claims, which may be personal."""
        return f"Principal({self.name!r}, scopes={sorted(self.scopes)}, client={self.client!r})"


#: What the option `principal=` of a connection without HTTP takes.
PRINCIPAL: Final = Check(
    lambda value: value is None or isinstance(value, str | Principal),
    'write principal=Principal("anna", frozenset({"notes.write"})), or a name',
)


class Headers(Mapping[str, str]):
    """The headers of one request: names in any case, values as text (latin-1, without surrounding blanks).

    A header that was sent several times has one value, joined with commas. `raw` maps lower-case names to bytes.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: Mapping[bytes, bytes]) -> None:
        self.raw = raw

    def __getitem__(self, name: str) -> str:
        try:
            return self.raw[name.lower().encode()].strip(OWS).decode("latin-1")
        except (KeyError, UnicodeEncodeError):
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (name.decode("latin-1") for name in self.raw)

    def __len__(self) -> int:
        return len(self.raw)

    def __repr__(self) -> str:
        """Names only: values may be secrets."""
        return f"<Headers {', '.join(self)}>"
