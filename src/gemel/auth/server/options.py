"""The options of protected resources, and what they are checked for. Annotations are evaluated here: see `gemel.options`."""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, TypedDict, cast
from urllib.parse import urlsplit

from gemel.auth.jose import ALGORITHMS, HMAC_ALGORITHMS
from gemel.auth.metadata import canonical_resource
from gemel.auth.server.dpop import DPoPProofs
from gemel.auth.url_rules import is_loopback_name
from gemel.errors import DefinitionError, shorten
from gemel.options import (
    FLAG,
    SECONDS,
    TEXT,
    TEXTS,
    Check,
    Option,
    instance,
    is_function,
    is_number,
    options_of,
    or_none,
    whole,
)

_SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")


def _are_scopes(value: Any) -> bool:
    return TEXTS.test(value) and all(_SCOPE.fullmatch(scope) for scope in value)


SCOPES = Check(_are_scopes, 'write a list of scopes without blanks, such as ["notes.read", "notes.write"]')


def is_issuer(value: Any) -> bool:
    """Whether a value can be an issuer or an endpoint: an https URL, or http on this machine."""
    try:
        canonical_resource(value)
    except (ValueError, TypeError, AttributeError):
        return False
    parts = urlsplit(value)
    return parts.scheme == "https" or is_loopback_name(parts.hostname or "")


#: What is said of URLs that are not https.
HTTPS_ADVICE = "write an https URL (http on this machine only), exactly as the authorization server spells it"


class ProtectedOptions(TypedDict, total=False):
    """The options of a protected resource, which all classes of `gemel.auth` for servers have."""

    resource: Annotated[
        str | None,
        Option(
            "The public URL of the endpoint, as clients write it. By default an audience that is a URL, else the URL of each "
            "request, which is wrong behind a proxy that changes host, scheme or path.",
            None,
            or_none(Check(is_issuer, "write the public URL of the endpoint: https://…, or http on this machine")),
        ),
    ]
    required_scopes: Annotated[
        Sequence[str], Option("Scopes that every request needs. A token without them gets 403.", (), SCOPES)
    ]
    scopes_supported: Annotated[
        Sequence[str] | None,
        Option("Scopes that the metadata lists; by default the required ones.", None, or_none(SCOPES)),
    ]
    dpop: Annotated[
        DPoPProofs | None,
        Option(
            "Accept tokens that are bound to a key of the client: `DPoPProofs()`. Without, such tokens are refused.",
            None,
            or_none(instance(DPoPProofs, "dpop=DPoPProofs()")),
        ),
    ]
    resource_name: Annotated[str | None, Option("A name for people, in the metadata.", None, or_none(TEXT))]
    resource_documentation: Annotated[
        str | None, Option("Where developers read about it, in the metadata.", None, or_none(TEXT))
    ]
    remembered: Annotated[int, Option("Maximum number of verified tokens that are remembered.", 10_000, whole(0))]


class TokenAuthOptions(ProtectedOptions, total=False):
    """The options of `TokenAuth`."""

    authorization_servers: Annotated[
        Sequence[str],
        Option(
            "Issuers of the tokens. Clients find them in the metadata, which is served only with this.",
            (),
            Check(
                lambda value: TEXTS.test(value) and all(map(is_issuer, value)),
                "write a list of https URLs (http on this machine only)",
            ),
        ),
    ]
    remember: Annotated[
        float | None,
        Option(
            "Seconds for which a verified token is accepted without asking again; 0 asks each time, None remembers until it "
            "expires.",
            60.0,
            Check(
                lambda value: value is None or (isinstance(value, int | float) and value >= 0), "use seconds, or None"
            ),
        ),
    ]


class JWTAuthOptions(ProtectedOptions, total=False):
    """The options of `JWTAuth`."""

    issuer: Annotated[
        str | Sequence[str] | None,
        Option("The `iss` of tokens, exactly as the authorization server spells it; or several. It is needed."),
    ]
    audience: Annotated[
        str | Sequence[str] | None,
        Option(
            "What names this server in the `aud` of tokens, usually the public URL of the endpoint; or several names. It is "
            "needed."
        ),
    ]
    keys: Annotated[
        Any,
        Option(
            "The keys of the issuer: the URL of a key set, the path of a file, PEM text, a JSON Web Key or a key set as a dict, "
            "a function that returns one of these two, or with several issuers a dict of these by issuer. By default the "
            "metadata of the issuer says where they are.",
            None,
            or_none(
                Check(
                    lambda value: isinstance(value, str | os.PathLike | Mapping) or is_function(value, 0),
                    "write a URL, a path, PEM text, a dict, or a function without arguments",
                    secret=True,
                )
            ),
        ),
    ]
    algorithms: Annotated[
        Collection[str],
        Option(
            "Signature algorithms that are accepted; by default all with public keys. HS256 and the like need `keys` with the "
            "secret.",
            tuple(sorted(ALGORITHMS)),
            Check(
                lambda value: TEXTS.test(value) and bool(value) and set(value) <= ALGORITHMS | HMAC_ALGORITHMS,
                'write a list of algorithms such as ["RS256", "ES256"]',
            ),
        ),
    ]
    leeway: Annotated[
        float,
        Option(
            "Seconds that clocks may differ, for `exp` and `nbf`.",
            30.0,
            Check(lambda value: is_number(value) and value <= 600, "use seconds, at most 600"),
        ),
    ]


class IntrospectionAuthOptions(ProtectedOptions, total=False):
    """The options of `IntrospectionAuth`."""

    issuer: Annotated[str | None, Option("The authorization server, exactly as it spells itself. It is needed.")]
    audience: Annotated[
        str | Sequence[str] | None,
        Option("What names this server in the `aud` of an answer, as for `JWTAuth`. It is needed."),
    ]
    client_id: Annotated[str, Option("The id with which this server asks.", "", TEXT)]
    client_secret: Annotated[str, Option("The secret for it.", "", TEXT._replace(secret=True))]
    endpoint: Annotated[
        str | None,
        Option(
            "Where to ask; by default the metadata of the issuer says it.",
            None,
            or_none(Check(is_issuer, "write an https URL (http on this machine only)")),
        ),
    ]
    missing_audience: Annotated[
        bool,
        Option(
            "Whether answers without `aud` are accepted. Only for an authorization server that itself calls tokens for other "
            "servers inactive.",
            False,
            FLAG,
        ),
    ]
    remember: Annotated[
        float,
        Option(
            "Seconds for which an answer is used without asking again. A token that is revoked works so much longer.",
            60.0,
            SECONDS,
        ),
    ]
    leeway: Annotated[float, Option("Seconds that clocks may differ, for `exp` and `nbf`.", 30.0, SECONDS)]


def protected_options(settings: Any, resource: str | None) -> ProtectedOptions:
    """The settings of `ProtectedOptions` among those of a class that has more, with the public URL that is known."""
    options: Any = {name: settings[name] for name in options_of(ProtectedOptions)}
    options["resource"] = resource
    return cast(ProtectedOptions, options)


def check_issuers(kind: str, issuer: Any) -> list[str]:
    """Read the option `issuer`. Raises DefinitionError, in one line, if it is missing or not a URL."""
    names = [issuer] if isinstance(issuer, str) else issuer
    if names is None or (TEXTS.test(names) and not names):
        raise DefinitionError(f"{kind} needs issuer=…, the URL of the authorization server whose tokens are accepted")
    if not TEXTS.test(names):
        raise DefinitionError(f"issuer={shorten(repr(issuer))} is not possible: write a URL or a list of URLs")
    for name in names:
        if not is_issuer(name):
            raise DefinitionError(f"issuer={shorten(repr(name))} is not possible: {HTTPS_ADVICE}")
    return list(dict.fromkeys(names))


def public_url(audience: Sequence[str]) -> str | None:
    """The first audience that is a URL, which is then the public URL of the endpoint."""
    return next((each for each in audience if is_issuer(each)), None)


def check_audience(kind: str, audience: Any) -> tuple[str, ...]:
    """Read the option `audience`. Raises DefinitionError, in one line, if it is missing."""
    names = (audience,) if isinstance(audience, str) else audience
    if not TEXTS.test(names) or not names or not all(names):
        raise DefinitionError(
            f"{kind} needs audience=…, what tokens for this server name as their audience, such as its public URL: without "
            f"it, tokens for other servers would be accepted"
            if audience is None
            else f"audience={shorten(repr(audience))} is not possible: write a text or a list of texts"
        )
    return tuple(names)
