"""Strategies for what may stand on a wire: JSON values, messages of all kinds, nearly-messages, and plain garbage."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from gemel.schema.methods import METHODS
from tests.support import REVISIONS

PREFIX = "io.modelcontextprotocol/"

#: Few values, so that they meet again: look-alikes of different type, and the edges of what an id can be.
ids: SearchStrategy[Any] = st.sampled_from([1, "1", 2, 0, "", -1, "a:b", 2**60, 2**64, 2**70])
no_ids: SearchStrategy[Any] = st.sampled_from([None, True, 1.0, 1.5, [], {}, [1]])
methods = st.sampled_from([*METHODS, "acme/search", "", "rpc.discover", "Tools/Call"])
revisions = st.sampled_from([*REVISIONS, "2031-01-01", "", "1.0"])

scalars: SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=8),
    revisions,
)
values: SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def metas(draw: st.DrawFn) -> dict[str, Any]:
    """A `_meta` with some of the reserved keys, well or ill filled."""
    fitting: dict[str, SearchStrategy[Any]] = {
        f"{PREFIX}protocolVersion": revisions,
        f"{PREFIX}clientCapabilities": st.just({}),
        f"{PREFIX}clientInfo": st.just({"name": "fuzz", "version": "1"}),
        f"{PREFIX}logLevel": st.just("info"),
        "progressToken": ids,
    }
    meta: dict[str, Any] = {}
    for key, fits in fitting.items():
        choice = draw(st.integers(0, 5))
        if choice < 4:
            meta[key] = draw(fits)
        elif choice == 4:
            meta[key] = draw(values)
    return meta


@st.composite
def params(draw: st.DrawFn) -> Any:
    """The params of some method, or of none."""
    shape = draw(st.integers(0, 9))
    if shape == 0:
        return draw(values)
    found: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "name": st.just("add") | values,
                "arguments": values,
                "cursor": values,
                "requestId": ids | no_ids,
                "progressToken": ids | no_ids,
                "progress": values,
                "protocolVersion": revisions,
                "capabilities": st.just({}) | values,
                "clientInfo": st.just({"name": "fuzz", "version": "1"}) | values,
                "level": values,
            },
        )
    )
    if shape > 3:
        found["_meta"] = draw(metas()) if shape > 4 else draw(values)
    return found


def _of(**members: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"jsonrpc": st.just("2.0"), **members})


errors = st.fixed_dictionaries({"code": st.integers(), "message": st.text(max_size=5)}, optional={"data": values})
requests = _of(id=ids, method=methods, params=params()) | _of(id=ids, method=methods)
notifications = _of(method=methods, params=params()) | _of(method=methods)
responses = _of(id=ids, result=st.dictionaries(st.text(max_size=5), values, max_size=2))
failures = _of(id=ids | st.none(), error=errors) | _of(error=errors)
messages = st.one_of(requests, notifications, responses, failures)


@st.composite
def mangled(draw: st.DrawFn) -> Any:
    """A message with one member replaced, added or gone."""
    message = dict(draw(messages))
    member = draw(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "extra"]))
    if draw(st.booleans()):
        message.pop(member, None)
    else:
        message[member] = draw(st.one_of(values, no_ids, params(), errors))
    return message


def encoded(value: SearchStrategy[Any]) -> SearchStrategy[bytes]:
    """As JSON text: ASCII, or with what lies beyond it written out (lone surrogates make it bad UTF-8)."""
    return st.tuples(value, st.booleans()).map(
        lambda pair: json.dumps(pair[0], ensure_ascii=pair[1]).encode("utf-8", "surrogatepass")
    )


batches = st.lists(st.one_of(messages, mangled(), values), max_size=4)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """The text of a message with some bytes cut, doubled or overwritten."""
    data = bytearray(draw(encoded(messages | batches)))
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(data)))
        end = min(len(data), start + draw(st.integers(0, 8)))
        data[start:end] = draw(st.binary(max_size=4) | st.just(bytes(data[start:end]) * 2))
    return bytes(data)


_HOSTILE = [
    b"",
    b" ",
    b"\x00",
    b"{",
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":' + b"[" * 100_000,
    b'{"jsonrpc":"2.0","id":' + b"9" * 10_000 + b',"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"error":{"code":' + b"9" * 10_000 + b',"message":""}}',
    b'{"jsonrpc":"2.0","id":1,"result":' + b"9" * 10_000 + b"}",
    b'{"jsonrpc":"2.0","id":1,"method":"\\ud800"}',
    b'{"jsonrpc":"2.0","id":"\\udfff","method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"progressToken":1e999}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"p\xff"}',
    b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    '{"jsonrpc":"2.0","id":1,"method":"ping"}'.encode("utf-16"),
]
hostile = st.sampled_from(_HOSTILE)

#: Anything that can come down a wire.
texts: SearchStrategy[bytes] = st.one_of(
    encoded(messages), encoded(mangled()), encoded(batches), damaged(), hostile, st.binary(max_size=40)
)
