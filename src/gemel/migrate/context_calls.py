"""What handlers do with their context: its attributes and calls, those of its session, and what is read through it."""

from __future__ import annotations

import libcst as cst
import libcst.matchers as m

from gemel.migrate import advice, names
from gemel.migrate.arguments import CallArguments, code_of, is_name, member_of
from gemel.migrate.keywords import rename_keywords
from gemel.migrate.names import Name
from gemel.migrate.rewrite_state import RewriteState
from gemel.migrate.written import DECLARES
from gemel.server.context import Context

_LOGS = ("debug", "info", "warning", "error")
#: What the request context of the official SDK has, and the context of Gemel itself.
_REQUEST_CONTEXT = {"lifespan_context": "state", "request_id": "request_id"}
#: Members of sessions of the official SDK that contexts of Gemel have.
_SESSION_MEMBERS = {"client_capabilities": "client_capabilities", "send_elicit_complete": "complete_elicitation"}
_RENAMED_MEMBERS = {"params": "decoded_params", "close_sse_stream": "close_stream"}
#: Methods of FastMCP's context that keep values, and those of `ctx.session_state`.
_STATE = {"get_state": "get", "set_state": "set", "delete_state": "delete"}
_STATE_NOTE = (
    "ctx.session_state keeps JSON values for the session of a handshake client; a stateless client has none, which is "
    "gemel.NoSession: see docs/servers/state.md"
)
#: Members of contexts that are rewritten.
_CONTEXT_CALLS = frozenset({*_STATE, "params", "close_sse_stream", "lifespan_context", "request_context", "fastmcp"})
_SAMPLES = m.Attribute(value=m.Attribute(attr=m.Name("session")), attr=m.Name("create_message"))
_CHECKS = m.Attribute(value=m.Attribute(attr=m.Name("session")), attr=m.Name("check_client_capability"))
#: A form without fields.
_NO_FIELDS = '{"type": "object", "properties": {}}'


class ContextCalls:
    """The part of the second pass that is about contexts.

    Args:
        state: What the parts of the pass share.
    """

    def __init__(self, state: RewriteState) -> None:
        self._state = state
        self._bindings = state.bindings
        #: `ctx.session.client_capabilities` and the like.
        self._of_sessions: set[cst.CSTNode] = set()
        #: `ctx.session.create_message(…)`, and `ctx.session.check_client_capability(…)`.
        self._sampling: set[cst.CSTNode] = set()
        self._checked: set[cst.CSTNode] = set()
        #: Awaited notices of changes, with the server that gives them.
        self._notices: dict[cst.CSTNode, str] = {}
        #: The calls that are awaited.
        self._awaited: set[cst.CSTNode] = set()
        #: Whether it was noted what the state of a session is.
        self._noted_state = False

    # ---------------------------------------------------------------- before anything is rewritten

    def enter_call(self, node: cst.Call) -> None:
        """Find the calls of a session."""
        checks = m.matches(node.func, _CHECKS) and len(node.args) == 1 and "declares" not in self._state.defined
        if not checks and not m.matches(node.func, _SAMPLES):
            return
        session = cst.ensure_type(cst.ensure_type(node.func, cst.Attribute).value, cst.Attribute)
        if self._bindings.kind(session.value) == "context":
            (self._checked if checks else self._sampling).add(node)
            self._state.replaced_members.add(session)

    def enter_await(self, node: cst.Await) -> None:
        """Find awaited calls, and notices of changes among them."""
        call = node.expression
        self._awaited.add(call)
        if not isinstance(call, cst.Call) or not isinstance(call.func, cst.Attribute):
            return
        if call.func.attr.value not in names.NOTICES:
            return
        owner = call.func.value
        through = isinstance(owner, cst.Attribute) and owner.attr.value == "session"
        context = owner.value if isinstance(owner, cst.Attribute) and through else owner
        servers = [name for name, kind in self._bindings.members().items() if kind == "server"]
        if len(servers) == 1 and self._bindings.kind(context) == "context":
            self._notices[node] = servers[0]
            self._state.replaced_members.add(owner if through else call.func)

    def enter_attribute(self, node: cst.Attribute) -> None:
        """Find attributes of sessions and request contexts; note those that Gemel's contexts lack."""
        inner = node.value
        if (
            isinstance(inner, cst.Attribute)
            and inner.attr.value == "session"
            and node.attr.value in _SESSION_MEMBERS
            and self._bindings.kind(inner.value) == "context"
        ):
            self._of_sessions.add(node)
            self._state.replaced_members.add(inner)
        elif (
            isinstance(inner, cst.Attribute)
            and inner.attr.value == "session"
            and node.attr.value in advice.SESSION_MEMBERS
            and self._bindings.kind(inner.value) == "context"
        ):
            self._state.note(node, f"ctx.session.{node.attr.value}: {advice.SESSION_MEMBERS[node.attr.value]}")
            self._state.replaced_members.add(inner)
        if m.matches(inner, m.Attribute(attr=m.Name("request_context"))):
            assert isinstance(inner, cst.Attribute)
            if self._bindings.kind(inner.value) == "context" and node.attr.value not in _REQUEST_CONTEXT:
                self._state.note(
                    node, f"ctx.request_context.{node.attr.value}: {advice.CONTEXT_MEMBERS['request_context']}"
                )

    # ---------------------------------------------------------------- attributes

    def attribute(
        self, original_node: cst.Attribute, updated_node: cst.Attribute, owner: str | None
    ) -> cst.BaseExpression | None:
        """Return an attribute of a context, or of what was read through it, as that of Gemel; None for any other."""
        name, through = original_node.attr.value, original_node.value
        if (
            isinstance(through, cst.Attribute)
            and through.attr.value == "request_context"
            and self._bindings.kind(through.value) == "context"
            and name in _REQUEST_CONTEXT
        ):
            assert isinstance(updated_node.value, cst.Attribute)
            return updated_node.value.with_changes(attr=cst.Name(_REQUEST_CONTEXT[name]))
        if original_node in self._of_sessions:
            assert isinstance(updated_node.value, cst.Attribute)
            return updated_node.with_changes(value=updated_node.value.value, attr=cst.Name(_SESSION_MEMBERS[name]))
        if owner == "context":
            return self._context_attribute(original_node, updated_node)
        if owner == "own contents" and name == "contents":
            return updated_node
        if owner == "own content" and name == "content":
            return updated_node.with_changes(attr=cst.Name("text"))
        return self._own_contents(original_node, updated_node)

    def _context_attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:
        name = original_node.attr.value
        if name == "lifespan_context":
            return updated_node.with_changes(attr=cst.Name("state"))
        if name in ("params", "close_sse_stream"):
            return updated_node.with_changes(attr=cst.Name(_RENAMED_MEMBERS[name]))
        if name in _STATE:
            if not self._noted_state:
                self._noted_state = True
                self._state.note(original_node, _STATE_NOTE)
            context = updated_node.value if self._state.in_async else member_of(updated_node.value, "sync")
            return updated_node.with_changes(value=member_of(context, "session_state"), attr=cst.Name(_STATE[name]))
        if name in advice.CONTEXT_MEMBERS and name != "request_context":
            self._state.note(original_node, f"ctx.{name}: {advice.CONTEXT_MEMBERS[name]}")
        elif name not in _CONTEXT_CALLS and not hasattr(Context, name):
            self._state.note(
                original_node, f"ctx.{name}: Gemel's Context has no such member; see docs/servers/context.md"
            )
        return updated_node

    def _own_contents(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression | None:
        """`(await ctx.read_resource(uri))[0].content` and `….contents[0].content` as `….contents[0].text`."""
        first = original_node.value
        if original_node.attr.value != "content" or not isinstance(first, cst.Subscript):
            return None
        assert isinstance(updated_node.value, cst.Subscript)
        listed = first.value
        if isinstance(listed, cst.Attribute) and listed.attr.value == "contents":
            if self._bindings.kind(listed.value) == "own contents":
                return updated_node.with_changes(attr=cst.Name("text"))
        elif self._bindings.kind(listed) == "own contents":
            contents = cst.Attribute(updated_node.value.value, cst.Name("contents"))
            return cst.Attribute(updated_node.value.with_changes(value=contents), cst.Name("text"))
        return None

    def unpacked(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign | None:
        """Return an assignment that unpacks what was read through a context; None for any other."""
        if not any(isinstance(target.target, cst.List | cst.Tuple) for target in original_node.targets):
            return None
        if self._bindings.kind(original_node.value) != "own contents":
            return None
        return updated_node.with_changes(value=member_of(updated_node.value, "contents"))

    # ---------------------------------------------------------------- calls

    def imported_call(
        self, original_node: cst.Call, updated_node: cst.Call, full_name: str
    ) -> cst.BaseExpression | None:
        """Return `get_http_headers()` as an attribute of the context; None for other calls."""
        if full_name not in names.HEADERS or updated_node.args:
            return None
        self._state.imports.add(Name("current_context"))
        return cst.parse_expression("current_context().headers")

    def call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression | None:
        """Return a call of a context or its session as that of Gemel; None for any other."""
        if original_node in self._sampling:
            return self._sample(updated_node)
        if original_node in self._checked:
            return self._declares(updated_node)
        if m.matches(original_node.func, m.Name("list")) and self._bindings.kind(original_node) == "own contents":
            return updated_node.args[0].value
        if not isinstance(original_node.func, cst.Attribute):
            return None
        if self._bindings.kind(original_node.func.value) != "context":
            return None
        return self._context_call(original_node, updated_node, original_node.func.attr.value)

    def _context_call(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.BaseExpression:
        if method in (*_LOGS, "log"):
            return self._log(original_node, updated_node, method)
        if method in _STATE:
            return self._session_state(original_node, updated_node, method)
        if method in ("elicit", "elicit_url"):
            return self._elicit(original_node, updated_node, method)
        if method == "sample":
            arguments = CallArguments(updated_node, ("messages", "system_prompt"))
            arguments.name_all_but(1)
            rename_keywords(self._state, original_node, arguments, "ctx.sample")
            return arguments.call()
        return updated_node

    def _sample(self, call: cst.Call) -> cst.Call:
        """`ctx.session.create_message(…)` as `ctx.sample(…)`, which has its keywords."""
        arguments = CallArguments(call, ("messages",))
        arguments.pop("related_request_id")  # it belongs to the call that is running
        session = cst.ensure_type(cst.ensure_type(call.func, cst.Attribute).value, cst.Attribute)
        return arguments.call().with_changes(func=session.with_changes(attr=cst.Name("sample")))

    def _declares(self, call: cst.Call) -> cst.Call:
        """`ctx.session.check_client_capability(…)` as a call of a function that is written out."""
        session = cst.ensure_type(cst.ensure_type(call.func, cst.Attribute).value, cst.Attribute)
        declared = cst.Arg(session.with_changes(attr=cst.Name("client_capabilities")))
        self._state.written_for_calls = [DECLARES]
        plain = call.args[0].with_changes(keyword=None, equal=cst.MaybeSentinel.DEFAULT)
        return call.with_changes(func=cst.Name("declares"), args=[declared, plain])

    def notice(self, original_node: cst.Await, updated_node: cst.Await) -> cst.BaseExpression | None:
        """Return `await ctx.session.send_resource_updated(uri)` and the like as `server.notify(Changed("resource", uri))`."""
        server = self._notices.get(original_node)
        if server is None:
            return None
        call = cst.ensure_type(updated_node.expression, cst.Call)
        kind = names.NOTICES[cst.ensure_type(call.func, cst.Attribute).attr.value]
        self._state.imports.add(Name("Changed"))
        uri = "".join(f", str({code_of(argument.value)})" for argument in call.args)
        return cst.parse_expression(f'{server}.notify(Changed("{kind}"{uri}))')

    def _elicit(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        """A question to the user, in a form or on a page."""
        if method == "elicit_url":
            arguments = CallArguments(updated_node, ("message", "url", "elicitation_id"))
        else:
            arguments = CallArguments(updated_node, ("message", "form"))
        rename_keywords(self._state, original_node, arguments, f"ctx.{method}")
        if method == "elicit":
            self._form(original_node, arguments)
        if not self._state.declining:
            answer = "the answer itself" if method == "elicit" else "nothing"
            self._state.note(original_node, f"ctx.{method}() returns {answer}, and raises gemel.Declined without one")
        return arguments.call()

    def _form(self, node: cst.Call, arguments: CallArguments) -> None:
        """A list of choices as a `Literal`; no form, which the user only accepts, as one without fields."""
        form = arguments.get("form")
        texts = form.elements if isinstance(form, cst.List) else ()
        if texts and all(isinstance(element.value, cst.SimpleString) for element in texts):
            arguments.replace("form", cst.parse_expression(f"Literal[{code_of(cst.List(texts))[1:-1]}]"))
            self._state.imports.add(Name("Literal", "typing"))
        elif isinstance(form, cst.List | cst.Dict):
            self._state.note(
                node, "ctx.elicit(…): write the choices as Literal[…], several of them as list[Literal[…]]"
            )
        elif form is None and not arguments.starred:
            arguments.set("form", _NO_FIELDS)
        elif is_name(form, "None"):
            arguments.replace("form", cst.parse_expression(_NO_FIELDS))

    def _session_state(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.BaseExpression:
        """FastMCP 2 doesn't await these methods, also in async functions."""
        arguments = CallArguments(updated_node, ("key", "value"))
        if arguments.pop("serializable") is not None:
            self._state.note(
                original_node,
                f"ctx.{method}(serializable=…) was left out: keep what is not JSON for one request in a ContextVar",
            )
        call = arguments.call()
        if original_node in self._awaited or not self._state.in_async:
            return call
        return cst.Await(call, lpar=[cst.LeftParen()], rpar=[cst.RightParen()])

    def _log(self, original_node: cst.Call, updated_node: cst.Call, method: str) -> cst.Call:
        """Message first and without a name; `log` has the level first."""
        rest = ("logger_name", "extra")
        if method != "log":
            arguments = CallArguments(updated_node, ("message", *rest))
        elif self._state.fastmcp:
            arguments = CallArguments(updated_node, ("message", "level", *rest))
        else:
            arguments = CallArguments(updated_node, ("level", "message"))
        rename_keywords(self._state, original_node, arguments, f"ctx.{method}")
        message, level = arguments.pop("message") or arguments.pop("data"), arguments.pop("level")
        if arguments.starred or message is None:
            self._state.note(
                original_node, f"ctx.{method}: its parameters are {'level, ' if method == 'log' else ''}data, logger="
            )
            return updated_node
        arguments.put_first(message)
        if method == "log":
            arguments.put_first(level if level is not None else '"info"')
        return arguments.call()

    # ---------------------------------------------------------------- annotations

    def annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        """Return `Context[ServerSession, State]` as `Context[State]`; any other annotation as it is."""
        inner = original_node.annotation
        if isinstance(inner, cst.Subscript) and self._bindings.kind_of_annotation(inner.value) == "context":
            assert isinstance(updated_node.annotation, cst.Subscript)
            slices = updated_node.annotation.slice
            if len(slices) > 1:
                self._state.drop(inner)
                last = slices[1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
                return updated_node.with_changes(annotation=updated_node.annotation.with_changes(slice=[last]))
        return updated_node
