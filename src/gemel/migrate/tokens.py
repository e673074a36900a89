"""Access tokens, and what verifies them: as `Principal` and `TokenAuth` of Gemel."""

from __future__ import annotations

from typing import NamedTuple

import libcst as cst

from gemel.migrate import names
from gemel.migrate.arguments import CallArguments, code_of, is_name, text_of
from gemel.migrate.authorization import endpoint, is_auth, operand, unwrapped
from gemel.migrate.bindings import Bindings
from gemel.migrate.names import Name
from gemel.migrate.rewrite_state import RewriteState

_TOKEN_AUTH = Name("TokenAuth", "gemel.auth")
#: Parameters of `AccessToken`; the token itself and the resource are for the verifier only.
_FIELDS = ("token", "client_id", "scopes", "expires_at", "resource", "subject", "claims")
_CALLER = "current_context().caller"
_TOKEN_NOTE = (
    ".token: ctx.headers['authorization'] has the token that was sent; that of the provider is "
    "`await auth.upstream_token(ctx.claims['grant'])` of OAuthProxy"
)
_CLIENT_NOTE = (
    ".client_id: .client is the client; where FastMCP's providers wrote the id of the user there, that is .name"
)


class Rewritten(NamedTuple):
    """An expression, and what is imported for it."""

    expression: cst.BaseExpression
    imports: tuple[Name, ...] = ()


class AccessTokens:
    """The part of the second pass that is about access tokens and what verifies them.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings

    def attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, owner: str | None
    ) -> cst.BaseExpression | None:
        """Return an attribute of an access token as that of the caller; None for any other."""
        if owner != "access token":
            return None
        name = original_node.attr.value
        if name == "client_id" and self._state.fastmcp:
            self._state.note(original_node, _CLIENT_NOTE)
        found = token_attribute(updated_node)
        if found is None:
            self._state.note(
                original_node, _TOKEN_NOTE if name == "token" else f".{name}: a Principal has no such member"
            )
        return found or updated_node

    def imported_call(
        self, original_node: cst.Call, updated_node: cst.Call, full_name: str
    ) -> cst.BaseExpression | None:
        """Return a call that makes or gets an access token as that of Gemel; None for any other."""
        if full_name in names.CALLER and not updated_node.args:
            self._state.imports.add(Name("current_context"))
            return cst.parse_expression(_CALLER)
        if full_name not in names.ACCESS_TOKENS:
            return None
        made = principal(updated_node)
        if made is None:
            self._state.note(
                original_node,
                "AccessToken(…): write Principal(name, scopes=frozenset(…), claims=…, expires=…, client=…)",
            )
        return made or updated_node

    def annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation | None:
        """Return the annotation of what authorizes by the class of all of them; None for any other."""
        inner = original_node.annotation
        if not is_auth(self._bindings.imported(inner)):
            return None
        self._state.drop(inner)
        self._state.imports.add(_TOKEN_AUTH)
        return updated_node.with_changes(annotation=cst.Name(_TOKEN_AUTH.name))

    def verifier(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef | None:
        """Return a class that verifies tokens, without its base; None for any other."""
        if original_node.name.value not in self._bindings.verifiers or not original_node.bases:
            return None
        self._state.drop(original_node.bases[0])
        parentheses = cst.MaybeSentinel.DEFAULT
        return updated_node.with_changes(bases=[], lpar=parentheses, rpar=parentheses)


def principal(call: cst.Call) -> cst.Call | None:
    """Return the `Principal` for an `AccessToken`; None if its arguments are not known.

    Args:
        call: The call of the class, whose name was rewritten already.
    """
    arguments = CallArguments(call)
    client, scopes, subject = (arguments.get(name) for name in ("client_id", "scopes", "subject"))
    if arguments.starred or client is None or scopes is None or set(arguments.names()) - set(_FIELDS):
        return None
    claims, expires = arguments.get("claims"), arguments.get("expires_at")
    made = CallArguments(cst.Call(call.func))
    if subject is None or is_name(subject, "None"):
        made.put_first(client)
    else:
        known = "" if claims is None else f"**({code_of(claims)} or {{}}), "
        claims = cst.parse_expression(f"{{{known}'sub': {code_of(subject)}}}")
        made.put_first(subject if text_of(subject) else f"{operand(subject)} or {operand(client)}")
    made.set("scopes", f"frozenset({code_of(scopes)})")
    if claims is not None:
        made.set("claims", claims)
    if expires is not None:
        made.set("expires", expires)
    made.set("client", client)
    return made.call()


def token_attribute(node: cst.Attribute) -> cst.BaseExpression | None:
    """Return what an attribute of an access token is of the caller; None if there is nothing like it.

    Args:
        node: The attribute.
    """
    name = node.attr.value
    if name in names.TOKEN_FIELDS:
        return node.with_changes(attr=cst.Name(names.TOKEN_FIELDS[name]))
    if name == "scopes":
        return cst.Call(cst.Name("sorted"), [cst.Arg(node)])
    if name == "subject":
        return cst.parse_expression(f"{code_of(node.value)}.claims.get('sub')")
    return None


def injected_token(default: cst.Call, full_name: str) -> str | None:
    """Return the code of a function for `Depends` that gives what a dependency of FastMCP gave.

    Args:
        default: The call of the dependency.
        full_name: The full name of what is called.
    """
    if full_name.endswith("CurrentAccessToken"):
        return f"lambda: Principal(*{_CALLER})"  # fails without one, as before
    claim = default.args[0].value if len(default.args) == 1 else None
    return None if claim is None else f"lambda: str(current_context().claims[{code_of(claim)}])"


def verifier_auth(
    bindings: Bindings, verifier: cst.BaseExpression, original: cst.BaseExpression, settings: cst.BaseExpression | None
) -> Rewritten | str:
    """Return `TokenAuth` for `token_verifier=…` and `auth=AuthSettings(…)` of the official SDK, or what is in the way.

    Args:
        bindings: What the expressions of the module refer to.
        verifier: The verifier, rewritten.
        original: The verifier as it was.
        settings: The settings as they were.
    """
    if not bindings.verifies(original):
        return "TokenAuth takes a function `async def verify(token) -> Principal | None`"
    if not isinstance(settings, cst.Call) or bindings.imported(settings.func) not in names.AUTH_SETTINGS:
        return "TokenAuth has the options of AuthSettings: authorization_servers=, resource=, required_scopes="
    given = CallArguments(settings)
    issuer, resource = given.pop("issuer_url"), given.pop("resource_server_url")
    scopes, documentation = given.pop("required_scopes"), given.pop("service_documentation_url")
    if is_name(given.get("validate_token_resource"), "False"):
        given.pop("validate_token_resource")
    if given.starred or given.names() or issuer is None:
        return f"AuthSettings({', '.join(given.names())}=…): let the verifier check what it says, see docs/authorization.md"
    auth = CallArguments(cst.Call(cst.Name("TokenAuth")))
    auth.set("authorization_servers", f"[{code_of(unwrapped(issuer))}]")
    for option, value in (
        ("resource", resource),
        ("resource_documentation", documentation),
        ("required_scopes", scopes),
    ):
        if value is not None and not is_name(value, "None"):
            auth.set(option, unwrapped(value))
    return _verified(auth, verifier)


def own_verifier_auth(bindings: Bindings, auth: cst.BaseExpression, original: cst.BaseExpression) -> Rewritten | None:
    """Return `TokenAuth` for a token verifier of the program that is `auth=` of FastMCP; None for other values.

    Args:
        bindings: What the expressions of the module refer to.
        auth: The value, rewritten.
        original: The value as it was.
    """
    if not bindings.verifies(original):
        return None
    made = CallArguments(cst.Call(cst.Name("TokenAuth")))
    if isinstance(auth, cst.Call):
        given = CallArguments(auth)
        base, scopes = given.pop("base_url"), given.pop("required_scopes")
        if base is not None:
            made.set("resource", endpoint(unwrapped(base)))
        if scopes is not None:
            made.set("required_scopes", scopes)
        auth = given.call()
    return _verified(made, auth)


def _verified(auth: CallArguments, verifier: cst.BaseExpression) -> Rewritten:
    """Each request is verified, as before: nothing is remembered."""
    auth.set("remember", "0")
    auth.put_first(f"{operand(verifier)}.verify_token")
    return Rewritten(auth.call(), (_TOKEN_AUTH,))


def state_keys(bindings: Bindings, security: cst.BaseExpression | None) -> str | None:
    """Return the code of `state_keys=` for `RequestStateSecurity(keys=[…])`; None if they can't be told.

    Args:
        bindings: What the expressions of the module refer to.
        security: The value of `request_state_security=`.
    """
    if not isinstance(security, cst.Call) or not (bindings.imported(security.func) or "").endswith(
        ".RequestStateSecurity"
    ):
        return None
    arguments = CallArguments(security)
    keys = arguments.pop("keys")
    if arguments.starred or arguments.names() or not isinstance(keys, cst.List):
        return None
    codes = [_bytes(bindings, element.value) for element in keys.elements]
    return None if None in codes else f"[{', '.join(map(str, codes))}]"


def _bytes(bindings: Bindings, key: cst.BaseExpression) -> str | None:
    """The code of a key as bytes; None if it is not known whether it is a text."""
    code = code_of(key)
    if isinstance(key, cst.SimpleString):
        return code if isinstance(key.evaluated_value, bytes) else f"{code}.encode()"
    if code.startswith(("os.environ[", "os.getenv(", "os.environ.get(")):
        return f"{operand(key)}.encode()"
    if code.startswith(("secrets.token_bytes(", "os.urandom(", "bytes.fromhex(", "base64.")):
        return code
    annotated = bindings.annotation(key) if isinstance(key, cst.Name) else None
    return {"str": f"{code}.encode()", "bytes": code}.get(annotated or "")
