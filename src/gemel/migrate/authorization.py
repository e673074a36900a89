"""Calls of FastMCP's identity providers and token verifiers, and what they are in `gemel.auth`.

The tables say for each class where its tokens come from and what it checks; what it checked is checked afterwards.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

import libcst as cst
import libcst.matchers as m

from gemel.migrate.arguments import CallArguments, code_of, is_name, text_of
from gemel.migrate.names import TOKEN_VERIFIERS, Name
from gemel.migrate.providers import Counterpart

_AUTH = "gemel.auth"
_PREFIX = "fastmcp.server.auth"
_CONFIGURATION = "/.well-known/openid-configuration"
#: Classes of pydantic around the text of a URL or a secret.
_WRAPPERS = ("AnyHttpUrl", "AnyUrl", "HttpUrl", "SecretStr")
#: Scopes of OpenID Connect: they say what is known of the user, and permit nothing.
_IDENTITY = ("openid", "profile", "email", "offline_access")


class _Preset(NamedTuple):
    """A provider of `gemel.auth` behind `OAuthProxy`: its options, written with those of FastMCP's class.

    Attributes:
        name: The function of `gemel.auth`.
        options: Templates by option; see `_Values`.
        needless: Options that say what the provider knows.
        openid: Whether a login needs the scope `openid`.
        api: Whether the scopes are those of an API of the application.
        public: Whether the application may have no secret.
        scopes: The provider's names of some scopes.
    """

    name: str
    options: Mapping[str, str] = {}
    needless: tuple[str, ...] = ()
    openid: bool = True
    api: bool = False
    public: bool = False
    scopes: Mapping[str, str] = {}


_PRESETS = {
    "Auth0Provider": _Preset("Auth0", {"domain": "{config_url:host}", "audience": "{audience}"}),
    "AWSCognitoProvider": _Preset("Cognito", {"user_pool": "{user_pool_id}"}, ("aws_region",)),
    "AzureProvider": _Preset("EntraID", {"tenant": "{tenant_id}"}, api=True),
    "ClerkProvider": _Preset("Clerk", {"domain": "{domain:bare}"}, public=True),
    "DiscordProvider": _Preset("Discord", openid=False),
    "GitHubProvider": _Preset("GitHub", openid=False),
    "GoogleProvider": _Preset(
        "Google",
        scopes={name: f"https://www.googleapis.com/auth/userinfo.{name}" for name in ("email", "profile")},
    ),
    "HuggingFaceProvider": _Preset("HuggingFace", public=True),
    "OCIProvider": _Preset("OCI", {"domain": "{config_url:host}"}),
    "OIDCProxy": _Preset("OpenID", {"issuer": "{config_url:issuer}"}, ("strict", "algorithm"), public=True),
    "WorkOSProvider": _Preset("WorkOS", {"domain": "{authkit_domain:bare}"}),
}
#: Options of all of them that change nothing in Gemel, or nothing with these values.
_IGNORED = ("timeout_seconds", "cache_ttl_seconds", "max_cache_size")
_DEFAULTS = {
    "redirect_path": '"/auth/callback"',
    "require_authorization_consent": "True",
    "enable_cimd": "True",
    "forward_resource": "True",
    "verify_id_token": "False",
    "token_expiry_threshold_seconds": "0",
}
#: Options that are left out, and what to do.
_LEFT_OUT = {
    "redirect_path": "register callback_url of OAuthProxy at the provider, which ends with /auth/callback",
    "jwt_signing_key": "write keys=[…] with secrets of 32 bytes; by default they are derived from the client secret",
}
_LOGIN_NOTE = (
    "OAuthProxy lets in whoever can log in, as before, unless allow= is given; url= is the public URL of the endpoint: compare its "
    "path with that of run('http', path=…); see docs/authorization.md"
)


class _Issuer(NamedTuple):
    """An authorization server where clients register themselves: what `JWTAuth` is told of it.

    Attributes:
        issuers: Templates of what tokens have as `iss`.
        audience: Templates of what they have as `aud`; empty for the URL of the endpoint.
        algorithm: What they are signed with, by default.
        scopes: What each needs, by default.
        needless: Options that Gemel needs no more.
        note: What is checked besides, or what to set up.
        scope_note: The same where scopes are needed.
    """

    issuers: tuple[str, ...]
    audience: tuple[str, ...] = ()
    algorithm: str = "RS256"
    scopes: tuple[str, ...] = ()
    needless: tuple[str, ...] = ()
    note: str | None = None
    scope_note: str | None = None


_ISSUERS = {
    "Auth0MCPProvider": _Issuer(
        ("{config_url:auth0}",),
        needless=("timeout_seconds",),
        note="scopes are those in `scope`, without `permissions`",
    ),
    "AuthKitProvider": _Issuer(("{authkit_domain:url}",)),
    "AzureJWTVerifier": _Issuer(
        ("https://login.microsoftonline.com/{tenant_id}/v2.0",), ("{client_id}", "api://{client_id}")
    ),
    "DescopeProvider": _Issuer(
        ("{descope_base_url:https}/v1/apps/{project_id}",),
        ("{project_id}",),
        note="tokens are accepted from this issuer only; that of an MCP server is …/v1/apps/agentic/PROJECT/SERVER",
    ),
    "KeycloakAuthProvider": _Issuer(("{realm_url:url}",), scopes=("openid",)),
    "ScalekitProvider": _Issuer(
        ("{environment_url:url}/resources/{resource_id}", "{environment_url:url}"), ("{resource_id}",)
    ),
    "SupabaseProvider": _Issuer(("{project_url:url}/auth/v1",), ("authenticated",), "ES256"),
}
_AUDIENCE_NOTE = (
    "a token must name this audience in `aud`, which was not checked before: the authorization server has to write it"
)
#: Options of verifiers that are the same in Gemel.
_SAME = ("scopes_supported", "resource_name", "resource_documentation")


#: Methods of FastMCP's verifiers that do more than to judge a token.
_PROVIDER_METHODS = frozenset(
    {"get_middleware", "get_routes", "get_well_known_routes", "load_access_token", "set_mcp_path"}
)


class _Refused(Exception):
    """A call says more than Gemel's counterpart can; the text says what to do."""


class _Values:
    """The options of a call, taken out one by one.

    A template is a text with `{option}` in it, and how the value is changed: `:url` without a slash at its end, `:https` with a
    scheme if it is a text without one, `:bare` without scheme, `:host` the host of a URL, `:issuer` and `:auth0` the issuer whose
    metadata is there, without and with a slash at its end.
    """

    def __init__(self, call: cst.Call, positional: Sequence[str] = ()) -> None:
        self.arguments = CallArguments(call, positional)
        self.imports: set[Name] = set()
        self.used: set[str] = set()
        if self.arguments.starred or any(name is None for name in self._names(call, positional)):
            raise _Refused("")

    @staticmethod
    def _names(call: cst.Call, positional: Sequence[str]) -> list[str | None]:
        left = iter(positional)
        return [arg.keyword.value if arg.keyword is not None else next(left, None) for arg in call.args]

    def get(self, option: str) -> cst.BaseExpression | None:
        """The value of an option without its wrapper; None without one, and for `None`."""
        self.used.add(option)
        value = self.arguments.get(option)
        return None if value is None or is_name(value, "None") else unwrapped(value)

    def left(self) -> list[str]:
        """The options that were not used, apart from those that say the default."""
        return [
            name
            for name in self.arguments.names()
            if name not in self.used
            and not is_name(self.arguments.get(name), "None")
            and code_of(self.arguments.get(name) or cst.Name("x")).replace("'", '"') != _DEFAULTS.get(name)
        ]

    def fill(self, template: str) -> str | None:
        """The code of a template; None if one of its options is missing."""
        parts: list[tuple[bool, str]] = []
        for text, option, form in re.findall(r"([^{]*)(?:\{(\w+)(?::(\w+))?\})?", template):
            if text:
                _add(parts, True, text)
            if option:
                value = self.get(option)
                if value is None:
                    return None
                literal = text_of(value)
                if literal is not None:
                    _add(parts, True, _changed(literal, form))
                else:
                    _add(parts, False, self._expression(value, form))
        return " + ".join(json.dumps(text, ensure_ascii=False) if plain else text for plain, text in parts)

    def expression(self, template: str) -> cst.BaseExpression | str:
        """The value of a template; that of an option alone as it stands. Raises _Refused if an option is missing."""
        option = re.fullmatch(r"\{(\w+)\}", template)
        found = self.fill(template) if option is None else self.get(option[1])
        if found is None:
            raise _Refused("")
        return found

    def _expression(self, value: cst.BaseExpression, form: str) -> str:
        code = operand(value)
        if form in ("url", "https"):
            return f"{code}.rstrip('/')"
        if form == "bare":
            return f"{code}.removeprefix('https://').rstrip('/')"
        if form == "host":
            self.imports.add(Name("urlsplit", "urllib.parse"))
            return f"urlsplit({code_of(value)}).netloc"
        if form in ("issuer", "auth0"):
            return f"{code}.removesuffix('{_CONFIGURATION[form == 'auth0' :]}')"
        return code


def _add(parts: list[tuple[bool, str]], plain: bool, text: str) -> None:
    if plain and parts and parts[-1][0]:
        parts[-1] = (True, parts[-1][1] + text)
    else:
        parts.append((plain, text))


def _changed(text: str, form: str) -> str:
    """A literal as a template wants it."""
    if form == "url":
        return text.rstrip("/")
    if form == "https":
        return text.rstrip("/") if "://" in text else f"https://{text.rstrip('/')}"
    if form == "bare":
        return text.partition("://")[2].rstrip("/") if "://" in text else text.rstrip("/")
    if form == "host":
        return urlsplit(text).netloc
    if form in ("issuer", "auth0"):
        return text.removesuffix(_CONFIGURATION[form == "auth0" :])
    return text


def operand(value: cst.BaseExpression) -> str:
    """Return the code of an expression so that a member can follow.

    Args:
        value: The expression.
    """
    simple = isinstance(value, cst.Name | cst.Attribute | cst.Call | cst.Subscript) or value.lpar
    return code_of(value) if simple else f"({code_of(value)})"


class Verifiers(NamedTuple):
    """What is known of the module around a call.

    Attributes:
        full_name: The full name of what is imported.
        is_own: Whether an expression is an instance of a class of the program.
    """

    full_name: Callable[[cst.BaseExpression], str | None]
    is_own: Callable[[cst.BaseExpression], bool]


def is_auth(full_name: str | None) -> bool:
    """Whether a name is that of a class which authorizes the callers of a server of FastMCP."""
    return (
        full_name is not None
        and full_name.startswith(_PREFIX)
        and bool(re.search(r"\.(?:\w+Provider|\w+Verifier|OAuthProxy|OIDCProxy|MultiAuth)$", full_name))
    )


def is_login(full_name: str | None) -> bool:
    """Whether a name is that of a class in front of a provider, so that it has its own login pages."""
    short = (full_name or "").rpartition(".")[2]
    return is_auth(full_name) and (short in _PRESETS or short == "OAuthProxy")


def is_verifier_class(node: cst.ClassDef, full_name: Callable[[cst.BaseExpression], str | None]) -> bool:
    """Whether instances of a class verify tokens by themselves, without what they inherit.

    Args:
        node: The class.
        full_name: The full name of what is imported.
    """
    methods = {part.name.value for part in node.body.body if isinstance(part, cst.FunctionDef)}
    bases = [full_name(base.value) for base in node.bases]
    if (
        "verify_token" not in methods
        or methods & _PROVIDER_METHODS
        or any(base not in TOKEN_VERIFIERS for base in bases)
    ):
        return False
    given = m.Call(m.Attribute(m.Call(m.Name("super"))), args=[m.AtLeastN(n=1)])
    return not m.findall(node, m.Name("required_scopes") | m.Attribute(m.Name("self"), m.Name("base_url")) | given)


def auth_counterpart(call: cst.Call, full_name: str, around: Verifiers) -> Counterpart | str | None:
    """Return what stands for an identity provider or a token verifier of FastMCP.

    Args:
        call: The call of its class.
        full_name: The full name of the class.
        around: What is known of the module.

    Returns:
        The counterpart, or what is in the way; None for anything else.
    """
    if not is_auth(full_name):
        return None
    short = full_name.rpartition(".")[2]
    try:
        if short in _PRESETS:
            return _proxy(call, _PRESETS[short])
        if short in _ISSUERS:
            return _issued(call, short, _ISSUERS[short])
        if short in _CONVERTERS:
            return _CONVERTERS[short](call, around)
    except _Refused as exc:
        return str(exc)
    return ""


def _proxy(call: cst.Call, preset: _Preset) -> Counterpart:
    values = _Values(call)
    values.used |= {*preset.needless, *_IGNORED}
    provider = CallArguments(cst.Call(cst.Name(preset.name)))
    for option, template in preset.options.items():
        provider.set(option, values.expression(template))
    for option in ("client_id", "client_secret"):
        value = values.get(option)
        if value is not None:
            provider.set(option, value)
        elif option == "client_id" or not preset.public:
            raise _Refused(f"{preset.name} needs {option}=")
    proxy = CallArguments(cst.Call(cst.Name("OAuthProxy")))
    base = values.get("base_url")
    if base is None:
        raise _Refused("OAuthProxy needs url=, the public URL of the endpoint")
    proxy.set("url", endpoint(base))
    issuer = values.get("issuer_url")
    text = text_of(issuer or base)
    if text is None or urlsplit(text).path not in ("", "/") or issuer is not None:
        proxy.set("issuer", issuer or base)
    scopes = _scopes(values.get("required_scopes"))
    if scopes:
        _require(provider, proxy, preset, scopes)
    notes = [f"{option} was left out: {text}" for option, text in _LEFT_OUT.items() if option in values.left()]
    values.used |= set(_LEFT_OUT)
    if values.left():
        raise _Refused(f"{values.left()[0]}= has no counterpart that changes by itself")
    proxy.put_first(provider.call())
    imports = (Name("OAuthProxy", _AUTH), Name(preset.name, _AUTH), *values.imports)
    return Counterpart(proxy.call(), imports, "; ".join([_LOGIN_NOTE, *notes]))


def _require(provider: CallArguments, proxy: CallArguments, preset: _Preset, scopes: Sequence[str]) -> None:
    """Scopes that each login needs: the provider is asked for them, and grants them, and tokens of the server have them."""
    if preset.api:
        provider.set("api_scopes", _list([scope for scope in scopes if scope not in _IDENTITY]))
    else:
        asked = [preset.scopes.get(scope, scope) for scope in scopes]
        if preset.openid and "openid" not in asked:
            asked.insert(0, "openid")
        provider.set("scopes", _list(asked))
        checked = [preset.scopes.get(scope, scope) for scope in scopes if scope != "offline_access"]
        if checked:
            proxy.set("provider_scopes", _list(checked))
    proxy.set("required_scopes", _list(scopes))


def _issued(call: cst.Call, short: str, issuer: _Issuer) -> Counterpart:
    values = _Values(call)
    values.used |= {*issuer.needless}
    auth = CallArguments(cst.Call(cst.Name("JWTAuth")))
    issuers = [code for template in issuer.issuers if (code := values.fill(template)) is not None]
    if len(issuers) != len(issuer.issuers):
        raise _Refused("its issuer doesn't follow from these options")
    auth.set("issuer", _one_or_list(issuers))
    base = values.get("base_url")
    scopes = values.arguments.get("required_scopes")
    notes = [note for note in (issuer.note, scopes and issuer.scope_note) if note]
    audience = [values.expression(template) for template in issuer.audience]
    if short == "KeycloakAuthProvider" and (given := values.get("audience")) is not None:
        audience = [given]
    if not audience:
        if base is None:
            raise _Refused("JWTAuth needs audience=, what tokens for this server have as `aud`")
        audience = [endpoint(base)]
        if short == "KeycloakAuthProvider":
            notes.append(_AUDIENCE_NOTE)
    auth.set("audience", _one_or_list(audience))
    algorithm = values.get("algorithm")
    auth.set("algorithms", f'["{issuer.algorithm}"]' if algorithm is None else f"[{code_of(algorithm)}]")
    if base is not None and code_of(auth.get("audience") or base) != endpoint(base):
        auth.set("resource", endpoint(base))
    _common(values, auth, issuer.scopes)
    return Counterpart(auth.call(), (Name("JWTAuth", _AUTH), *values.imports), "; ".join(notes) or None)


def _common(values: _Values, auth: CallArguments, default: Sequence[str] = ()) -> None:
    """Options of all verifiers. Raises _Refused if others are left."""
    given = values.get("required_scopes")
    if given is None:
        if default:
            auth.set("required_scopes", _list(default))
    elif (scopes := _literal_scopes(given)) is not None:
        auth.set("required_scopes", _list(scopes))
    else:
        auth.set("required_scopes", f"{operand(given)} or {_list(default)}")
    for option in _SAME:
        value = values.get(option)
        if value is not None:
            auth.set(option, value)
    if values.left():
        raise _Refused(f"{values.left()[0]}= has no counterpart that changes by itself")


def _verifier(call: cst.Call, around: Verifiers, **given: str) -> Counterpart:
    """`JWTVerifier` with what the provider around it knows: the audience, and the URL of the server."""
    values = _Values(call)
    auth = CallArguments(cst.Call(cst.Name("JWTAuth")))
    issuer, audience, base = (values.get(option) for option in ("issuer", "audience", "base_url"))
    where = given.get("resource") or (None if base is None else endpoint(base))
    notes = []
    if issuer is not None:
        auth.set("issuer", issuer)
    elif "issuer" in given:
        auth.set("issuer", given["issuer"])
        notes.append("tokens must have this issuer in `iss`, which was not checked before")
    else:
        raise _Refused("JWTAuth needs issuer=, what tokens have as `iss`, which was not checked before")
    if audience is not None:
        auth.set("audience", audience)
    elif where is not None:
        auth.set("audience", where)
        notes.append(_AUDIENCE_NOTE)
    else:
        raise _Refused(
            "JWTAuth needs audience=, what tokens for this server have as `aud`, which was not checked before"
        )
    algorithm = values.get("algorithm")
    name = "RS256" if algorithm is None else text_of(algorithm)
    if name is None or name.startswith("HS"):
        raise _Refused("write algorithms=[…]; for a shared secret keys={'kty': 'oct', 'k': …}, a JSON Web Key")
    keys = values.get("jwks_uri") or values.get("public_key")
    values.used |= {"jwks_uri", "public_key", "jwks_refresh_interval"}
    if keys is None or isinstance(issuer, cst.List):
        raise _Refused("with several issuers write keys={issuer: …}")
    auth.set("keys", keys)
    auth.set("algorithms", f'["{name}"]')
    if where is not None and code_of(auth.get("audience") or keys) != where:
        auth.set("resource", where)
    _common(values, auth)
    return Counterpart(auth.call(), (Name("JWTAuth", _AUTH), *values.imports), "; ".join(notes) or None)


def _introspection(call: cst.Call, around: Verifiers, **given: str) -> Counterpart:
    """`IntrospectionTokenVerifier` with the issuer that the provider around it knows."""
    values = _Values(call)
    auth = CallArguments(cst.Call(cst.Name("IntrospectionAuth")))
    base = values.get("base_url")
    where = given.get("resource") or (None if base is None else endpoint(base))
    if "issuer" not in given:
        raise _Refused(
            "write IntrospectionAuth(issuer=…, endpoint=…, audience=…, …), which names the authorization server"
        )
    auth.set("issuer", given["issuer"])
    endpoint_of_issuer, audience = values.get("introspection_url"), values.get("audience")
    if endpoint_of_issuer is None:
        raise _Refused("")
    auth.set("endpoint", endpoint_of_issuer)
    return _asked(values, auth, ("client_id", "client_secret"), None if audience is None else code_of(audience), where)


def _propel(call: cst.Call, around: Verifiers) -> Counterpart:
    values = _Values(call)
    auth = CallArguments(cst.Call(cst.Name("IntrospectionAuth")))
    base, resource = values.get("base_url"), values.get("resource")
    for option, template in {"issuer": "/oauth/2.1", "endpoint": "/oauth/2.1/introspect"}.items():
        code = values.fill("{auth_url:url}" + template)
        if code is None or base is None:
            raise _Refused("")
        auth.set(option, code)
    pair = ("introspection_client_id", "introspection_client_secret")
    assert base is not None
    return _asked(values, auth, pair, None if resource is None else code_of(resource), endpoint(base))


def _asked(
    values: _Values, auth: CallArguments, credentials: tuple[str, str], audience: str | None, where: str | None
) -> Counterpart:
    """What `IntrospectionAuth` is told besides the authorization server. Each request asks, as before."""
    if audience is None and where is None:
        raise _Refused("IntrospectionAuth needs audience=, what tokens for this server have as `aud`")
    auth.set("audience", audience or where or "")
    for option, old in zip(("client_id", "client_secret"), credentials, strict=True):
        value = values.get(old)
        if value is None:
            raise _Refused("")
        auth.set(option, value)
    if where is not None and audience is not None and audience != where:
        auth.set("resource", where)
    cached = values.get("cache_ttl_seconds")
    values.used |= {"timeout_seconds", "max_cache_size"}
    if text_of(values.get("client_auth_method")) not in (None, "client_secret_basic"):
        raise _Refused("IntrospectionAuth sends the secret in the header Authorization")
    auth.set("remember", "0" if cached is None else cached)
    _common(values, auth)
    note = None if audience is not None else _AUDIENCE_NOTE
    return Counterpart(auth.call(), (Name("IntrospectionAuth", _AUTH), *values.imports), note)


def _remote(call: cst.Call, around: Verifiers) -> Counterpart:
    """`RemoteAuthProvider`: a verifier, and where its tokens come from."""
    values = _Values(call, ("token_verifier", "authorization_servers", "base_url", *_SAME[:1]))
    verifier, servers, base = (values.get(name) for name in ("token_verifier", "authorization_servers", "base_url"))
    if verifier is None or base is None or not isinstance(servers, cst.List) or not servers.elements:
        raise _Refused("")
    issuer = unwrapped(servers.elements[0].value)
    inner = verifier
    made = inner.func if isinstance(inner, cst.Call) else None
    short = (around.full_name(made) or "").rpartition(".")[2] if made is not None else ""
    if short in ("JWTVerifier", "IntrospectionTokenVerifier") and isinstance(inner, cst.Call):
        if len(servers.elements) != 1:
            raise _Refused("JWTAuth(issuer=[…]) names the authorization servers")
        convert = _verifier if short == "JWTVerifier" else _introspection
        found = convert(inner, around, issuer=code_of(issuer), resource=endpoint(base))
        auth = CallArguments(found.expression)
        own = auth.get("issuer") or issuer
        if code_of(own) != code_of(issuer) and (text_of(own) or "a").rstrip("/") != (text_of(issuer) or "").rstrip("/"):
            raise _Refused("clients find the issuer of JWTAuth as the authorization server: write issuer=")
        imports, note = found.imports, found.note
    elif around.is_own(verifier):
        auth = CallArguments(cst.Call(cst.Name("TokenAuth")))
        listed = [code_of(unwrapped(element.value)) for element in servers.elements]
        auth.set("authorization_servers", f"[{', '.join(listed)}]")
        auth.set("resource", endpoint(base))
        auth.set("remember", "0")
        auth.put_first(f"{operand(verifier)}.verify_token")
        imports, note = (Name("TokenAuth", _AUTH),), None
    else:
        raise _Refused("")
    _common(values, auth)
    return Counterpart(auth.call(), (*imports, *values.imports), note)


def _static(call: cst.Call, around: Verifiers) -> Counterpart:
    """`StaticTokenVerifier`: a dict of what is known of each token."""
    values = _Values(call, ("tokens", "required_scopes"))
    tokens = values.get("tokens")
    if tokens is None:
        raise _Refused("")
    auth = CallArguments(cst.Call(cst.Name("StaticTokens")))
    _common(values, auth)
    principal = "Principal(data['client_id'], frozenset(data.get('scopes', ())), data, data.get('expires_at'), data['client_id'])"
    auth.put_first(f"{{token: {principal} for token, data in {operand(tokens)}.items()}}")
    return Counterpart(auth.call(), (Name("StaticTokens", _AUTH), Name("Principal")))


_CONVERTERS: dict[str, Callable[[cst.Call, Verifiers], Counterpart]] = {
    "IntrospectionTokenVerifier": _introspection,
    "JWTVerifier": _verifier,
    "PropelAuthProvider": _propel,
    "RemoteAuthProvider": _remote,
    "StaticTokenVerifier": _static,
}


#: The classes that are converted, and the modules of providers that have them.
CLASSES = frozenset({*_PRESETS, *_ISSUERS, *_CONVERTERS})
MODULES = (
    "auth0",
    "aws",
    "azure",
    "clerk",
    "descope",
    "discord",
    "github",
    "google",
    "huggingface",
    "introspection",
    "jwt",
    "keycloak",
    "oci",
    "propelauth",
    "scalekit",
    "supabase",
    "workos",
)


def unwrapped(value: cst.BaseExpression) -> cst.BaseExpression:
    """Return the text in `AnyHttpUrl(…)`, and anything else as it is.

    Args:
        value: The expression.
    """
    if isinstance(value, cst.Call) and len(value.args) == 1 and code_of(value.func).rpartition(".")[2] in _WRAPPERS:
        return value.args[0].value
    return value


def endpoint(base_url: cst.BaseExpression) -> str:
    """Return the code of the URL of the endpoint.

    Args:
        base_url: The base URL of the server.
    """
    text = text_of(base_url)
    if text is not None:
        return f'"{text.rstrip("/")}/mcp"'
    last = base_url.parts[-1] if isinstance(base_url, cst.FormattedString) and base_url.parts else None
    if isinstance(base_url, cst.FormattedString) and isinstance(last, cst.FormattedStringText):
        more = last.with_changes(value=f"{last.value.rstrip('/')}/mcp")
        return code_of(base_url.with_changes(parts=[*base_url.parts[:-1], more]))
    return f"{operand(base_url)}.rstrip('/') + '/mcp'"


def _scopes(value: cst.BaseExpression | None) -> list[str]:
    scopes = [] if value is None else _literal_scopes(value)
    if scopes is None:
        raise _Refused(
            "the scopes are needed as scopes= and provider_scopes=, and those of the server as required_scopes="
        )
    return scopes


def _literal_scopes(value: cst.BaseExpression) -> list[str] | None:
    """The scopes of a list of texts, or of one text; None for other expressions."""
    text = text_of(value)
    if text is not None:
        return [scope for scope in re.split(r"[ ,]+", text) if scope]
    if not m.matches(value, m.List() | m.Tuple()):
        return None
    texts = [text_of(element.value) for element in value.elements]  # type: ignore[attr-defined]  # matched
    return None if None in texts else texts  # type: ignore[return-value]  # None is not in it


def _list(texts: Sequence[str]) -> str:
    return json.dumps(list(texts), ensure_ascii=False)


def _one_or_list(values: Sequence[cst.BaseExpression | str]) -> cst.BaseExpression | str:
    codes = [value if isinstance(value, str) else code_of(value) for value in values]
    return values[0] if len(values) == 1 else f"[{', '.join(codes)}]"
