"""The example servers that come with the official Python SDK's source: how each is started, what is to be done with it.

Those about authorization and those that need no client over a wire are left out. Data only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.interop.plans import FORMS, Plan, step


@dataclass(frozen=True)
class Story:
    """One example: a server by the high-level API for HTTP, and if there is one, by the low-level API for stdio.

    `app` examples bring their own HTTP application, and no stdio. `path` is the endpoint's.
    """

    plans: Mapping[str, Plan]
    app: bool = False
    has_low: bool = True
    path: str = "mcp"

    def command(self, python: str, name: str, transport: str) -> list[str] | None:
        """The command line, None where the example doesn't have the transport."""
        if transport == "http":
            serving = [] if self.app else ["--http"]
            return [python, "-m", f"stories.{name}.server", *serving, "--port", "PORT"]
        if self.app:
            return None
        return [python, "-m", f"stories.{name}.server{'_lowlevel' if self.has_low else ''}"]


def both(plan: Plan) -> dict[str, Plan]:
    """The same in both eras."""
    return {"2025": plan, "2026": plan}


def greeting(text: str) -> Plan:
    """What the examples of hosting offer: one tool that greets."""
    return {
        "list_tools": step("items", "tools", names=["greet"]),
        "text": step("call", "greet", {"name": "Ada"}, text=text, is_error=False),
    }


ADA = {"name": "Ada", "title": "colleague"}
_PERSON = "Hello Ada, my colleague"
_SCOPE = "ORD-7002 has several items (enamel-mug, canvas-tote, sticker-pack). Refund the whole order, or one SKU?"
_RESTOCK = "The refund includes physical items (enamel-mug, canvas-tote). Return them to stock?"
FORMS |= {
    "Deploy to production?": {"confirm": True},
    "Please provide your registration details:": {"username": "ada", "plan": "pro"},
    _SCOPE: {"full": True},
    _RESTOCK: {"restock": True},
    "Remove all 1 note(s)? This cannot be undone.": {"confirm": True},
}

TOOLS: Plan = {
    "list_tools": step("items", "tools", names=["calc", "echo"]),
    "structured": step(
        "call", "calc", {"op": "add", "a": 2, "b": 3}, structured={"op": "add", "result": 5.0}, is_error=False
    ),
    "text": step("call", "echo", {"text": "hé"}, text="hé", structured=None),
}

PROMPTS: Plan = {
    "prompts": step("items", "prompts", names=["greet", "code_review"]),
    "prompt": step("prompt", "greet", {"name": "Ada"}, messages=[{"role": "user", "text": "Ada"}]),
    "prompt_all": step(
        "prompt",
        "code_review",
        {"language": "rust", "code": "fn main() {}"},
        messages=[{"role": "user", "text": "fn main() {}"}, {"role": "assistant"}],
    ),
    "complete_argument": step("complete", {"prompt": "code_review"}, "language", "py", values=["python", "pytorch"]),
}

RESOURCES: Plan = {
    "resources": step("items", "resources", names=["config://app"]),
    "templates": step("items", "templates", names=["greeting://{name}"]),
    "read_text": step("read", "config://app", contents=[{"mimeType": "application/json", "json": {"feature": True}}]),
    "read_template": step("read", "greeting://world", contents=[{"text": "Hello, world!"}]),
}

STREAMING: Plan = {
    "progress": step("progress", "countdown", {"steps": 3}, steps=3, structured={"completed": 3, "total": 3}),
    "cancel": step("cancel", "countdown", {"steps": 10_000_000}),
    "afterwards": step("call", "countdown", {"steps": 1}, structured={"completed": 1, "total": 1}),
}
_LEVELS = ["info"] * 3

REFUND: Plan = {
    "list_tools": step("items", "tools", names=["refund_order"]),
    "structured": step(
        "ask",
        "refund_order",
        {"order_id": "ORD-7001", "reason": "broken"},
        structured={"order_id": "ORD-7001", "refunded_cents": 1500, "restocked": False, "reason": "broken"},
        asked=[],
    ),
    "rounds": step(
        "ask",
        "refund_order",
        {"order_id": "ORD-7002", "reason": "late"},
        structured={"order_id": "ORD-7002", "refunded_cents": 4800, "restocked": True, "reason": "late"},
        asked=["form", "form"],
    ),
    "error": step("ask", "refund_order", {"order_id": "ORD-9", "reason": "x"}, is_error=True, text="unknown order"),
}

STICKYNOTES: Plan = {
    "add": step("call", "add_note", {"text": "milk"}, structured={"id": "1", "uri": "note:///1"}),
    "add_another": step("call", "add_note", {"text": "dog"}, structured={"id": "2", "uri": "note:///2"}),
    "resources": step("items", "resources", names=["note:///1", "note:///2"]),
    "read_text": step("read", "note:///1", contents=[{"text": "milk"}]),
    "remove": step("call", "remove_note", {"note_id": "1"}, is_error=False),
}
STICKYNOTES_ASKING: Plan = {
    "elicit": step("ask", "remove_all", {}, structured={"status": "cleared", "removed": 1}, asked=["form"]),
    "watch": step("watch", None, None, {"resources": ["add_note", {"text": "again"}]}, heard=[["resources", None]]),
}

SEARCH = {"query": "mcp", "limit": 3}
FOUND = {"items": ["mcp-0", "mcp-1", "mcp-2"]}

EXTENSIONS: Plan = {
    "list_tools": step("items", "tools", names=["suggest"]),
    "text": step("call", "suggest", {"prefix": "mcp"}, text="mcp-suggestion"),
    "custom": step("request", "com.example/search", SEARCH, result=FOUND),
}

APPS: Plan = {
    "list_tools": step("items", "tools", names=["get_time"]),
    "read_text": step("read", "ui://get-time/app.html", contents=[{"mimeType": "text/html;profile=mcp-app"}]),
    "text": step("call", "get_time", {}, text="2026-06-26T00:00:00Z"),
}

PEOPLE: Plan = {
    "list_tools": step("items", "tools", names=["greet_pydantic", "greet_typeddict", "greet_dataclass", "greet_dict"]),
    "model": step("call", "greet_pydantic", {"who": ADA}, text=_PERSON),
    "typed_dict": step("call", "greet_typeddict", {"who": ADA}, text=_PERSON),
    "dataclass": step("call", "greet_dataclass", {"who": ADA}, text=_PERSON),
    "dict": step("call", "greet_dict", {"who": {"name": "Ada"}}, text="Hello Ada, my friend"),
}

MEETING: Plan = {
    "concurrent": step(
        "concurrent",
        [["meet", {"tag": tag, "party": ["a", "b", "c"]}] for tag in ("a", "b", "c")],
        answered=True,
    ),
}

ERRORS: Plan = {
    "text": step("call", "divide", {"a": 6, "b": 2}, text="3.0", is_error=False),
    "error": step("call", "divide", {"a": 1, "b": 0}, text="cannot divide by zero", is_error=True),
    "refused": step("call", "restricted", {}, code=-32602),
}

MRTR: Plan = {
    "elicit": step("ask", "deploy", {"env": "production"}, text="deployed to production", asked=["form"]),
    "decline": step("ask", "deploy", {"env": "staging"}, text="deployment to staging cancelled", asked=["form"]),
    "forged": step(
        "request",
        "tools/call",
        {"name": "deploy", "arguments": {"env": "x"}, "requestState": "forged", "inputResponses": {}},
        code=-32602,
    ),
}

LEGACY_ELICITATION: Plan = {
    "elicit": step("ask", "register_user", {}, text="registered ada (plan: pro)", asked=["form"]),
    "url": step("ask", "link_account", {"provider": "github"}, text="linked github", asked=["url"]),
}

SAMPLING: Plan = {
    "sample": step("ask", "summarize", {"text": "words"}, text="thought of Summarize in one", asked=["sample"]),
}

ROOTS: Plan = {"roots": step("ask", "show_roots", {}, roots=True, asked=["roots"])}

SUBSCRIPTIONS: Plan = {
    "watch": step(
        "watch",
        "note://todo",
        ["edit_note", {"name": "todo", "text": "water plants"}],
        {"tools": ["enable_search", {}]},
        heard=[["resource", "note://todo"], ["tools", None]],
    ),
    "list_tools": step("items", "tools", names=["search"]),
}

POLLING: Plan = {
    "progress": step(
        "progress", "long_operation", {}, text="resumed", told=[[0.5, 1.0, "before-close"], [1.0, 1.0, "after-close"]]
    ),
}

STANDALONE: Plan = {
    "watch": step("watch", None, None, {"resources": ["add_note", {"content": "x"}]}, heard=[["resources", None]]),
    "resources": step("items", "resources", names=["note://initial", "note://note-1"]),
}

WORDS = [f"word://{word}" for word in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta")]


def _era_of(name: str, tool: str, arguments: dict[str, Any]) -> dict[str, Plan]:
    """A tool that tells the era of its caller."""
    said = {"2025": "legacy", "2026": "modern"}
    return {
        era: {
            "list_tools": step("items", "tools", names=[name]),
            "text": step("call", tool, arguments, text=word, is_error=False),
        }
        for era, word in said.items()
    }


STORIES = {
    "tools": Story(both(TOOLS)),
    "prompts": Story(both(PROMPTS)),
    "resources": Story(both(RESOURCES)),
    "lifespan": Story(both({"text": step("call", "lookup", {"key": "beta"}, text="two")})),
    "dual_era": Story(_era_of("greet", "greet", {"name": "Ada"})),
    "streaming": Story(
        {
            # It logs without offering the capability: the level is refused, and none is held to.
            "2025": {
                "logging": step("logging", "countdown", {"steps": 3}, "info", levels=_LEVELS, level_refused=True),
                **STREAMING,
            },
            "2026": {"logging": step("logging", "countdown", {"steps": 3}, "info", levels=_LEVELS), **STREAMING},
        }
    ),
    "mrtr": Story({"2026": MRTR}),
    "legacy_elicitation": Story({"2025": LEGACY_ELICITATION}),
    "refund_desk": Story(both(REFUND), has_low=False),
    "sampling": Story({"2025": SAMPLING}),
    "stickynotes": Story({"2025": {**STICKYNOTES, **STICKYNOTES_ASKING}, "2026": STICKYNOTES}),
    "custom_methods": Story(both({"custom": step("request", "acme/search", SEARCH, result=FOUND)}), has_low=False),
    "apps": Story(both(APPS), has_low=False),
    "extensions": Story(both(EXTENSIONS), has_low=False),
    "subscriptions": Story({"2026": SUBSCRIPTIONS}),
    "schema_validators": Story(both(PEOPLE)),
    "middleware": Story(
        both(
            {
                "list_tools": step("items", "tools", names=["audit_log"]),
                "text": step("call", "audit_log", {}, text='"tools/list:done", "tools/call"'),
            }
        ),
        has_low=False,
    ),
    "parallel_calls": Story(both(MEETING)),
    "roots": Story({"2025": ROOTS}),
    "pagination": Story(both({"resources": step("items", "resources", names=WORDS)})),
    "error_handling": Story(both(ERRORS)),
    "stateless_legacy": Story(both(greeting("Hello, Ada!")), app=True),
    "json_response": Story(both(greeting("Hello, Ada!")), app=True),
    "legacy_routing": Story(_era_of("which_arm", "which_arm", {}), app=True),
    "starlette_mount": Story(both(greeting("from a Starlette sub-mount")), app=True, path="api/"),
    "sse_polling": Story({"2025": POLLING}, app=True),
    "standalone_get": Story({"2025": STANDALONE}),
    "reconnect": Story(both({"structured": step("call", "add", {"a": 2, "b": 3}, structured={"result": 5})})),
}

# ---------------------------------------------------------------- the server for the conformance suite

FORMS |= {
    "Say a word": {"response": "teal"},
    "The stateless streaming probe asks for a word": "decline",
    "What is your name?": {"name": "Ada"},
    "Please confirm": {"ok": True},
    "Step 1: What is your name?": {"name": "Ada"},
    "Step 2: What is your favorite color?": {"color": "teal"},
}
_TOLD = [[float(done), 100.0, f"Completed step {done} of 100"] for done in (0, 50, 100)]
_REFERENCE: Plan = {
    "list_tools": step("items", "tools", names=["test_simple_text", "json_schema_2020_12_tool"]),
    "text": step("call", "test_simple_text", {}, text="a simple text response", is_error=False),
    "image": step("call", "test_image_content", {}, types=["image"]),
    "audio": step("call", "test_audio_content", {}, types=["audio"]),
    "embedded": step("call", "test_embedded_resource", {}, types=["resource"]),
    "blocks": step("call", "test_multiple_content_types", {}, types=["text", "image", "resource"]),
    "progress": step("progress", "test_tool_with_progress", {}, told=_TOLD),
    "logging": step("logging", "test_tool_with_logging", {}, "info", levels=["info"] * 3),
    "error": step("call", "test_error_handling", {}, is_error=True),
    "decline": step("ask", "test_streaming_elicitation", {}, text="elicitation decline", asked=["form"]),
    "resources": step("items", "resources", names=["test://static-text", "test://static-binary"]),
    "templates": step("items", "templates", names=["test://template/{id}/data"]),
    "read_text": step("read", "test://static-text", contents=[{"text": "the static text resource"}]),
    "read_binary": step("read", "test://static-binary", contents=[{"bytes": 70}]),
    "read_template": step("read", "test://template/7/data", contents=[{"text": "Data for ID: 7"}]),
    "prompts": step("items", "prompts", names=["test_simple_prompt", "test_prompt_with_arguments"]),
    "prompt": step("prompt", "test_prompt_with_arguments", {"arg1": "x", "arg2": "y"}, messages=[{"text": "arg2='y'"}]),
    "prompt_blocks": step("prompt", "test_prompt_with_image", {}, messages=[{"type": "image"}, {"type": "text"}]),
    "complete_argument": step("complete", {"prompt": "test_prompt_with_arguments"}, "arg1", "", values=[]),
}
REFERENCE = {
    "2025": {
        **_REFERENCE,
        "elicit": step("ask", "test_elicitation", {"message": "Say a word"}, text="teal", asked=["form"]),
        "sample": step("ask", "test_sampling", {"prompt": "x"}, text="thought of x", asked=["sample"]),
        "resumed": step("call", "test_reconnection", {}, text="Reconnection test completed"),
    },
    "2026": {
        **_REFERENCE,
        "elicit": step("ask", "test_input_required_result_elicitation", {}, text="Hello, Ada!", asked=["form"]),
        "sample": step("ask", "test_input_required_result_sampling", {}, text="thought of What", asked=["sample"]),
        "roots": step("ask", "test_input_required_result_list_roots", {}, text="exposed 2 root", asked=["roots"]),
        "state": step("ask", "test_input_required_result_request_state", {}, text="state-ok", asked=["form"]),
        "together": step(
            "ask",
            "test_input_required_result_multiple_inputs",
            {},
            text="All inputs received.",
            asked=["form", "roots", "sample"],
        ),
        "rounds": step(
            "ask", "test_input_required_result_multi_round", {}, text="Ada likes teal.", asked=["form", "form"]
        ),
        "ask_prompt": step(
            "ask_prompt", "test_input_required_result_prompt", {}, messages=[{"text": "context"}], asked=["form"]
        ),
        "watch": step(
            "watch",
            None,
            None,
            {"tools": ["test_trigger_tool_change", {}], "prompts": ["test_trigger_prompt_change", {}]},
            heard=[["tools", None], ["prompts", None]],
        ),
    },
}
