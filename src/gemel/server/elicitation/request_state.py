"""Encrypting `requestState`: what a handler must remember travels through the client, which can't read or change it.

The keys of a `KeyRing` can be changed while calls are under way, and several processes can share them. See
basic/patterns/mrtr of the specification, "Server Requirements".
"""

from __future__ import annotations

import base64
import logging
import os
import time
from collections.abc import Iterable, Sequence
from typing import NoReturn

import msgspec

from gemel.backends.base import Backend, store_refusal
from gemel.backends.keys import make_key
from gemel.encryption import KEY_BYTES, KeyRing
from gemel.errors import BackendError, GemelError, InvalidParams, NotFinished, Overloaded
from gemel.server.elicitation.shared_keys import SharedKeys

logger = logging.getLogger("gemel")

#: So many used states are remembered before those that have expired are looked for.
REMEMBERED = 100_000
#: Seconds for which what steps have done is tried to be kept while the backend can't be reached or is full.
PATIENCE = 10.0
#: Seconds by which the clocks of machines may differ.
CLOCK_SKEW = 60.0


class _Plain(msgspec.Struct, array_like=True):
    """What is encrypted: when it expires, what it is bound to, and the payload."""

    expires: float
    bound: bytes
    payload: bytes


_decoder = msgspec.msgpack.Decoder(_Plain)


class RequestStateCodec:
    """Encrypts and decrypts states.

    The keys are those that are given, else those that the processes of the server share in its backend, else a random one that
    only this process knows.

    Args:
        keys: Secrets of at least 32 bytes, the current one first.
        ttl: Seconds until a state expires.
        once: Whether a state is accepted only once, by all processes that share the backend.
        backend: What the processes of the server share.
        server: The server's name. What another server encrypted is not accepted, even if it has the same keys.

    Raises:
        DefinitionError: A key is too short.
    """

    def __init__(self, keys: Sequence[bytes], *, ttl: float, once: bool, backend: Backend, server: str) -> None:
        #: Whether other processes can decrypt what this one encrypts.
        self.shared = bool(keys) or backend.shared
        self._ttl = ttl
        purpose = make_key("gemel request state", server).encode()
        self._shared_keys: SharedKeys | None = None
        if backend.shared and not keys:
            self._shared_keys = SharedKeys(backend, purpose, ttl)
        else:
            self._ring = KeyRing(keys or [os.urandom(KEY_BYTES)], purpose, name="requestState")
        self._once = once
        #: Where results of steps are kept that are too large for a state; None if other processes would not find them.
        self._results = backend if backend.shared or not keys else None
        self._backend = backend if backend.shared else None
        self._used: dict[bytes, float] = {}
        self._check_at = REMEMBERED

    @property
    def not_shared(self) -> str:
        """The states that were used, if each is accepted once, without a backend."""
        return "the request states that were used (state_once)" if self._once and self._backend is None else ""

    def expect_other_processes(self) -> None:
        """Keep no results of steps in the memory of this process: those that are forked from it would not find them."""
        self._results = self._backend

    async def encode(self, payload: bytes, bound: bytes) -> str:
        """The state as text. `bound` is whatever must be the same when it comes back. Raises Overloaded without keys."""
        ring = self._ring if self._shared_keys is None else await self._shared_keys.ring()
        inner = msgspec.msgpack.encode(_Plain(time.time() + self._ttl, bound, payload))
        return base64.urlsafe_b64encode(ring.encrypt(inner)).decode().rstrip("=")

    async def decode(self, state: str, bound: bytes) -> bytes:
        """The payload. Raises InvalidParams for a state that is foreign, changed, bound to something else, expired or used.

        Raises Overloaded if the backend can't be asked for its keys, or whether it was used.
        """
        from hmac import compare_digest

        nonce, inner = await self._decrypt(state)
        if not compare_digest(inner.bound, bound):
            raise InvalidParams("Invalid requestState: it belongs to another request")
        now = time.time()
        if inner.expires < now:
            raise InvalidParams("Invalid requestState: it has expired, start the call again")
        if self._once and not await self._consume(nonce, inner.expires, now):
            raise InvalidParams("Invalid requestState: it was used already")
        return inner.payload

    # ---------------------------------------------------------------- results of steps that are too large for a state

    async def store_result(self, step: str, text: bytes, function: str, *, ttl: float | None = None) -> str:
        """Keep the result of a step as long as a state. Returns the name by which a state refers to it.

        Args:
            step: The key of the step, with the id of its call.
            text: The result.
            function: The name of the function, for errors.
            ttl: Seconds that the state is kept; by default those of a state that a client carries.

        Raises:
            GemelError: There is no place for so large a result.
            NotFinished: The backend can't keep it now; the step has run.
        """
        from hashlib import sha256

        what = f"ctx.step({function}): its result has {len(text)} bytes"
        if self._results is None:
            raise GemelError(
                f"{what}, more than the client carries (`limits.step_bytes`): give the server a shared backend, or return "
                "less"
            )
        from gemel.backends.patience import store_patiently

        # With its content, since a client can repeat a round from which the step goes another way.
        name = sha256(step.encode() + sha256(text).digest()).hexdigest()
        try:
            results, kept = self._results, (ttl or self._ttl) + CLOCK_SKEW
            await store_patiently(
                lambda: results.set(_result_key(name), text, ttl=kept), PATIENCE, "The result of a step"
            )
        except ValueError as exc:
            raise GemelError(
                f"{what}, too many for the backend: return less, such as the name of a file: {exc}"
            ) from exc
        except (BackendError, Overloaded) as exc:
            logger.warning("%s, which can't be kept: %s", what, exc)
            raise NotFinished(f"{what}, which can't be kept now") from exc
        return name

    async def stored_result(self, name: str) -> bytes:
        """A result that was stored. Raises InvalidParams if it has expired, Overloaded if the backend can't be asked."""
        try:
            text = None if self._results is None else await self._results.get(_result_key(name))
        except (BackendError, Overloaded) as exc:
            raise store_refusal("The result of a step can't be read", exc) from exc
        return _expired() if text is None else text

    async def renew_results(self, names: Iterable[str], *, ttl: float | None = None) -> None:
        """Keep results as long as a state that is made now; `ttl` as for `store_result`. Raises as `stored_result` does."""
        for name in names:
            try:
                there = self._results is not None and await self._results.touch(
                    _result_key(name), ttl=(ttl or self._ttl) + CLOCK_SKEW
                )
            except (BackendError, Overloaded) as exc:
                raise store_refusal("The result of a step can't be kept", exc) from exc
            if not there:
                _expired()

    async def _decrypt(self, state: str) -> tuple[bytes, _Plain]:
        try:
            box = base64.b64decode(state + "=" * (-len(state) % 4), altchars=b"-_", validate=True)
            ring = self._ring if self._shared_keys is None else await self._shared_keys.ring(box)
            return ring.nonce(box), _decoder.decode(ring.decrypt(box))
        except (ValueError, msgspec.MsgspecError):
            raise InvalidParams("Invalid requestState: it was not made here, or was changed") from None

    async def _consume(self, nonce: bytes, expires: float, now: float) -> bool:
        """Whether a state was not used before."""
        if self._backend is not None:
            key = make_key("request-state", "used", nonce.hex())
            try:
                return await self._backend.claim(key, ttl=expires - now + CLOCK_SKEW)
            except (BackendError, Overloaded) as exc:
                raise store_refusal("It can't be told whether the requestState was used", exc) from exc
        if nonce in self._used:
            return False
        if len(self._used) >= self._check_at:
            self._used = {key: end for key, end in self._used.items() if end >= now}
            self._check_at = max(REMEMBERED, 2 * len(self._used))
        self._used[nonce] = expires
        return True


def _result_key(name: str) -> str:
    return make_key("request-state", "step", name)


def _expired() -> NoReturn:
    raise InvalidParams("Invalid requestState: the result of a step is not kept any more, start the call again")
