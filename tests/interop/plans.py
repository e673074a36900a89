"""What the clients are to do with each server, and what must come of it: data only.

A step is a verb with what it takes, and the wants that judge.py knows. The fixtures of all makers offer the same.
"""

from dataclasses import dataclass, field
from typing import Any

Json = Any


@dataclass(frozen=True)
class Step:
    """One step: the verb and what it takes, as the client gets them, and what must come of it.

    The wants: `text` is contained in the answer's text; `is_error`, `structured`, `length`, `types`, `values`, `pages`
    are as said; `names` are among the items; `contents` and `messages` have at least these members; `code` is the
    error's code (or one for each era); `asked` are the kinds of questions; `heard` is heard and nothing else;
    `told` is the progress as it came; `result` has at least these members.
    """

    verb: str
    arguments: tuple[Json, ...] = ()
    wants: dict[str, Json] = field(default_factory=dict)

    @property
    def item(self) -> list[Json]:
        """As the client gets it."""
        return [self.verb, *self.arguments]


Plan = dict[str, Step]


def step(verb: str, *arguments: Json, **wants: Json) -> Step:
    """A step and its wants."""
    return Step(verb, arguments, wants)


CONCURRENT = 20
NOTE = "a note: hé ☃"
DOT = {"uri": "interop://dot", "mimeType": "application/octet-stream", "bytes": 256}
ODD = "hé ☃ \u2028 \U0001f600\n\"'\\"
REFUSED = {"any": [{"is_error": True}, {"code": -32602}]}
"""An error result or an error, as the server likes."""

NOT_FOUND = {"2025": -32002, "2026": -32602}
"""RES-05, RES-06."""

ITEM = "interop://items/{kind}/{name}"
EVERY_LIST = {kind: ["change", {"kind": kind}] for kind in ("tools", "prompts", "resources")}

FORMS = {
    "Which day?": {"day": "Friday", "seats": 2},
    "Your name?": {"*": "Ada"},
    "Your colour, Ada?": {"*": "teal"},
    "Your secret?": "decline",
}

TOOLS: Plan = {
    "list_tools": step("items", "tools", names=["echo", "add", "weather", "book"], pages=6),
    "text": step("call", "echo", {"text": ODD}, text=ODD, is_error=False),
    "structured": step(
        "call", "weather", {"city": "Oslo"}, structured={"city": "Oslo", "celsius": 21.5}, types=["text"]
    ),
    "error": step("call", "fail", {"reason": "because"}, is_error=True, text="because"),
    "bad_arguments": step("call", "add", {"a": "x"}, is_error=True),
    "unknown": step("call", "no_such_tool", {}, code=-32602),
    "progress": step("progress", "count", {"steps": 5}, steps=5),
    "logging": step("logging", "chatter", {}, "debug", levels=["debug", "info", "error"]),
    "quiet_logging": step("logging", "chatter", {}, "error", levels=["error"]),
    "large": step("call", "large", {"size": 700_000}, length=700_000),
    "huge": step("call", "large", {"size": 3_000_000}, length=3_000_000),
    "cancel": step("cancel", "slow", {"seconds": 30, "key": "cancel"}, journal="cancel"),
    "limit": step("limit", "slow", {"seconds": 30, "key": "limit"}, journal="limit"),
    "concurrent": step(
        "concurrent", [["add", {"a": number, "b": 1000}] for number in range(CONCURRENT)], answered=True, sums=True
    ),
}
"""The second length is beyond 1 MiB, where some clients cap an SSE event."""

RESOURCES: Plan = {
    "resources": step("items", "resources", names=["interop://note", "interop://dot", "interop://watched"], pages=2),
    "templates": step("items", "templates", names=[ITEM]),
    "read_text": step("read", "interop://note", contents=[{"uri": "interop://note", "text": NOTE}]),
    "read_binary": step("read", "interop://dot", contents=[DOT]),
    "read_template": step(
        "read",
        "interop://items/fruit/pear",
        contents=[{"mimeType": "application/json", "json": {"kind": "fruit", "name": "pear"}}],
    ),
    "read_missing": step("read", "interop://nothing", code=NOT_FOUND),
    "complete_variable": step("complete", {"resource": ITEM}, "kind", "f", values=["fruit", "fish"]),
    "complete_by_context": step(
        "complete", {"resource": ITEM}, "name", "p", {"kind": "fish"}, values=["perch", "pike"]
    ),
}

PROMPTS: Plan = {
    "prompts": step("items", "prompts", names=["greet", "brief", "plain"], pages=2),
    "prompt": step("prompt", "greet", {"name": "Ada"}, messages=[{"role": "user", "text": "Greet Ada, calm."}]),
    "prompt_all": step("prompt", "greet", {"name": "Ada", "mood": "wild"}, messages=[{"text": "Greet Ada, wild."}]),
    "prompt_blocks": step(
        "prompt",
        "brief",
        {},
        messages=[
            {"role": "assistant", "text": "I listen."},
            {"role": "user", "type": "image", "mimeType": "image/png"},
            {"role": "user", "type": "resource"},
        ],
    ),
    "prompt_missing": step("prompt", "no_such_prompt", {}, code=-32602),
    "prompt_incomplete": step("prompt", "greet", {}, code=-32602),
    "complete_argument": step("complete", {"prompt": "greet"}, "name", "A", values=["Ada", "Alan"], more=False),
    "complete_many": step("complete", {"prompt": "greet"}, "mood", "m", first=[f"m{n}" for n in range(100)], more=True),
    "complete_nothing": step("complete", {"prompt": "no_such_prompt"}, "x", "", code=-32602),
}

ASKING: Plan = {
    "elicit": step("ask", "book", {"city": "Oslo"}, text="2 seats to Oslo on Friday", asked=["form"]),
    "decline": step("ask", "refuse", {}, text="not told: decline", asked=["form"]),
    "url": step("ask", "sign", {}, text="signed", asked=["url"]),
    "sample": step("ask", "think", {"about": ODD}, text=f"interop-model: thought of {ODD}", asked=["sample"]),
    "roots": step("ask", "where", {}, text="file:///interop/a file:///interop/b", asked=["roots"]),
    "rounds": step("ask", "tour", {}, text="Ada likes teal", asked=["form", "form"], once="toured once"),
    "together": step(
        "ask", "together", {}, text="Ada, thought of greeting, 2 roots", asked=["form", "roots", "sample"]
    ),
    "ask_prompt": step("ask_prompt", "interview", {}, messages=[{"text": "Interview Ada."}], asked=["form"]),
    "ask_read": step("ask_read", "interop://private", contents=[{"text": "for Ada"}], asked=["form"]),
}

WATCHING: Plan = {
    "watch": step(
        "watch",
        "interop://watched",
        ["touch", {"uri": "interop://watched"}],
        EVERY_LIST,
        heard=[["resource", "interop://watched"], ["tools", None], ["prompts", None], ["resources", None]],
    ),
}

LAST: Plan = {
    "bad_cursor": step("page", "tools", "not a cursor", code=-32602),
    "afterwards": step("items", "tools", names=["echo"]),
}

FIXTURE: Plan = {**TOOLS, **RESOURCES, **PROMPTS, **ASKING, **WATCHING, **LAST}


def without(plan: Plan, *names: str, **changed: Step) -> Plan:
    """The plan without some steps, and with others in their place."""
    kept = {name: one for name, one in plan.items() if name not in names}
    return {**kept, **changed}


def unpaged(plan: Plan) -> Plan:
    """For servers that give each list as one page."""
    return {
        name: Step(one.verb, one.arguments, {**one.wants, "pages": 1}) if "pages" in one.wants else one
        for name, one in plan.items()
    }


# ---------------------------------------------------------------- which server gets which

GEMEL = {"2025": FIXTURE, "2026": FIXTURE}

#: The foreign servers answer an unknown tool with an error result, and wrong arguments as they like.
_LOOSE = {
    "bad_arguments": step("call", "add", {"a": "x"}, **REFUSED),
    "unknown": step("call", "no_such_tool", {}, **REFUSED),
}
_PYTHON = without(unpaged(FIXTURE), "ask_prompt", "ask_read", "bad_cursor", **_LOOSE)
PYTHON = {
    # It logs without offering the capability: the level is refused, and none is held to.
    "2025": without(
        _PYTHON,
        "quiet_logging",
        logging=step("logging", "chatter", {}, "debug", levels=["debug", "info", "error"], level_refused=True),
    ),
    # It asks for pages in the handshake era only.
    "2026": without(_PYTHON, "url"),
}

_TYPESCRIPT = without(unpaged(FIXTURE), "bad_cursor", **_LOOSE)
TYPESCRIPT = {"2025": _TYPESCRIPT, "2026": _TYPESCRIPT}

_FASTMCP = {**unpaged({**TOOLS, **RESOURCES, **PROMPTS}), **_LOOSE, "elicit": ASKING["elicit"]}
FASTMCP = {"2025": _FASTMCP, "2026": _FASTMCP}

#: FastMCP 1 asks nobody and has no completion of its own; what is wrong is an error result, or code 0.
_V1 = without(
    {**unpaged({**TOOLS, **RESOURCES, **PROMPTS}), **_LOOSE},
    *("logging", "quiet_logging", "complete_variable", "complete_by_context", "complete_argument", "complete_many"),
    *("complete_nothing", "read_missing", "prompt_missing", "prompt_incomplete"),
    list_tools=step("items", "tools", names=["echo", "add", "weather"], pages=1),
    resources=step("items", "resources", names=["interop://note", "interop://dot"], pages=1),
)
_UNSTRUCTURED = without(_V1, "structured")
OLD = {
    # It serves one request after the other, and does not know types of resources.
    "mcp-1.2": without(_UNSTRUCTURED, "cancel", "limit", "read_binary", "read_template"),
    # It ends when a request is cancelled.
    "mcp-1.8": without(_UNSTRUCTURED, "cancel", "limit"),
    "mcp-1.12": _V1,
    "mcp-1.26": _V1,
    "fastmcp-2": _V1,
}
#: Wrong arguments were an error of the request before 2025-11-25.
BEFORE_2025_11: Plan = {"bad_arguments": step("call", "add", {"a": "x"}, code=-32602)}

#: What agent frameworks do with tools; what they tell a model is compared as text.
AGENT: Plan = {
    "list_tools": step("items", "tools", names=["echo", "add", "weather", "book"]),
    "text": step("call", "echo", {"text": "hé ☃"}, text="hé ☃", is_error=False),
    "structured": step("call", "weather", {"city": "Oslo"}, text="21.5", is_error=False),
    "error": step("call", "fail", {"reason": "because"}, text="because", is_error=True),
    "large": step("call", "large", {"size": 700_000}, text="x" * 1000, is_error=False),
    "bad_arguments": step("call", "add", {"a": "x"}, is_error=True),
    "concurrent": TOOLS["concurrent"],
    "afterwards": step("call", "echo", {"text": "still here"}, text="still here", is_error=False),
}

TIME_PLAN: Plan = {
    "list_tools": step("items", "tools", names=["get_current_time", "convert_time"]),
    "text": step("call", "get_current_time", {"timezone": "UTC"}, is_error=False, text="UTC"),
    "error": step("call", "get_current_time", {"timezone": "Nowhere/Land"}, is_error=True),
    "bad_arguments": step("call", "convert_time", {"time": 5}, **REFUSED),
    "unknown": step("call", "no_such_tool", {}, **REFUSED),
    "concurrent": step("concurrent", [["get_current_time", {"timezone": "UTC"}]] * CONCURRENT, answered=True),
}
TIME = {"2025": TIME_PLAN, "2026": TIME_PLAN}

#: It would want the network: only what it says of itself.
FETCH_PLAN: Plan = {
    "list_tools": step("items", "tools", names=["fetch"]),
    "prompts": step("items", "prompts", names=["fetch"]),
    "bad_arguments": step("call", "fetch", {}, **REFUSED),
}
FETCH = {"2025": FETCH_PLAN, "2026": FETCH_PLAN}

_DYNAMIC = "demo://resource/dynamic/text/{resourceId}"
EVERYTHING_FORM = "Please provide inputs for the following fields:"
FORMS[EVERYTHING_FORM] = {"name": "Ada", "integer": 42, "check": True}
EVERYTHING = {
    "2025": {
        "list_tools": step("items", "tools", names=["echo", "get-sum", "get-tiny-image"]),
        "text": step("call", "echo", {"message": ODD}, text=ODD, is_error=False),
        "structured": step("call", "get-structured-content", {"location": "New York"}, structured=True),
        "bad_arguments": step("call", "get-sum", {"a": "x"}, **REFUSED),
        "unknown": step("call", "no_such_tool", {}, **REFUSED),
        "image": step("call", "get-tiny-image", {}, types=["text", "image", "text"]),
        "links": step("call", "get-resource-links", {"count": 2}, types=["text", "resource_link", "resource_link"]),
        "progress": step("progress", "trigger-long-running-operation", {"duration": 1, "steps": 5}, steps=5),
        "cancel": step("cancel", "trigger-long-running-operation", {"duration": 30, "steps": 2}),
        "limit": step("limit", "trigger-long-running-operation", {"duration": 30, "steps": 2}),
        "concurrent": step(
            "concurrent",
            [["get-sum", {"a": number, "b": 1000}] for number in range(CONCURRENT)],
            answered=True,
            sums=True,
        ),
        "resources": step("items", "resources", names=["demo://resource/static/document/features.md"]),
        "templates": step("items", "templates", names=[_DYNAMIC]),
        "read_text": step(
            "read", "demo://resource/static/document/features.md", contents=[{"mimeType": "text/markdown"}]
        ),
        "read_template": step(
            "read", "demo://resource/dynamic/blob/7", contents=[{"uri": "demo://resource/dynamic/blob/7"}]
        ),
        "complete_variable": step("complete", {"resource": _DYNAMIC}, "resourceId", "7", values=["7"]),
        "prompts": step("items", "prompts", names=["simple-prompt", "args-prompt", "completable-prompt"]),
        "prompt": step("prompt", "args-prompt", {"city": "Oslo"}, messages=[{"text": "What's weather in Oslo?"}]),
        "prompt_blocks": step(
            "prompt",
            "resource-prompt",
            {"resourceType": "Text", "resourceId": "1"},
            messages=[{"type": "text"}, {"type": "resource"}],
        ),
        "complete_argument": step(
            "complete", {"prompt": "completable-prompt"}, "department", "S", values=["Sales", "Support"]
        ),
        "complete_by_context": step(
            "complete",
            {"prompt": "completable-prompt"},
            "name",
            "E",
            {"department": "Sales"},
            values=["Eve"],
        ),
        "elicit": step("ask", "trigger-elicitation-request", {}, text="Ada", asked=["form"]),
        "url": step("ask", "trigger-url-elicitation", {"url": "https://example.com/x"}, is_error=False, asked=["url"]),
        "sample": step(
            "ask", "trigger-sampling-request", {"prompt": "x", "maxTokens": 9}, text="thought of", asked=["sample"]
        ),
        "roots": step("call", "get-roots-list", {}, roots=True),
        "watch": step(
            "watch",
            "demo://resource/dynamic/text/1",
            ["toggle-subscriber-updates", {}],
            {},
            heard=[["resource", "demo://resource/dynamic/text/1"]],
        ),
    }
}

#: Through a proxy both eras have what the handshake server has.
BRIDGE = {"2025": EVERYTHING["2025"], "2026": EVERYTHING["2025"]}

FILESYSTEM = {
    "2025": {
        "list_tools": step("items", "tools", names=["read_text_file", "write_file", "list_directory"]),
        "write": step("call", "write_file", {"path": "note.txt", "content": ODD}, is_error=False),
        "read": step("call", "read_text_file", {"path": "note.txt"}, is_error=False, text=ODD, structured=True),
        "missing": step("call", "read_text_file", {"path": "nothing.txt"}, is_error=True),
        "outside": step("call", "read_text_file", {"path": "/etc/passwd"}, is_error=True),
        "unknown": step("call", "no_such_tool", {}, **REFUSED),
    }
}

_ADA = {"name": "Ada", "entityType": "person", "observations": ["likes teal"]}
MEMORY = {
    "2025": {
        "list_tools": step("items", "tools", names=["create_entities", "read_graph"]),
        "create": step("call", "create_entities", {"entities": [_ADA]}, is_error=False, text="Ada"),
        "read": step("call", "read_graph", {}, is_error=False, text="likes teal", structured=True),
        "resources": step("items", "resources", names=["memory://knowledge-graph"]),
        "read_text": step("read", "memory://knowledge-graph", contents=[{"text": "likes teal"}]),
        "watch": step(
            "watch",
            "memory://knowledge-graph",
            ["add_observations", {"observations": [{"entityName": "Ada", "contents": ["x"]}]}],
            {},
            heard=[["resource", "memory://knowledge-graph"]],
        ),
    }
}
