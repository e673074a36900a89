"""The options of protected resources, and what they are checked for. Annotations are evaluated here: see `hinge.options`."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypedDict
from urllib.parse import urlsplit

from hinge.auth.metadata import canonical_resource
from hinge.auth.url_rules import is_loopback_name
from hinge.errors import DefinitionError, shorten
from hinge.options import TEXT, TEXTS, Check, Option, or_none, whole

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
    """The options of a protected resource, which all classes of `hinge.auth` for servers have."""

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
