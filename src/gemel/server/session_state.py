"""`ctx.session_state`: what functions keep for a session of a handshake client, as JSON by key.

It is in the session itself, or in the record of an HTTP session that several processes serve, and ends with it.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar, overload, runtime_checkable

from msgspec import Raw

from gemel.errors import DefinitionError, GemelError, NoSession, shorten
from gemel.protocol.records import Call
from gemel.server.functions.annotations import shown
from gemel.session import Session
from gemel.values.encoding import NotSerializable, encode_value
from gemel.values.reading import read_as

ValueT = TypeVar("ValueT")

_INSTEAD = (
    "keep it for the user, in a database or server.backend by ctx.principal, or return a handle that the model passes to the "
    "next call"
)


def session_state(session: Session, call: Call) -> SessionState:
    """The state of the session that a call belongs to. Raises NoSession if it belongs to none."""
    if not call.era.has_sessions:
        raise NoSession(f"ctx.session_state: clients of {call.revision} have no session: {_INSTEAD}")
    if session.channel.kind == "background":
        raise NoSession(f"ctx.session_state: a task does not belong to a session, which it outlives: {_INSTEAD}")
    if session.connection.one_shot:
        raise NoSession(f"ctx.session_state: this server has no HTTP sessions (sessions=False): {_INSTEAD}")
    return SessionState(session)


@runtime_checkable
class SharedStateChannel(Protocol):
    """A channel of a session that several processes serve, and that keeps `ctx.session_state` for all of them.

    Both methods raise NoSession if the session has ended, and BackendError if the store can't be reached.
    """

    async def read_state(self) -> Mapping[str, Raw]:
        """Return what is kept, as JSON by its keys."""
        ...

    async def change_state(self, change: Callable[[dict[str, Raw]], bool]) -> None:
        """Change what is kept, as one atomic step among all processes.

        Args:
            change: Changes a copy, and returns whether there is something to store. It is called again if another process
                was faster; what it raises ends the change.
        """


class SessionState:
    """Values by key that live as long as the session of a client, in all processes that serve it; see `Context.session_state`.

    A value is stored as JSON: what you get is a copy, and changing it changes nothing until it is set. How much a session keeps
    is bounded by `Limits.session_state_keys` and `Limits.session_state_bytes`.

    Args:
        session: The session.
    """

    __slots__ = ("_session",)

    def __init__(self, session: Session) -> None:
        self._session = session

    @overload
    async def get(self, key: str) -> Any: ...

    @overload
    async def get(self, key: str, kind: type[ValueT]) -> ValueT | None: ...

    @overload
    async def get(self, key: str, kind: type[ValueT], default: ValueT) -> ValueT: ...

    @overload
    async def get(self, key: str, *, default: Any) -> Any: ...

    async def get(self, key: str, kind: Any = Any, default: Any = None) -> Any:
        """Return a value: `cart = await ctx.session_state.get("cart", list[str], [])`.

        Args:
            key: Its key.
            kind: The type to return it as; plain JSON types by default.
            default: What to return if there is none.

        Returns:
            The value, or `default`.

        Raises:
            GemelError: What is stored does not fit the type.
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        text = (await self._read()).get(_checked(key))
        return default if text is None else _value(key, text, kind)

    async def set(self, key: str, value: object) -> None:
        """Store a value, in place of an earlier one. For one that depends on the earlier one use `update`.

        Args:
            key: Its key.
            value: A JSON value, dataclass, Struct or model.

        Raises:
            GemelError: JSON can't represent the value, or the session would keep too much.
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        text = _text(_checked(key), value)
        await self._change(lambda state: self._put(state, key, text))

    async def delete(self, key: str) -> bool:
        """Delete a value.

        Args:
            key: Its key.

        Returns:
            Whether there was one: of several callers one gets True.

        Raises:
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        deleted = False

        def delete(state: dict[str, Raw]) -> bool:
            nonlocal deleted
            deleted = state.pop(key, None) is not None
            return deleted

        _checked(key)
        await self._change(delete)
        return deleted

    @overload
    async def update(self, key: str, function: Callable[[Any], ValueT], *, default: Any = None) -> ValueT: ...

    @overload
    async def update(self, key: str, function: Callable[[ValueT | None], ValueT], kind: type[ValueT]) -> ValueT: ...

    @overload
    async def update(
        self, key: str, function: Callable[[ValueT], ValueT], kind: type[ValueT], default: ValueT
    ) -> ValueT: ...

    async def update(self, key: str, function: Callable[[Any], Any], kind: object = Any, default: object = None) -> Any:
        """Change a value as one atomic step: `await ctx.session_state.update("visits", lambda n: n + 1, default=0)`.

        Nothing is lost when several calls, in one or more processes, change it at once.

        Args:
            key: Its key.
            function: A quick sync function that gets the current value and returns the new one. It is called again if another
                process was faster, so it should do nothing else. If it raises, nothing is changed.
            kind: The type of the value; plain JSON types by default.
            default: What `function` gets if there is no value.

        Returns:
            The new value.

        Raises:
            DefinitionError: The function is async.
            GemelError: JSON can't represent the new value, what is stored does not fit the type, or the session would keep too
                much.
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        value: Any = None

        def change(state: dict[str, Raw]) -> bool:
            nonlocal value
            present = state.get(key)
            value = function(copy.deepcopy(default) if present is None else _value(key, present, kind))
            if isinstance(value, Awaitable):
                if isinstance(value, Coroutine):
                    value.close()
                raise DefinitionError(
                    f"ctx.session_state.update({key!r}): {shown(function)} is async, and may be called more than once: get the "
                    "new value first, and give a sync function that combines it with the current one"
                )
            text = _text(key, value)
            _value(key, text, kind, "the new value of")
            return self._put(state, key, text)

        _checked(key)
        await self._change(change)
        return value

    async def keys(self) -> list[str]:
        """Return the keys that have values.

        Returns:
            The keys, in the order in which they were first set.

        Raises:
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        return list(await self._read())

    async def clear(self) -> None:
        """Delete all values.

        Raises:
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """

        def clear(state: dict[str, Raw]) -> bool:
            had_any = bool(state)
            state.clear()
            return had_any

        await self._change(clear)

    # ---------------------------------------------------------------- where it is

    async def _read(self) -> Mapping[str, Raw]:
        channel = self._session.channel
        if isinstance(channel, SharedStateChannel):
            return await channel.read_state()
        return self._own()

    async def _change(self, change: Callable[[dict[str, Raw]], bool]) -> None:
        channel = self._session.channel
        if isinstance(channel, SharedStateChannel):
            await channel.change_state(change)
            return
        state = dict(self._own())
        if change(state):
            self._session.kept = state

    def _own(self) -> Mapping[str, Raw]:
        if self._session.connection.closed is not None:
            raise NoSession("ctx.session_state: the session has ended")
        return self._session.kept or {}

    def _put(self, state: dict[str, Raw], key: str, text: Raw) -> bool:
        """Store a value in a copy of the state. Returns whether it is another one. Raises GemelError if it is too much."""
        if state.get(key) == text:
            return False
        state[key] = text
        limits = self._session.connection.limits
        if len(state) > limits.session_state_keys:
            raise GemelError(
                f"ctx.session_state: a session keeps at most {limits.session_state_keys} keys, see Limits.session_state_keys: "
                f"delete some before {key!r}, or {_INSTEAD}"
            )
        size = sum(len(encode_value(name)) + len(each) for name, each in state.items())
        if size > limits.session_state_bytes:
            raise GemelError(
                f"ctx.session_state: with {key!r} the session would keep {size} bytes, and it keeps at most "
                f"{limits.session_state_bytes}, see Limits.session_state_bytes: {_INSTEAD}"
            )
        return True


class SyncSessionState:
    """`ctx.sync.session_state`: the same as plain calls, for sync functions; see `SessionState`."""

    __slots__ = ("_run", "_state")

    def __init__(self, state: SessionState, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._state = state
        self._run = run

    @overload
    def get(self, key: str) -> Any: ...

    @overload
    def get(self, key: str, kind: type[ValueT]) -> ValueT | None: ...

    @overload
    def get(self, key: str, kind: type[ValueT], default: ValueT) -> ValueT: ...

    @overload
    def get(self, key: str, *, default: Any) -> Any: ...

    def get(self, key: str, kind: Any = Any, default: Any = None) -> Any:
        """Return a value; see `SessionState.get`.

        Args:
            key: Its key.
            kind: The type to return it as; plain JSON types by default.
            default: What to return if there is none.

        Returns:
            The value, or `default`.

        Raises:
            GemelError: What is stored does not fit the type.
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        return self._run(self._state.get(key, kind, default))

    def set(self, key: str, value: object) -> None:
        """Store a value; see `SessionState.set`.

        Args:
            key: Its key.
            value: A JSON value, dataclass, Struct or model.

        Raises:
            GemelError: JSON can't represent the value, or the session would keep too much.
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        self._run(self._state.set(key, value))

    def delete(self, key: str) -> bool:
        """Delete a value; see `SessionState.delete`.

        Args:
            key: Its key.

        Returns:
            Whether there was one.

        Raises:
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        deleted: bool = self._run(self._state.delete(key))
        return deleted

    @overload
    def update(self, key: str, function: Callable[[Any], ValueT], *, default: Any = None) -> ValueT: ...

    @overload
    def update(self, key: str, function: Callable[[ValueT | None], ValueT], kind: type[ValueT]) -> ValueT: ...

    @overload
    def update(self, key: str, function: Callable[[ValueT], ValueT], kind: type[ValueT], default: ValueT) -> ValueT: ...

    def update(self, key: str, function: Callable[[Any], Any], kind: Any = Any, default: Any = None) -> Any:
        """Change a value as one atomic step; see `SessionState.update`.

        Args:
            key: Its key.
            function: A quick function that gets the current value and returns the new one. It runs on the event loop, once or
                more.
            kind: The type of the value; plain JSON types by default.
            default: What `function` gets if there is no value.

        Returns:
            The new value.

        Raises:
            DefinitionError: The function is async.
            GemelError: JSON can't represent the new value, what is stored does not fit the type, or the session would keep too
                much.
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        return self._run(self._state.update(key, function, kind, default))

    def keys(self) -> list[str]:
        """Return the keys that have values; see `SessionState.keys`.

        Returns:
            The keys.

        Raises:
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        keys: list[str] = self._run(self._state.keys())
        return keys

    def clear(self) -> None:
        """Delete all values; see `SessionState.clear`.

        Raises:
            NoSession: The session has ended.
            BackendError: The backend that keeps the session can't be reached.
        """
        self._run(self._state.clear())


# ---------------------------------------------------------------- values


def _checked(key: object) -> str:
    """A key. Raises DefinitionError for what is none."""
    if not isinstance(key, str) or not key:
        raise DefinitionError(f"ctx.session_state: a key is a text that is not empty, not {shorten(repr(key))}")
    return key


def _value(key: str, text: Raw, kind: object, what: str = "what is stored as") -> Any:
    """A stored value as one of this type. Raises GemelError if it does not fit, DefinitionError if it can't be read."""
    try:
        return read_as(kind, bytes(text))
    except TypeError as exc:
        raise DefinitionError(f"ctx.session_state: {shown(kind)} can't be kept: {exc}") from exc
    except ValueError:
        raise GemelError(f"ctx.session_state: {what} {key!r} is not {shown(kind)}") from None


def _text(key: str, value: object) -> Raw:
    """A value as JSON text. Raises GemelError if JSON can't represent it."""
    try:
        return Raw(encode_value(value))
    except NotSerializable as exc:
        raise GemelError(f"ctx.session_state: JSON can't represent what was given for {key!r}: {exc}") from exc
