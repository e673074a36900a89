"""The server as a protected resource (RFC 6750, RFC 9728): bearer tokens, challenges, and the metadata that clients look for.

`TokenAuth` does everything but judge a token; what it verifies is remembered by its hash, so that a call costs no signature.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Collection
from hashlib import sha256
from inspect import isawaitable
from typing import Any, Final, TypeAlias, Unpack
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from gemel.auth.challenge import write_challenge
from gemel.auth.jose import TokenInvalid
from gemel.auth.metadata import RESOURCE_SEGMENT, ProtectedResource, canonical_resource, protected_resource_urls
from gemel.auth.server.dpop import DPoPProofs, ProofInvalid
from gemel.auth.server.options import TokenAuthOptions
from gemel.auth.server.questions import ASKED_FOR
from gemel.backends.base import store_refusal
from gemel.backends.server_backend import ServerBackend
from gemel.errors import BackendError, GemelError, Overloaded
from gemel.http1.asgi import AsgiApp, HeaderPairs, Receive, Scope, Send
from gemel.options import accepts, check_option, function, resolve
from gemel.protocol.http.request import Headers, Principal, Refusal, frozen
from gemel.protocol.scopes import NO_HIERARCHY
from gemel.shares import Shares, address_share
from gemel.transports.http.server.exchange import challenge_headers

#: Bytes of an Authorization header; a longer one is refused unread.
_MAX_HEADER: Final = 20 * 1024
#: Hashes of headers that are kept, as many as an endpoint keeps heads of requests.
_DIGESTS: Final = 64
#: What a token may consist of (RFC 6750 §2.1).
TOKEN_PATTERN: Final = r"[A-Za-z0-9\-._~+/]+=*"
#: The scheme and the token (RFC 6750 §2.1, RFC 9449 §7.1).
_CREDENTIALS = re.compile(rf"[ \t]*(bearer|dpop) +({TOKEN_PATTERN})[ \t]*".encode(), re.IGNORECASE)
#: Scopes that clients ask for by themselves, and no resource demands (Authorization, "Refresh Tokens").
_NOT_OF_RESOURCES: Final = frozenset({"offline_access"})

#: Judges a token: the caller, or None if it is not valid. It may raise `TokenInvalid` with a reason.
Verify: TypeAlias = Callable[[str], Awaitable[Principal | None] | Principal | None]


class AuthorizationServerDown(GemelError):
    """A token can't be judged now, because its authorization server doesn't answer."""


class TokenAuth:
    """Protects a server with bearer tokens that a function of yours judges; the base of `JWTAuth` and the others.

    Requests without a valid token get 401 with a challenge, malformed ones 400, those without the required scopes 403.
    Tokens are taken from the Authorization header only.

    Args:
        verify: `async def verify(token) -> Principal | None`, or a quick `def`: who the caller is, None for a token that is
            not valid. `TokenInvalid("…")` says why. It must check that the token was issued for this server.
        options: See `TokenAuthOptions`.

    Raises:
        DefinitionError: An option is unknown or has a value that it doesn't take.

    Example:
        ```python
        async def verify(token: str) -> Principal | None:
            user = await users.by_token(token)
            return Principal(user.name, scopes=frozenset(user.scopes)) if user else None


        server = Server("notes", auth=TokenAuth(verify))
        ```

    Specification: basic/authorization; RFC 6750, RFC 9728.
    """

    @accepts(TokenAuthOptions)
    def __init__(self, verify: Verify, **options: Unpack[TokenAuthOptions]) -> None:
        check_option("verify", verify, function("`async def verify(token) -> Principal | None`", 1))
        settings = resolve(TokenAuthOptions, options, type(self).__name__)
        self._verify = verify
        resource = settings["resource"]
        self._resource = None if resource is None else urlsplit(canonical_resource(resource))
        self.required_scopes = frozenset(settings["required_scopes"])
        #: What scopes include: the `scope_hierarchy` of the server that this protects.
        self.scope_hierarchy = NO_HIERARCHY
        supported = settings["scopes_supported"]
        self._listed_scopes = _for_resource(settings["required_scopes"] if supported is None else supported)
        self._authorization_servers = list(settings["authorization_servers"])
        self._dpop = settings["dpop"]
        self._name = settings["resource_name"]
        self._documentation = settings["resource_documentation"]
        self._remember = settings["remember"]
        self._most = settings["remembered"]
        #: Callers by the hash of their Authorization header, each with the time until when it is used.
        self._remembered: dict[bytes, tuple[float, Principal]] = {}
        #: The hashes by the names of the callers.
        self._shares: Shares[bytes] = Shares()
        #: Hashes of the headers of the latest callers: hashing one costs as much as the rest of `authenticate`.
        self._digests: dict[bytes, bytes] = {}
        self._paths: list[str] = []

    def __repr__(self) -> str:
        """The type only: an option may be secret."""
        return f"<{type(self).__name__}>"

    # ---------------------------------------------------------------- each request

    def authenticate(self, scope: Scope, headers: Headers, /) -> Principal | Refusal | Awaitable[Principal | Refusal]:
        """Tell who is calling: at once for a token that is remembered.

        Args:
            scope: The ASGI scope of the request.
            headers: Its headers.

        Returns:
            The caller, or the refusal to send.
        """
        value = headers.raw.get(b"authorization")
        if value is None or (scope.get("query_string") and _names_token(scope["query_string"])):
            return self._refuse_without_token(scope)
        remembered = self._remembered.get(self._digests.get(value) or self._digest(value))
        if remembered is not None and time.time() < remembered[0]:
            if self._dpop is None or not _is_dpop(value):
                return remembered[1]
            return self._prove(self._dpop, scope, headers, value, remembered[1])
        return self._judge(scope, headers, value)

    def _digest(self, value: bytes) -> bytes:
        digest = sha256(value).digest()
        if len(value) <= _MAX_HEADER:
            if len(self._digests) >= _DIGESTS:
                self._digests.clear()
            self._digests[value] = digest
        return digest

    async def _judge(self, scope: Scope, headers: Headers, value: bytes) -> Principal | Refusal:
        """Verify the token of a request."""
        match = _CREDENTIALS.fullmatch(value) if len(value) <= _MAX_HEADER else None
        proofs = self._dpop if _is_dpop(value) else None
        if match is None or (proofs is None and _is_dpop(value)):
            return self._refuse_header(scope, value)
        client = scope.get("client")
        asked_for = ASKED_FOR.set(address_share(str(client[0]) if client else None))
        try:
            caller = await self._caller_of(match[2].decode("ascii"))
        except TokenInvalid as exc:
            return self.refuse(scope, 401, "invalid_token", exc.reason)
        except (AuthorizationServerDown, Overloaded) as exc:
            return Refusal(503, str(exc), ((b"retry-after", b"5"),))
        finally:
            ASKED_FOR.reset(asked_for)
        if caller.expires is not None and caller.expires <= time.time():
            return self.refuse(scope, 401, "invalid_token", "the token has expired")
        if proofs is None and (wrong := self._wrong_binding(caller)) is not None:
            return self.refuse(scope, 401, "invalid_token", wrong)
        if not self.required_scopes <= self.scope_hierarchy.expand(caller.scopes):
            text = f"the token lacks a scope that this server needs: {' '.join(sorted(self.required_scopes))}"
            return self.refuse(scope, 403, "insufficient_scope", text)
        self._keep(self._digest(value), caller)
        return caller if proofs is None else await self._prove(proofs, scope, headers, value, caller)

    def _wrong_binding(self, caller: Principal) -> str | None:
        """Why a token is not accepted as a bearer token: whoever stole a bound one must not use it so (RFC 9449 §7.1)."""
        if caller.claims.get("cnf") is not None:
            return "the token is bound to a key, so it needs a proof" + (
                "" if self._dpop else " that is not accepted here"
            )
        return "this server needs tokens that are bound to a key" if self._dpop and self._dpop.required else None

    async def _prove(
        self, proofs: DPoPProofs, scope: Scope, headers: Headers, value: bytes, caller: Principal
    ) -> Principal | Refusal:
        """Check the proof that comes with a valid token."""
        token = value.strip(b" \t").rpartition(b" ")[2].decode("ascii")
        try:
            await proofs.check(headers, token, caller.claims, scope["method"], self._urls(scope))
        except ProofInvalid as exc:
            refusal = self.refuse(scope, 401, exc.error, exc.reason)
            nonce = proofs.nonce()
            if nonce is None:
                return refusal
            return refusal._replace(headers=(*refusal.headers, (b"dpop-nonce", nonce.encode())))
        except (Overloaded, BackendError) as exc:
            text = store_refusal("The proof can't be noted", exc).error.message
            return Refusal(503, text, ((b"retry-after", b"5"),))
        return caller

    def _urls(self, scope: Scope) -> list[str]:
        """The URLs that a request may name as its own: below the public URL if that is set."""
        root: str = scope.get("root_path", "").rstrip("/")
        path = root + str(scope["path"]).removeprefix(root)
        if self._resource is None:
            return [f"{_origin_of(scope)}{path}"]
        return [self._resource.geturl(), f"{self._resource.scheme}://{self._resource.netloc}{path}"]

    async def _caller_of(self, token: str) -> Principal:
        verdict: Any = self._verify(token)
        caller = await verdict if isawaitable(verdict) else verdict
        if caller is None:
            raise TokenInvalid("the token is not valid")
        if not isinstance(caller, Principal) or not isinstance(caller.name, str):
            raise TypeError(f"verify returned {type(caller).__name__}: use a Principal with a name, or None")
        return caller._replace(scopes=frozenset(caller.scopes), claims=frozen(caller.claims))

    def _keep(self, digest: bytes, caller: Principal) -> None:
        """Remember a caller for a time. The oldest token of the caller with most of them makes room for another."""
        end = self._remember_until(caller)
        if end is None or self._most == 0:
            return
        if len(self._remembered) >= self._most and digest not in self._remembered:
            oldest = self._shares.giving_way(caller.name)[0]
            self._shares.discard(self._remembered.pop(oldest)[1].name, oldest)
        self._remembered[digest] = (end, caller)
        self._shares.add(caller.name, digest)

    def _remember_until(self, caller: Principal) -> float | None:
        """Until when a token is not verified again, in Unix seconds; None to verify it each time."""
        ends = [] if self._remember is None else [time.time() + self._remember]
        return min(ends if caller.expires is None else [*ends, caller.expires], default=None)

    def forget(self, matches: Callable[[Principal], bool]) -> None:
        """Verify the tokens of some callers anew, because what they were verified with has changed.

        Args:
            matches: Tells whether to forget the token of a caller.
        """
        for digest in [digest for digest, (_, caller) in self._remembered.items() if matches(caller)]:
            self._shares.discard(self._remembered.pop(digest)[1].name, digest)

    def _refuse_without_token(self, scope: Scope) -> Refusal:
        """Refuse a request without credentials (401 without an error code, RFC 6750 §3), or with a token in its URL."""
        if _names_token(scope.get("query_string", b"")):
            text = "the token must be sent in the Authorization header, not in the URL"
            return self.refuse(scope, 400, "invalid_request", text)
        return self.refuse(scope, 401)

    def _refuse_header(self, scope: Scope, value: bytes) -> Refusal:
        scheme = value[:100].strip(b" \t").partition(b" ")[0].lower()
        if scheme != b"bearer" and (scheme != b"dpop" or self._dpop is None):
            return self.refuse(scope, 401)
        return self.refuse(scope, 400, "invalid_request", "the Authorization header must be Bearer and one token")

    def refuse(self, scope: Scope, status: int, error: str | None = None, description: str | None = None) -> Refusal:
        """Make the response that refuses a request, with its challenge.

        Args:
            scope: The ASGI scope of the request.
            status: The HTTP status: 400, 401 or 403.
            error: An error code of RFC 6750 §3.1; None for a request without credentials.
            description: What is wrong, for developers; it must hold nothing secret.

        Returns:
            The response.
        """
        challenge = self.challenge(scope, error=error, description=description)
        text = description or "This server needs an access token"
        return Refusal(status, text[:1].upper() + text[1:], tuple(challenge_headers(challenge)))

    def challenge(
        self, scope: Scope, *, error: str | None = None, description: str | None = None, scopes: Collection[str] = ()
    ) -> str:
        """Write the value of `WWW-Authenticate`.

        Args:
            scope: The ASGI scope of the request.
            error: An error code of RFC 6750 §3.1.
            description: What is wrong, for developers.
            scopes: The scopes that the operation needs besides those that every request needs.

        Returns:
            The challenge, with the URL of the metadata and the scopes; one of DPoP besides where that is accepted.
        """
        parameters = {
            "error": error,
            "error_description": description,
            "scope": " ".join(_for_resource(self.required_scopes.union(scopes))) or None,
            "resource_metadata": self._metadata_url(scope) if self._authorization_servers else None,
        }
        if self._dpop is None:
            return write_challenge("Bearer", parameters)
        sent = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
        if self._dpop.required or _is_dpop(sent):
            return write_challenge("DPoP", {**parameters, "algs": self._dpop.algorithms})
        alternative = write_challenge("DPoP", {"algs": self._dpop.algorithms})
        return f"{write_challenge('Bearer', parameters)}, {alternative}"

    def use_backend(self, backend: ServerBackend, /) -> None:
        """Note DPoP proofs under the name of the server, which calls this. The first server counts.

        Args:
            backend: That of the server.
        """
        if self._dpop is not None:
            self._dpop.use_backend(backend)

    @property
    def not_shared(self) -> str:
        """The DPoP proofs that were used, without a backend."""
        return "" if self._dpop is None else self._dpop.not_shared

    async def close(self) -> None:
        """Close the backends that were named by their URLs; they are opened again when they are needed."""
        if self._dpop is not None:
            await self._dpop.close()

    @property
    def authority(self) -> str:
        """Who issues the tokens, and the resource that they are for; "" if nothing is known."""
        resource = [] if self._resource is None else [self._resource.geturl()]
        return " ".join([*self._authorization_servers, *resource])

    # ---------------------------------------------------------------- metadata

    def routes(self, endpoint_path: str = "/mcp", /) -> dict[str, AsgiApp]:
        """Return the metadata documents by path, for the app that serves the endpoint.

        `server.http_app()` and `server.run("http")` serve them. A parent app that mounts the server adds them to its own
        routes, since clients also look at the root of the host.

        Args:
            endpoint_path: The path of the endpoint, in a parent app including its mount point.

        Returns:
            ASGI apps: below the well-known path with the path of the endpoint, and at its root (RFC 9728 §3.1). Empty without
            authorization servers.
        """
        if not self._authorization_servers:
            return {}
        path = endpoint_path.rstrip("/")
        if path not in self._paths:
            self._paths.append(path)
        paths = {path: path, "": path}
        if self._resource is not None:
            paths[self._resource.path.rstrip("/")] = path
        return {f"{RESOURCE_SEGMENT}{each}": _MetadataApp(self, each, path) for each in paths}

    def document(self, url: str) -> ProtectedResource:
        """Return the metadata of the resource (RFC 9728 §2).

        Args:
            url: The URL of the endpoint, as the request shows it; a public URL that was set comes first.

        Returns:
            The document.
        """
        return ProtectedResource(
            resource=url if self._resource is None else self._resource.geturl(),
            authorization_servers=self._authorization_servers,
            scopes_supported=self._listed_scopes or None,
            bearer_methods_supported=["header"],
            resource_name=self._name,
            resource_documentation=self._documentation,
        )

    @property
    def is_public(self) -> bool:
        """Whether the public URL is set, so that the metadata doesn't depend on the request."""
        return self._resource is not None

    def _metadata_url(self, scope: Scope) -> str:
        """The URL of the metadata for the client of a request: one that reaches this app, even when it is mounted.

        Below a mount point, or a prefix that a proxy strips, the well-known path at the root of the host may belong to others.
        """
        root: str = scope.get("root_path", "").rstrip("/")
        path = str(scope["path"]).removeprefix(root).rstrip("/")
        if path and path not in self._paths and self._paths:
            path = self._paths[0]  # a request to another path of the app, such as that of HTTP+SSE
        if self._resource is None:
            return f"{_origin_of(scope)}{root}{RESOURCE_SEGMENT}{path}"
        public: SplitResult = self._resource
        inner = f"{root}{path}"
        prefix = public.path.rstrip("/").removesuffix(inner) + root
        if not public.path.rstrip("/").endswith(inner) or not prefix:
            return protected_resource_urls(public.geturl())[0]
        return f"{public.scheme}://{public.netloc}{prefix}{RESOURCE_SEGMENT}"


class _MetadataApp:
    """The ASGI app that answers with the metadata of a resource, for `path` below the well-known one."""

    #: Pages of all origins may read it: it has public data only.
    any_origin = True

    def __init__(self, auth: TokenAuth, path: str, endpoint_path: str) -> None:
        self._auth = auth
        self._path = path
        self._endpoint_path = endpoint_path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer GET, HEAD and the OPTIONS of a preflight request."""
        method = scope["method"]
        if method == "OPTIONS":
            await _respond(send, 204, _PUBLIC)
            return
        if method not in ("GET", "HEAD"):
            await _respond(send, 405, ((b"allow", b"GET, HEAD, OPTIONS"),))
            return
        root = scope.get("root_path", "").rstrip("/")
        # The document at the root of a mounted app is that of the mount point.
        path = self._path or ("" if root else self._endpoint_path)
        body = msgspec.json.encode(self._auth.document(f"{_origin_of(scope)}{root}{path}"))
        caching = b"public, max-age=3600" if self._auth.is_public else b"no-store"
        headers = (*_PUBLIC, (b"content-type", b"application/json"), (b"cache-control", caching))
        await _respond(send, 200, headers, body, is_head=method == "HEAD")


_PUBLIC: Final[HeaderPairs] = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-allow-methods", b"GET"),
    (b"access-control-allow-headers", b"*"),
)


async def _respond(send: Send, status: int, headers: HeaderPairs, body: bytes = b"", *, is_head: bool = False) -> None:
    length = () if status == 204 else ((b"content-length", str(len(body)).encode()),)
    await send({"type": "http.response.start", "status": status, "headers": [*headers, *length]})
    await send({"type": "http.response.body", "body": b"" if is_head else body})


def _origin_of(scope: Scope) -> str:
    """Scheme and host of a request. The Host header was checked before."""
    host = next((value for name, value in scope["headers"] if name == b"host"), b"localhost")
    return f"{scope.get('scheme', 'http')}://{host.decode('latin-1')}"


def _names_token(query: bytes) -> bool:
    """Whether a query has an access token (RFC 6750 §2.3, which MCP doesn't allow)."""
    if b"token" not in query and b"%" not in query:
        return False
    return any(name == b"access_token" for name, _ in parse_qsl(query[:_MAX_HEADER], keep_blank_values=True))


def _is_dpop(value: bytes) -> bool:
    """Whether an Authorization header has the scheme DPoP."""
    return value[:16].lstrip(b" \t")[:5].lower() == b"dpop "


def _for_resource(scopes: Collection[str]) -> list[str]:
    return sorted(set(scopes) - _NOT_OF_RESOURCES)
