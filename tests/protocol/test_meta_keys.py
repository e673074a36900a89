"""Which keys may stand in `_meta`, and which of them are a user's."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from gemel import DefinitionError
from gemel.protocol.meta import check_extension_id, check_meta, is_reserved

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    "key", ["team", "com.example/team", "com.example.mcp/a_b.c-d", "a-1.b/x", "9", "a/", "mcp.dev", "com.mcp.x"]
)
def test_keys_of_ones_own(key: str) -> None:
    """META-01, META-02: `com.example.mcp/` is free."""
    check_meta({key: {"any": ["value"]}})


@pytest.mark.parametrize("key", ["", "/team", "1a.com/x", "a..b/x", "-a/x", "a-/x", "a/b/c", "a b", "x-", "ü", 5])
def test_what_is_no_key(key: Any) -> None:
    """META-01."""
    with pytest.raises(DefinitionError, match="is not a key for _meta"):
        check_meta({key: 1})


@pytest.mark.parametrize(
    "key",
    [
        "progressToken",
        "io.modelcontextprotocol/clientInfo",
        "io.modelcontextprotocol/anything",
        "dev.mcp/x",
        "a.mcp.b/x",
        "mcp.dev/x",
        "modelcontextprotocol.io/x",
        "tools.mcp.com/x",
        "com.example.mcp.a/x",
    ],
)
def test_the_protocols_own_keys_are_not_a_users(key: str) -> None:
    """META-02, META-03, META-05: by the words of either revision of the rule."""
    assert is_reserved(key)
    with pytest.raises(DefinitionError, match="belongs to the protocol"):
        check_meta({key: 1})


def test_a_trace_is_given_as_the_world_writes_it() -> None:
    """META-06."""
    check_meta({"traceparent": PARENT, "tracestate": "a=1,b=2", "baggage": "user=7"})
    for key, value in [
        ("traceparent", "nonsense"),
        ("traceparent", PARENT.upper()),
        ("traceparent", "ff" + PARENT[2:]),
        ("traceparent", PARENT.replace("b7ad6b7169203331", "0" * 16)),
        ("tracestate", 5),
        ("baggage", "a=1\nb=2"),
        ("baggage", "a=ü"),
    ]:
        with pytest.raises(DefinitionError, match=f"{key}.*W3C"):
            check_meta({key: value})


@pytest.mark.parametrize(("text", "good"), [("com.example/jobs", True), ("jobs", False), ("com.example/", False)])
def test_an_extension_has_a_prefix_and_a_name(text: str, good: bool) -> None:
    """EXT-02."""
    with nullcontext() if good else pytest.raises(DefinitionError, match="needs a prefix and a name"):
        check_extension_id(text, "Jobs")
