"""Every type of the wire comes back from its own JSON text as it was."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemel import CallToolResult, ContentBlock, ResourceContents, TextContent, Tool
from gemel.schema.tools import CallToolParams
from tests.schema.instances import MODELS, drawn, full
from tests.support import Model

sparing = settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def wire(value: object) -> Any:
    """A value as the peer reads it; numbers that are equal are one number, whichever way they are written."""
    return json.loads(msgspec.json.encode(value))


def there_and_back(value: Model) -> Any:
    return wire(msgspec.json.decode(msgspec.json.encode(value), type=type(value)))


def test_messages_with_every_member_set_come_back_as_they_were() -> None:
    for name, kind in MODELS.items():
        value = full(kind)
        assert wire(value).keys() >= {field.encode_name for field in msgspec.structs.fields(kind)} - {"text", "blob"}, (
            name
        )
        assert there_and_back(value) == wire(value), name


@sparing
@given(st.sampled_from(list(MODELS.values())).flatmap(drawn))
def test_a_message_with_any_members_set_comes_back_as_it_was(value: Model) -> None:
    """Absent stays absent, null stays null."""
    assert there_and_back(value) == wire(value)


def test_what_is_absent_is_left_out_rather_than_null() -> None:
    """Only the members that must be there stand in the text of a message that sets no others."""
    for name, kind in MODELS.items():
        needed = {
            field.name: getattr(full(kind), field.name) for field in msgspec.structs.fields(kind) if field.required
        }
        tag = {kind.__struct_config__.tag_field} - {None}
        names = {field.encode_name for field in msgspec.structs.fields(kind) if field.required}
        assert wire(kind(**needed)).keys() == names | tag, name


def test_members_that_nobody_knows_are_ignored() -> None:
    """BASE-20: objects are open."""
    for name, kind in MODELS.items():
        more = msgspec.json.encode({**wire(full(kind)), "com.example/later": {"deep": [1]}, "later": None})
        assert wire(msgspec.json.decode(more, type=kind)) == wire(full(kind)), name


@pytest.mark.parametrize("content", ["null", "[]", "0", "false", '""', "{}", '{"a":1}'])
def test_structured_content_is_any_value_and_null_is_one(content: str) -> None:
    """TOOL-14."""
    text = f'{{"content":[],"structuredContent":{content}}}'
    result = msgspec.json.decode(text, type=CallToolResult)
    assert result.structured_content is not msgspec.UNSET
    assert json.loads(msgspec.json.encode(result)) == json.loads(text)


def test_no_structured_content_is_told_from_null() -> None:
    assert msgspec.json.decode(b'{"content":[]}', type=CallToolResult).structured_content is msgspec.UNSET


def test_an_empty_text_is_not_an_absent_one() -> None:
    contents = msgspec.json.decode(b'{"uri":"file:///a","text":""}', type=ResourceContents)
    assert contents.text == ""
    assert json.loads(msgspec.json.encode(contents)) == {"uri": "file:///a", "text": ""}


def test_an_empty_retry_state_is_kept() -> None:
    """An empty state is echoed like any other."""
    params = msgspec.json.decode(b'{"name":"x","requestState":""}', type=CallToolParams)
    assert params.request_state == ""
    assert json.loads(msgspec.json.encode(params)) == {"name": "x", "requestState": ""}


def test_a_content_block_is_known_by_its_type() -> None:
    assert msgspec.json.decode(b'{"type":"text","text":"x"}', type=ContentBlock) == TextContent(text="x")
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"type":"smell","text":"x"}', type=ContentBlock)


def test_an_output_schema_of_any_root_is_read() -> None:
    """TOOL-07: also the boolean schemas of JSON Schema."""
    for schema in (True, {"type": "array"}, {}):
        text = msgspec.json.encode({"name": "x", "inputSchema": {"type": "object"}, "outputSchema": schema})
        assert msgspec.json.decode(text, type=Tool).output_schema == schema
