"""`key=value` words as arguments: by the types that a tool declares."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from gemel import StartError
from gemel.cli.values import parse_arguments, parse_strings
from gemel.values.encoding import encode_value

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "count": {"type": "integer"},
        "price": {"type": "number"},
        "ok": {"type": "boolean"},
        "color": {"enum": ["red", "1"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "kinds": {"type": "array", "items": {"enum": ["a", "b"]}},
        "place": {"$ref": "#/$defs/Place"},
        "free": {"type": "object", "additionalProperties": {"type": "integer"}},
        "a.b": {"type": "integer"},
        "any": {},
    },
    "$defs": {
        "Place": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "at": {"$ref": "#/$defs/Point"},
                "in": {"$ref": "#/$defs/Place"},
            },
        },
        "Point": {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}},
    },
}


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["text=5", "maybe=5"], {"text": "5", "maybe": "5"}),
        (["text=", "maybe=null"], {"text": "", "maybe": None}),
        (["text=a=b"], {"text": "a=b"}),
        (["count=5", "price=2.5"], {"count": 5, "price": 2.5}),
        (["ok=yes"], {"ok": True}),
        (["ok=FALSE"], {"ok": False}),
        (["count=many"], {"count": "many"}),
        (["color=red"], {"color": "red"}),
        (["color=1"], {"color": "1"}),
        (["tags=a,b"], {"tags": ["a,b"]}),
        (["tags=a", "tags=b"], {"tags": ["a", "b"]}),
        (['tags=["a", "b"]', "tags=c"], {"tags": ["a", "b", "c"]}),
        (["sizes=1,2", "sizes=3"], {"sizes": [1, 2, 3]}),
        (["kinds=a, b"], {"kinds": ["a", "b"]}),
        (["place.city=7", "place.at.x=7"], {"place": {"city": "7", "at": {"x": 7}}}),
        (["place.in.in.city=Oslo"], {"place": {"in": {"in": {"city": "Oslo"}}}}),
        (['place={"city": "Oslo"}'], {"place": {"city": "Oslo"}}),
        (["free.x=1", "free.y=2"], {"free": {"x": 1, "y": 2}}),
        (["a.b=1"], {"a.b": 1}),
        (["any.thing=1", "any.other=x"], {"any": {"thing": 1, "other": "x"}}),
        (["unknown.name=1"], {"unknown.name": 1}),
        (['text:="5"', "count:=5", "any:=[1, null]"], {"text": "5", "count": 5, "any": [1, None]}),
        (["place.at:={}"], {"place": {"at": {}}}),
        (["text=@@home"], {"text": "@home"}),
    ],
)
def test_words_become_arguments_by_their_schema(words: list[str], found: Any) -> None:
    assert parse_arguments(words, SCHEMA) == found


DIGITS = "12345678901234567.89"


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        ([f"price={DIGITS}"], f'{{"price":{DIGITS}}}'),
        (["price=0.30"], '{"price":0.30}'),
        ([f"cost={DIGITS}", "total=0.30"], f'{{"cost":"{DIGITS}","total":"0.30"}}'),
        (["total=x"], '{"total":"x"}'),
        ([f"costs=2.5,{DIGITS}"], f'{{"costs":[2.5,"{DIGITS}"]}}'),
        ([f"costs=[{DIGITS}]", f"any.deep={DIGITS}"], f'{{"costs":[{DIGITS}],"any":{{"deep":{DIGITS}}}}}'),
        ([f'any:={{"deep": [{DIGITS}]}}'], f'{{"any":{{"deep":[{DIGITS}]}}}}'),
        (["price=1e999"], '{"price":"1e999"}'),
    ],
)
def test_numbers_keep_the_digits_that_were_typed(words: list[str], sent: str) -> None:
    decimal = {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]}
    pydantic = {
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": "^[0-9.]*$"}, {"type": "null"}]
    }
    properties = {
        **SCHEMA["properties"],
        "cost": decimal,
        "total": pydantic,
        "costs": {"type": "array", "items": decimal},
    }
    assert encode_value(parse_arguments(words, {"properties": properties})).decode() == sent


def test_without_a_schema_json_is_taken_for_json_and_all_else_for_text() -> None:
    assert parse_arguments(["a=1", "b=x", "c=[1]"], {}) == {"a": 1, "b": "x", "c": [1]}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tea"], "'tea' is not an argument: write KEY=VALUE, KEY:=JSON, or KEY=@FILE"),
        (["=x"], "'=x' is not an argument"),
        (["count:={"], "count: '{' is not JSON"),
        (["count=1", "count=2"], "count is given twice"),
        (["place=x", "place.city=y"], "place already has a value"),
        (["text=@nowhere"], "text: nowhere can't be read: No such file or directory; for a value that begins with @"),
    ],
)
def test_a_mistake_is_said_with_its_place(words: list[str], said: str) -> None:
    with pytest.raises(StartError) as found:
        parse_arguments(words, SCHEMA)
    assert said in str(found.value)


def test_a_value_comes_from_a_file_or_from_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("two\nlines, Åse\n", encoding="utf-8")
    (tmp_path / "place.json").write_text('{"city": "Oslo"}')
    (tmp_path / "bytes").write_bytes(b"\xff")
    words = [f"text=@{tmp_path}/text", f"place:=@{tmp_path}/place.json"]
    assert parse_arguments(words, SCHEMA) == {"text": "two\nlines, Åse\n", "place": {"city": "Oslo"}}
    with pytest.raises(StartError, match="is not UTF-8 at byte 0"):
        parse_arguments([f"text=@{tmp_path}/bytes"], SCHEMA)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"typed")))
    assert parse_arguments(["text=@-"], SCHEMA) == {"text": "typed"}


def test_arguments_of_a_prompt_are_texts() -> None:
    """PRM-03."""
    assert parse_strings(["count=5", "name=a.b", "a.b=1"]) == {"count": "5", "name": "a.b", "a.b": "1"}
