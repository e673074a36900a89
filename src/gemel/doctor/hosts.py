"""What known hosts don't support, as data. Each rule has the address of a report or of documentation that says so.

Hosts change: a rule that no longer holds is removed here, a new one is added with its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, TypeAlias

#: How bad it is: tools are missing or every request fails; something is changed or left out; nothing the lists show.
Severity: TypeAlias = Literal["breaks", "degrades", "note"]
#: What a rule looks at: see `Rule`.
Subject: TypeAlias = Literal[
    "name length",
    "name pattern",
    "tool count",
    "keywords",
    "root keywords",
    "patterns",
    "offers",
    "lacks",
    "annotations",
    "own search",
]


class Rule(NamedTuple):
    """One thing that a host does not support.

    Args:
        subject: What is looked at: the length of tool names with the host's `prefix`, or the pattern that they match;
            how many tools there are; keywords anywhere in schemas, or at the root of input schemas; the syntax of
            `pattern`; features that the server offers; features that the host lacks; whether tools have annotations;
            whether the server lists a search for its tools in place of them, as in code mode.
        value: The most that is possible, the pattern, or the keywords or features that don't work. Of annotations the
            hints of which one is needed.
        effect: What the host does.
        source: Where that is documented.
        severity: "breaks", "degrades" or "note".
        prefix: What the host puts before a tool's name; `{server}` is the name of the server.
    """

    subject: Subject
    value: Any
    effect: str
    source: str
    severity: Severity = "breaks"
    prefix: str = ""


_GITHUB = "https://github.com/"
_REFERENCES = ("$ref", "$dynamicRef")


def _no_references(effect: str, source: str, severity: Severity = "breaks") -> Rule:
    return Rule("keywords", _REFERENCES, effect, _GITHUB + source, severity)


_HINTS = ("read_only_hint", "destructive_hint", "open_world_hint")


def _hints(effect: str, source: str, severity: Severity = "note") -> Rule:
    return Rule(
        "annotations",
        _HINTS,
        f"{effect}: set readOnlyHint, destructiveHint and openWorldHint",
        _GITHUB + source,
        severity,
    )


def _searches(effect: str, source: str) -> Rule:
    return Rule("own search", None, f"puts tools behind a search of its own, too: {effect}", source, "note")


_PLAIN_LIST = "list them plainly there, by ?tools=all in the URL or without --code"
#: The rules of each host, by the name that `--host` takes.
HOSTS: Mapping[str, tuple[Rule, ...]] = {
    "chatgpt": (
        Rule(
            "offers",
            ("prompts", "resources"),
            "takes tools, and resources only as pages of apps",
            "https://dev.to/serverdex/which-mcp-clients-support-which-features-i-read-the-docs-59kb",
            "degrades",
        ),
        _hints("asks before each call, as for one that writes", "universal-tool-calling-protocol/code-mode/issues/38"),
    ),
    "claude-ai": (
        Rule("name length", 64, "refuses the list of tools", _GITHUB + "mims-harvard/ToolUniverse/issues/35"),
        Rule(
            "offers",
            ("prompts", "resources"),
            "shows them to people at most, never to the model",
            _GITHUB + "anthropics/claude-ai-mcp/issues/23",
            "degrades",
        ),
        Rule(
            "lacks",
            ("elicitation",),
            "can't ask its user: take what you need as arguments",
            _GITHUB + "anthropics/claude-ai-mcp/issues/153",
            "note",
        ),
        _hints("asks before each call", "elgorro/aiquila/issues/386"),
    ),
    "claude-code": (
        Rule(
            "name length",
            64,
            "refuses every request in some versions",
            _GITHUB + "ChromeDevTools/chrome-devtools-mcp/issues/1169",
            "degrades",
            prefix="mcp__{server}__",
        ),
        Rule(
            "root keywords",
            ("allOf", "anyOf", "oneOf"),
            "refuses every request as long as the server is configured",
            _GITHUB + "anthropics/claude-code/issues/5973",
        ),
        Rule(
            "lacks",
            ("results of more than 25,000 tokens",),
            "shows the model a preview of 2 KB and writes the rest to a file",
            _GITHUB + "anthropics/claude-code/issues/45766",
            "note",
        ),
        _searches(
            "write alwaysLoad into its entry there, as gemel install --always-load does",
            _GITHUB + "anthropics/claude-code/issues/82900",
        ),
    ),
    "claude-desktop": (
        Rule("name length", 64, "makes the tools unusable", _GITHUB + "anthropics/claude-code/issues/34960"),
        _no_references("drops definitions", "PrefectHQ/fastmcp/issues/2808", "degrades"),
        Rule(
            "lacks",
            ("elicitation",),
            "can't ask its user: take what you need as arguments",
            _GITHUB + "anthropics/claude-code/issues/41347",
            "note",
        ),
        Rule(
            "lacks",
            ("sampling",),
            "lends servers no model",
            _GITHUB + "modelcontextprotocol/typescript-sdk/issues/79",
            "note",
        ),
    ),
    "codex": (
        Rule(
            "keywords",
            ("anyOf", "oneOf"),
            "shows the model a string in its place",
            _GITHUB + "openai/codex/issues/13768",
            "degrades",
        ),
        Rule("patterns", r"\(\?[=!<]", "refuses every request", _GITHUB + "can1357/oh-my-pi/issues/2784"),
        _hints(
            "asks before each call, and cancels it where nobody can be asked, as in codex exec",
            "zernio-dev/zernio-python/pull/34",
            "degrades",
        ),
        _searches(_PLAIN_LIST, _GITHUB + "openai/codex/pull/29486"),
    ),
    "copilot-cli": (
        _no_references("can't build the arguments: calls fail", "github/copilot-cli/issues/1876"),
        _searches(
            'write deferTools: "never" into its entry there, as gemel install --always-load does',
            "https://docs.github.com/en/copilot/concepts/agents/copilot-cli/tool-search",
        ),
    ),
    "cursor": (
        Rule(
            "name length",
            60,
            "leaves the tool out",
            _GITHUB + "sparfenyuk/mcp-proxy/issues/45",
            "degrades",
            prefix="{server}:",
        ),
        Rule(
            "tool count",
            40,
            "shows the model the first 40 tools of all servers",
            _GITHUB + "getsentry/sentry-mcp-stdio/issues/3",
            "degrades",
        ),
        _no_references("lists no tools of the server", "davideast/stitch-mcp/issues/184"),
        _hints("refuses its calls in ask mode", "colbymchenry/codegraph/issues/1018", "degrades"),
    ),
    "gemini-cli": (
        _no_references("leaves the tools out, or every request fails", "google-gemini/gemini-cli/issues/13326"),
        Rule(
            "name length",
            63,
            "cuts the middle out of the name",
            _GITHUB + "google-gemini/gemini-cli/pull/20987",
            "degrades",
            prefix="mcp_{server}_",
        ),
    ),
    "kiro": (
        _no_references("lists no tools of the server", "kirodotdev/Kiro/issues/8257"),
        Rule("name length", 64, "refuses every request", _GITHUB + "kirodotdev/Kiro/issues/7684"),
    ),
    "opencode": (
        _no_references("lists no tools of the server", "anomalyco/opencode/issues/26529"),
        Rule(
            "name pattern",
            r"[a-zA-Z0-9_-]{1,128}",
            "refuses every request with some models",
            _GITHUB + "anomalyco/opencode/issues/3354",
            "degrades",
        ),
    ),
    "vscode": (
        Rule("tool count", 128, "refuses every request", _GITHUB + "microsoft/vscode/issues/255585"),
        _no_references("refuses every request with some models", "microsoft/fabric-rti-mcp/issues/98"),
        _hints("asks before each call", "yukiyokotani/office-open-xml-viewer/pull/262"),
        _searches(_PLAIN_LIST, _GITHUB + "microsoft/vscode-docs/pull/9695"),
    ),
    "zed": (
        Rule("offers", ("resources",), "takes tools and prompts", "https://zed.dev/docs/ai/mcp", "degrades"),
        Rule(
            "lacks",
            ("elicitation", "sampling"),
            "takes tools and prompts",
            "https://zed.dev/docs/ai/mcp",
            "note",
        ),
    ),
}
