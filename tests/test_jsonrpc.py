"""Messages: from text to values and back, and what each kind of wrong text is called."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from gemel import ErrorObject, InvalidRequest, ParseError
from gemel.jsonrpc import ABSENT, Unreadable
from gemel.values.encoding import NotSerializable, encode_value
from tests.fuzz import messages
from tests.support import Failure, Notification, Request, Response, jsonrpc


def decode(text: str) -> Any:
    return jsonrpc.decode(text.encode())


def test_each_kind_of_message_is_told_by_its_members() -> None:
    """BASE-01, BASE-07, BASE-08, BASE-10."""
    assert decode('{"jsonrpc":"2.0","id":1,"method":"m"}') == Request(1, "m", ABSENT)
    assert decode('{"jsonrpc":"2.0","method":"m"}') == Notification("m", ABSENT)
    assert decode('{"jsonrpc":"2.0","id":"a","result":{}}').result == Raw(b"{}")
    failure = decode('{"jsonrpc":"2.0","id":"a","error":{"code":-1,"message":"no","data":[1]}}')
    assert failure == Failure("a", ErrorObject(-1, "no", [1]))


def test_members_may_stand_in_any_order_with_blanks_between_them_and_others_beside_them() -> None:
    found = decode(' \n{ "more" : {} , "params" : \t { "a" : 1 } , "method":"m","id" : 7 , "jsonrpc" : "2.0" } \r\n')
    assert (found.id, found.method, bytes(found.params)) == (7, "m", b'{ "a" : 1 }')


def test_params_stay_text() -> None:
    text = '{"a": [1, 2.50, "\\u00e9", null], "b": 123456789012345678901234567890}'
    assert bytes(decode(f'{{"jsonrpc":"2.0","id":1,"method":"m","params":{text}}}').params) == text.encode()


@pytest.mark.parametrize(
    "text", ["", " ", "{", "{]", "nul", '{"a":1}x', "'a'", '{"jsonrpc":"2.0",}', "\ufeff{}", "NaN"]
)
def test_what_is_not_json_is_a_parse_error(text: str) -> None:
    """ERR-01."""
    with pytest.raises(ParseError):
        decode(text)


@pytest.mark.parametrize(
    "data",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"\xff"}',
        b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":["\xff"]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xed\xa0\x80"}}',
        b"\xff\xfe{\x00}\x00",
        b'{"jsonrpc":"2.0","method":"\xc0\x80"}',
    ],
)
def test_what_is_not_utf_8_is_a_parse_error(data: bytes) -> None:
    """BASE-02, ERR-01."""
    with pytest.raises(ParseError):
        jsonrpc.decode(data)


def test_what_is_nested_too_deeply_is_a_parse_error() -> None:
    """ERR-01."""
    for text in ("[" * 100_000, '{"jsonrpc":"2.0","id":1,"result":' + "[" * 100_000, '{"a":' * 100_000):
        with pytest.raises((ParseError, InvalidRequest)):
            decode(text)


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        ("[]", None),
        ("7", None),
        ("null", None),
        ("{}", None),
        ('{"id":5,"method":"m"}', 5),
        ('{"jsonrpc":"2.1","id":"a","method":"m"}', "a"),
        ('{"jsonrpc":2.0,"id":"a","method":"m"}', "a"),
        ('{"jsonrpc":"2.0","id":null,"method":"m"}', None),
        ('{"jsonrpc":"2.0","id":true,"method":"m"}', None),
        ('{"jsonrpc":"2.0","id":1.0,"method":"m"}', None),
        ('{"jsonrpc":"2.0","id":{},"method":"m"}', None),
        ('{"jsonrpc":"2.0","id":5,"method":null}', 5),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":[]}', 5),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":null}', 5),
        ('{"jsonrpc":"2.0","id":5,"method":"m","params":"x"}', 5),
        ('{"jsonrpc":"2.0","id":5,"method":"m","result":{}}', 5),
        ('{"jsonrpc":"2.0","id":5,"method":"m","error":{}}', 5),
        ('{"jsonrpc":"2.0","id":5}', 5),
        ('{"jsonrpc":"2.0","id":5,"result":{},"error":{"code":1,"message":""}}', 5),
        ('{"jsonrpc":"2.0","result":{}}', None),
        ('{"jsonrpc":"2.0","id":5,"error":{"message":""}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":"1","message":""}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":1.5,"message":""}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":{"code":1}}', 5),
        ('{"jsonrpc":"2.0","id":5,"error":"no"}', 5),
    ],
)
def test_json_that_is_no_message_keeps_the_id_that_can_be_read(text: str, request_id: Any) -> None:
    """BASE-01, BASE-03, BASE-07, BASE-08, BASE-09, ERR-02."""
    with pytest.raises(Unreadable) as caught:
        decode(text)
    assert caught.value.error.code == -32600
    assert caught.value.request_id == request_id


@pytest.mark.parametrize(
    "request_id", [0, 1, -1, 2**53, 2**60, 2**63, 2**64, 2**70, -(2**70), "", "1", "a:b", "é", " "]
)
def test_ids_keep_value_and_type(request_id: Any) -> None:
    """BASE-03, BASE-06."""
    found = jsonrpc.decode(jsonrpc.encode_request(request_id, "m"))
    assert isinstance(found, Request)
    assert found.id == request_id
    assert type(found.id) is type(request_id)
    answer = json.loads(jsonrpc.encode_response(request_id, {}))
    assert answer == {"jsonrpc": "2.0", "id": request_id, "result": {}}


def test_an_error_may_lack_its_id_or_say_null() -> None:
    """BASE-09: read both, write none."""
    for text in (
        '{"jsonrpc":"2.0","error":{"code":1,"message":"x"}}',
        '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    ):
        assert decode(text) == Failure(None, ErrorObject(1, "x"))
    written = json.loads(jsonrpc.encode_failure(None, ErrorObject(-32700, "x")))
    assert written == {"jsonrpc": "2.0", "error": {"code": -32700, "message": "x"}}
    written = json.loads(jsonrpc.encode_failure("a", ErrorObject(1, "x")))
    assert written == {"jsonrpc": "2.0", "id": "a", "error": {"code": 1, "message": "x"}}


def test_what_is_absent_is_not_written_and_null_is() -> None:
    """BASE-08."""
    assert json.loads(jsonrpc.encode_notification("m")) == {"jsonrpc": "2.0", "method": "m"}
    assert json.loads(jsonrpc.encode_notification("m", UNSET)) == {"jsonrpc": "2.0", "method": "m"}
    assert json.loads(jsonrpc.encode_failure(1, ErrorObject(1, "x", None)))["error"] == {
        "code": 1,
        "message": "x",
        "data": None,
    }


@given(messages.ids, messages.methods, st.dictionaries(st.text(), messages.values, max_size=3))
def test_what_is_written_is_read_back(request_id: Any, method: str, params: dict[str, Any]) -> None:
    """BASE-02."""
    try:
        data = jsonrpc.encode_request(request_id, method, params)
    except UnicodeEncodeError:
        return  # a lone surrogate: no text at all
    found = jsonrpc.decode(data)
    assert isinstance(found, Request)
    assert (found.id, found.method, json.loads(bytes(found.params))) == (request_id, method, params)
    assert b"\n" not in data
    answered = jsonrpc.decode(jsonrpc.encode_response(request_id, params))
    assert isinstance(answered, Response)


class Measurement(msgspec.Struct):
    value: Any


class Written(msgspec.Struct):
    text: Raw
    value: Any


@dataclass
class Reading:
    value: Any


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "around",
    [
        lambda number: number,
        lambda number: {"a": [1, {"b": number}]},
        lambda number: [Measurement(number)],
        lambda number: {"text": "x" * 100_000, "value": number},
        lambda number: [2**80, number],
        lambda number: [Written(Raw(b"1"), number)],
        lambda number: [2**80, Reading(number)],
        lambda number: [2**80, Reading({1: number})],
        lambda number: {1, 2**80, number},
    ],
)
def test_what_has_no_form_in_json_is_not_written(number: float, around: Callable[[float], Any]) -> None:
    with pytest.raises(NotSerializable, match=r"NaN|infinity"):
        encode_value(around(number))
    with pytest.raises(NotSerializable, match=r"NaN|infinity"):
        jsonrpc.encode_request(1, "m", {"a": around(number)})


@pytest.mark.parametrize(
    "value", [None, {"a": None}, [1e308, -1.7976931348623157e308, None], [2**80, None], Measurement(None)]
)
def test_null_is_written_beside_any_number(value: Any) -> None:
    for written in (value, {"text": "ˈʃtuːlɪnɡ ˢ" * 10_000, "value": value}):
        assert msgspec.json.decode(encode_value(written)) == msgspec.to_builtins(written)


# ---------------------------------------------------------------- batches


@pytest.mark.parametrize(
    ("text", "batch"), [(b"[]", True), (b" \n\t[", True), (b"{}", False), (b"", False), (b'"["', False)]
)
def test_a_batch_begins_with_a_bracket(text: bytes, batch: bool) -> None:
    """BASE-11."""
    assert jsonrpc.is_batch(text) is batch


def test_a_batch_is_split_into_its_texts() -> None:
    """BASE-11."""
    assert jsonrpc.split_batch(b' [ {"a" : 1}, 7 ,[ ] ]', 3) == [b'{"a" : 1}', b"7", b"[ ]"]


@pytest.mark.parametrize("text", [b"[]", b"[1,2,3,4]"])
def test_an_empty_or_too_long_batch_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match="A batch holds 1 to 3 messages"):
        jsonrpc.split_batch(text, 3)


def test_a_broken_batch_is_a_parse_error() -> None:
    """ERR-01."""
    for text in (b"[1,", b"[}", b"[" * 100_000):
        with pytest.raises(ParseError):
            jsonrpc.split_batch(text, 3)


# ---------------------------------------------------------------- repeated members

REQUEST = '"jsonrpc":"2.0","id":1,"method":"m","params":{}'


@pytest.mark.parametrize("member", ['"jsonrpc":"2.0"', '"method":"other"', '"params":{"a":1}', '"more":1,"more":2'])
@pytest.mark.parametrize("blank", ["", " "])
def test_a_repeated_member_of_the_envelope_is_refused_with_the_id(member: str, blank: str) -> None:
    for text in (f"{{{REQUEST},{blank}{member}}}", f"{{{member},{blank}{REQUEST}}}"):
        with pytest.raises(Unreadable) as caught:
            decode(text)
        assert caught.value.request_id == 1


@pytest.mark.parametrize("member", ['"id":2', '"id":1', '"id":"1"', '"\\u0069d":2', '"i\\u0064" : 1'])
def test_a_repeated_id_is_not_used(member: str) -> None:
    """Nobody knows which of the two the sender meant."""
    for text in (f"{{{REQUEST},{member}}}", f"{{{member},{REQUEST}}}"):
        with pytest.raises(Unreadable) as caught:
            decode(text)
        assert caught.value.request_id is None


@pytest.mark.parametrize(
    "text",
    [
        '{"jsonrpc":"2.0","method":"m","method":"m"}',
        '{"jsonrpc":"2.0","id":1,"result":{},"result":{}}',
        '{"jsonrpc":"2.0","id":1,"id":2,"result":{}}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""},"error":{"code":1,"message":""}}',
        '{"jsonrpc":"2.0","id":1,"method":"m","id":2}',
    ],
)
def test_a_repeated_member_of_any_message_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        decode(text)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["a", "b", "\u00e9", 'q"', "x:y,"]), st.sampled_from([1, 12, "1", '{"a":1}', [], {}])
        ),
        max_size=5,
    )
)
def test_a_repeated_member_is_found_whatever_the_values(members: list[tuple[str, Any]]) -> None:
    """Compared with the reader of Python, which gives all members."""
    for separator, colon in ((",", ":"), (" ,\n", " : ")):
        text = "{" + separator.join(json.dumps(name) + colon + json.dumps(value) for name, value in members) + "}"
        names = [name for name, _ in members]
        assert jsonrpc.has_repeated_member(text.encode()) == (len(names) != len(set(names)))


def test_members_that_nobody_knows_are_not_looked_through_without_limit() -> None:
    """The work of looking for repeated members is bounded."""
    more = ",".join(f'"{number}":1' for number in range(20_000))
    with pytest.raises(Unreadable, match="bytes of other members"):
        decode(f"{{{REQUEST},{more}}}")
    with pytest.raises(Unreadable, match="bytes of other members"):
        decode(f'{{{REQUEST},"more":"{"x" * 70_000}"}}')
    assert decode(f'{{{REQUEST[:-2]}{{"text":"{"x" * 100_000}"}}}}').id == 1


@pytest.mark.parametrize(
    "text",
    [
        '{ "jsonrpc" : "2.0", "id" : 1, "method" : "m", "params" : {"text":"LONG"} }',
        '{ "jsonrpc" : "2.0", "id" : 1, "result" : {"text":"LONG"} }',
        '{ "jsonrpc" : "2.0", "id" : 1, "error" : {"code":1,"message":"","data":"LONG"} }',
    ],
)
def test_what_a_message_is_about_may_be_long_in_any_notation(text: str) -> None:
    assert decode(text.replace("LONG", "x" * 100_000)).id == 1


@pytest.mark.parametrize("count", [jsonrpc.MAX_MEMBERS, jsonrpc.MAX_MEMBERS + 1])
def test_so_many_members_are_looked_through(count: int) -> None:
    """Of more it is not known whether one is repeated."""
    text = "{" + ",".join(f'"{number}":1' for number in range(count)) + "}"
    assert jsonrpc.has_repeated_member(text.encode()) == (count > jsonrpc.MAX_MEMBERS)


@pytest.mark.parametrize("text", ["[]", "{", '{"a":}'])
def test_what_is_no_object_is_not_said_to_have_each_member_once(text: str) -> None:
    assert jsonrpc.has_repeated_member(text.encode())


def test_an_id_in_the_params_is_not_the_one_of_the_request() -> None:
    with pytest.raises(Unreadable) as caught:
        decode('{"jsonrpc":"2.0","id":1,"method":"m","method":"n","params":{"id":5}}')
    assert caught.value.request_id == 1


@pytest.mark.parametrize("message", [f"{{{REQUEST}}}", '{"jsonrpc":"2.0","method":"m"}'])
def test_blanks_around_a_message_are_no_members(message: str) -> None:
    blanks = " \t\r\n" * 100_000
    assert decode(blanks + message + blanks) == decode(message)
    with pytest.raises(Unreadable):
        decode(blanks + message[:-1] + ',"method":"m"}' + blanks)


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (b"Loading the model", True),
        (b'{"level": "info", "message": "ready"}', True),
        (b'{"id": 1, "level": "info"}', True),
        (b'{"jsonrpc": "2.0", "level": "info"}', False),
        (b'{"id": 1, "result": {}}', False),
        (b'{"id": 1, "error": {}}', False),
    ],
)
def test_what_a_program_prints_is_told_from_a_malformed_message(text: bytes, printed: bool) -> None:
    assert jsonrpc.is_print(text) is printed


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ('{"id":1}', "response"),
        ('{"result":1}', "response"),
        ('{"error":1}', "response"),
        ('{"jsonrpc":"2.0"}', None),
        ('{"method":1}', "notification"),
        ('{"method":1,"id":1}', "request"),
        ('{"method":1,"result":1}', None),
        ('{"method":1,"error":1}', None),
        ("[]", None),
    ],
)
def test_the_members_of_a_malformed_message_tell_what_it_was_meant_to_be(text: str, meant: str | None) -> None:
    assert jsonrpc.meant_as(text.encode()) == meant


# ---------------------------------------------------------------- what is not JSON

#: Parts of params that no reader of JSON takes, or that hold half of a surrogate pair.
BROKEN = [
    b"NaN",
    b"-Infinity",
    b"tru",
    b'"\xff"',
    b'"\\ud83d"',
    b'"\\udc00"',
    b'"\\x"',
    b'"\x01"',
    b"[1,]",
    b'{"a" 1}',
    b"1 2",
]


@given(
    messages.ids,
    st.dictionaries(st.sampled_from(["id", "method", "a{", 'b"', "c\\"]), messages.values, max_size=4),
    st.sampled_from(BROKEN),
    st.permutations(["jsonrpc", "id", "method", "params"]),
    st.sampled_from([",", " ,\n"]),
)
def test_the_id_at_the_top_level_is_read_wherever_the_message_is_broken(
    request_id: Any, params: dict[str, Any], broken: bytes, order: list[str], comma: str
) -> None:
    """ERR-01, BASE-09: and no other one, whatever the params hold."""
    texts = {
        "jsonrpc": b'"2.0"',
        "id": json.dumps(request_id).encode(),
        "method": b'"m"',
        "params": b'{"broken":' + broken + b"," + json.dumps(params).encode().removeprefix(b"{"),
    }
    if not params:
        texts["params"] = b'{"broken":' + broken + b"}"
    text = b"{" + comma.encode().join(f'"{name}":'.encode() + texts[name] for name in order) + b"}"
    with pytest.raises((ParseError, Unreadable)) as refused:
        jsonrpc.decode(text)
    found = jsonrpc.id_of(refused.value, text)
    assert found == request_id
    assert type(found) is type(request_id)
    assert jsonrpc.meant_as(text) == "request"
    twice = text[:-1] + b',"id":1}'
    assert jsonrpc.id_of(ParseError("x"), twice) is None


@pytest.mark.parametrize(
    ("text", "request_id"),
    [
        ('{"id":1,"method":', 1),
        ('{"id":1,"params":{"id":2,"text":"cut', 1),
        ('{"id":1,"params":{"id":2}}}', 1),
        ('{"method":"m","id":12', None),
        ('{"method":"m","params":{"id":5}', None),
        ('{"params":{"a":[1},"id":5}', None),
        ('{"params":{"text":"a"b"},"id":5}', None),
        ('{"id":5,"params":{"text":"a"b"}}', 5),
        ('{"id":1 "method":"m","id":2}', None),
        ('{"id":1}{"id":2}', None),
        ('[{"id":1},NaN]', None),
        ('say {"id":1,"x":NaN}', None),
        ("{'id': 1}", None),
    ],
)
def test_an_id_is_read_only_where_no_other_can_be_meant(text: str, request_id: Any) -> None:
    """An error for the wrong id would fail somebody else's call."""
    assert jsonrpc.id_of(ParseError("x"), text.encode()) == request_id


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 4_000_000,
        b'{"a":' * 800_000,
        b'{"id":1,"params":[' + b'{"a":["b"]},' * 400_000 + b"NaN]}",
        b'{"id":1,' + b'"a":1,' * 600_000,
        b'{"a":["' + b'"i' * 2_000_000,
        b'{"a":' + b" " * 4_000_000,
    ],
)
def test_the_work_of_reading_a_broken_message_is_bounded(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """By bytes, brackets, levels and members."""
    steps = 0
    match = jsonrpc._BRACKET.match

    def count(*arguments: Any) -> Any:
        nonlocal steps
        steps += 1
        return match(*arguments)

    class Counted:
        match = staticmethod(count)

    monkeypatch.setattr(jsonrpc, "_BRACKET", Counted)
    jsonrpc.meant_as(text)
    assert steps <= jsonrpc.MAX_BRACKETS
