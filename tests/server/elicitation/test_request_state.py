"""Sealed state: readable and changeable by nobody but us, for this caller, this request and a while."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemel import DefinitionError, InvalidParams, Server
from gemel.backends import MemoryBackend
from gemel.server.elicitation import request_state
from gemel.server.elicitation.request_state import RequestStateCodec

ValueT = TypeVar("ValueT")

KEY = secrets.token_bytes(32)
PAYLOAD, BOUND = b"what we remember", b"who asks for what"


def result_of(work: Coroutine[Any, Any, ValueT]) -> ValueT:
    """What it returns: nothing waits where no other process is asked."""
    try:
        work.send(None)
    except StopIteration as exc:
        value: ValueT = exc.value
        return value
    raise AssertionError("it waits")


class Codec:
    """A codec of one process."""

    def __init__(self, keys: Sequence[bytes], ttl: float, once: bool) -> None:
        self.inner = RequestStateCodec(keys, ttl=ttl, once=once, backend=MemoryBackend(), server="states")

    def encode(self, payload: bytes, bound: bytes) -> str:
        return result_of(self.inner.encode(payload, bound))

    def decode(self, state: str, bound: bytes) -> bytes:
        return result_of(self.inner.decode(state, bound))


def new_codec(keys: Sequence[bytes] = (), *, ttl: float = 60.0, once: bool = False) -> Codec:
    return Codec(keys, ttl, once)


def changed(text: str, place: int) -> str:
    """The state with one bit of one byte changed."""
    box = bytearray(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    box[place % len(box)] ^= 1 << (place % 8)
    return base64.urlsafe_b64encode(box).decode().rstrip("=")


@given(st.binary(max_size=200), st.binary(max_size=40))
def test_what_was_sealed_opens(payload: bytes, bound: bytes) -> None:
    codec = new_codec()
    assert codec.decode(codec.encode(payload, bound), bound) == payload


def test_nobody_can_read_it_and_no_two_are_alike() -> None:
    codec = new_codec()
    one, two = codec.encode(PAYLOAD, BOUND), codec.encode(PAYLOAD, BOUND)
    assert one != two
    for text in (one, two):
        box = base64.urlsafe_b64decode(text + "===")
        assert PAYLOAD not in box
        assert BOUND not in box


def test_every_changed_byte_is_noticed() -> None:
    """MRTR-11."""
    codec = new_codec()
    text = codec.encode(PAYLOAD, BOUND)
    for place in range(len(text)):
        with pytest.raises(InvalidParams, match="not made here, or was changed"):
            codec.decode(changed(text, place), BOUND)
        with pytest.raises(InvalidParams, match="not made here, or was changed"):
            codec.decode(f"{text[:place]}!!!!{text[place:]}", BOUND)


@given(st.text(max_size=80) | st.binary(max_size=80).map(lambda data: base64.urlsafe_b64encode(data).decode()))
def test_anything_else_is_refused_and_nothing_worse(text: str) -> None:
    """MRTR-11."""
    with pytest.raises(InvalidParams):
        new_codec().decode(text, BOUND)


def test_it_belongs_to_one_request() -> None:
    """MRTR-12."""
    codec = new_codec()
    with pytest.raises(InvalidParams, match="belongs to another request"):
        codec.decode(codec.encode(PAYLOAD, BOUND), b"another")


def test_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """MRTR-12."""
    codec = new_codec(ttl=60)
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now)
    text = codec.encode(PAYLOAD, BOUND)
    monkeypatch.setattr(time, "time", lambda: now + 60)
    assert codec.decode(text, BOUND) == PAYLOAD
    monkeypatch.setattr(time, "time", lambda: now + 61)
    with pytest.raises(InvalidParams, match="has expired"):
        codec.decode(text, BOUND)


def test_it_opens_once_where_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """MRTR-13."""
    codec = new_codec(once=True, ttl=60)
    texts = [codec.encode(PAYLOAD, BOUND) for _ in range(2)]
    for text in texts:
        with pytest.raises(InvalidParams, match="belongs to another"):
            codec.decode(text, b"another")  # a wrong try uses nothing up
        assert codec.decode(text, BOUND) == PAYLOAD
        with pytest.raises(InvalidParams, match="used already"):
            codec.decode(text, BOUND)


def test_it_opens_again_where_nothing_else_is_wanted() -> None:
    """A client that got no response repeats its request."""
    codec = new_codec()
    text = codec.encode(PAYLOAD, BOUND)
    assert [codec.decode(text, BOUND), codec.decode(text, BOUND)] == [PAYLOAD, PAYLOAD]


def test_what_was_used_is_forgotten_when_it_has_expired(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a server that takes each state once is bounded, and what it forgets can't be used again."""
    monkeypatch.setattr(request_state, "REMEMBERED", 3)
    codec, now, texts = new_codec(once=True, ttl=60), time.time(), []
    for after in (0, 30, 60, 100, 140):
        monkeypatch.setattr(time, "time", lambda after=after: now + after)
        for _ in range(3):
            texts.append(codec.encode(PAYLOAD, BOUND))
            codec.decode(texts[-1], BOUND)
            for text in texts:
                with pytest.raises(InvalidParams, match=r"used already|has expired"):
                    codec.decode(text, BOUND)
    assert len(codec.inner._used) == 6, "those of the last minute"


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({}, True),
        ({"state_keys": [KEY]}, False),
        ({"eras": ["2025"]}, False),
        ({"backend": "sqlite:///states.db"}, False),
    ],
)
def test_several_workers_without_shared_keys_are_worth_a_warning(
    options: Any, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    Server("states", **options).check_workers()
    assert ("without state_keys" in caplog.text) is warned


def test_keys_are_shared_and_changed_while_calls_are_under_way() -> None:
    """MRTR-11: the first seals, all open."""
    old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    before, during, after = new_codec([old]), new_codec([new, old]), new_codec([new])
    assert during.decode(before.encode(PAYLOAD, BOUND), BOUND) == PAYLOAD
    assert after.decode(during.encode(PAYLOAD, BOUND), BOUND) == PAYLOAD
    with pytest.raises(InvalidParams):
        before.decode(during.encode(PAYLOAD, BOUND), BOUND)
    with pytest.raises(InvalidParams):
        after.decode(before.encode(PAYLOAD, BOUND), BOUND)


def test_without_keys_only_this_process_can_open_it() -> None:
    text = new_codec().encode(PAYLOAD, BOUND)
    with pytest.raises(InvalidParams):
        new_codec().decode(text, BOUND)


def test_a_short_key_is_refused() -> None:
    with pytest.raises(DefinitionError, match="at least 32 bytes"):
        new_codec([KEY, b"x" * 31])
