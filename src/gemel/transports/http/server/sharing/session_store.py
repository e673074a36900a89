"""The HTTP sessions of one app, of which other processes serve their part."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from functools import partial

import msgspec

from gemel.backends.base import store_refusal
from gemel.channel import Serve
from gemel.errors import BackendError, GemelError, Overloaded
from gemel.protocol.http.headers import Head
from gemel.protocol.http.request import Owner, Refusal
from gemel.protocol.records import Origin
from gemel.timeouts import wait_shared
from gemel.transports.http.server.exchange import overloaded
from gemel.transports.http.server.open_exchanges import OpenExchanges
from gemel.transports.http.server.options import HttpSettings
from gemel.transports.http.server.session import HttpSession
from gemel.transports.http.server.session_store import NOT_FOUND, TOO_MANY_SESSIONS, SessionStore
from gemel.transports.http.server.sharing.events import Budget
from gemel.transports.http.server.sharing.mailbox import BEAT, Mail, Mailbox, Work
from gemel.transports.http.server.sharing.session import STORE_GONE, Refused, SharedSession, SharedState, Sharing
from gemel.transports.http.server.sharing.session_count import SessionRegister
from gemel.transports.http.server.sharing.stored_sessions import (
    SessionFormat,
    SessionKeys,
    SessionRecord,
    others,
    process_of,
    session_key,
)

logger = logging.getLogger("gemel")

#: Processes that are remembered to have a session, beyond which those that have died are left out.
_MANY_WRITERS = 8
#: Changes that one process tells another; more count as everything.
_MOST_CHANGES, _CHANGES_BYTES = 1000, 256 << 10


class SharedSessionStore(SessionStore):
    """HTTP sessions in a backend. This process has those in memory that it has served lately."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: HttpSettings,
        serve: Serve,
        requests: OpenExchanges,
        state: SharedState,
    ) -> None:
        super().__init__(loop, options, serve, requests)
        self._state = state
        self._backend = state.backend
        self._mailbox = Mailbox(state.backend, self._handle, self._distrust, self._note_position)
        #: The positions of changes at the last two beats.
        self._positions = (0, 0)
        # A session that is used somewhere is renewed when a quarter of its idle time is over.
        ttl = max(1.25 * options.limits.session_idle, 0.1)
        self._sharing = Sharing(
            state, self._mailbox, Budget(options.limits.replay_total), self.update, self._settled, ttl
        )
        self._register = SessionRegister(state.backend, options.limits.stored_sessions, ttl)
        self._by_digest: dict[str, SharedSession] = {}
        self._restoring: dict[str, asyncio.Task[SharedSession | Refusal]] = {}
        self._made = 0
        self._renewing: asyncio.Task[None] | None = None
        self._reviewing: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """The app has started: be told of changes before the first session is."""
        self._state.changes.connect()

    def _note_position(self) -> None:
        position = self._state.changes.position
        self._positions = self._positions[1] or position, position

    def _settled(self) -> int:
        return self._positions[0]

    # ---------------------------------------------------------------- new sessions

    def _open(self, session_id: str, owner: Owner, holder: Hashable) -> SharedSession:
        self._made += 1
        keys = SessionKeys(self._state.name, session_id, owner)
        writer = f"{self._mailbox.name}-{self._made}"
        forget, sharing = self._forget, self._sharing
        return SharedSession(session_id, owner, holder, self._options, self._serve, forget, sharing, keys, writer)

    async def store(self, session: HttpSession) -> Refusal | None:
        """Store a session whose handshake succeeded. Returns a refusal if that fails."""
        assert isinstance(session, SharedSession)
        try:
            await self._mailbox.start()
            session.describe()
            box = session.keys.seal_record(session.record)
            if not self.make_room(session.holder):
                return TOO_MANY_SESSIONS
            digest, process = session.keys.digest, self._mailbox.name
            for gone, opened_by in await self._register.add(digest, session.holder, process, self._end_of):
                await self._end_stored(gone, opened_by)
            await self._backend.set(session.keys.record, box, ttl=self._sharing.ttl)
        except (BackendError, Overloaded) as exc:
            return overloaded(store_refusal("The session can't be stored", exc).error.message)
        session.raw = box
        self.add(session)
        return None

    def _end_of(self, digest: str) -> float:
        """When a session expires as far as this process knows, in seconds since 1970."""
        session = self._by_digest.get(digest)
        if session is None:
            return 0.0
        unused = 0.0 if session.busy else self._loop.time() - session.idle_since
        return time.time() + self._sharing.ttl - unused

    async def _end_stored(self, digest: str, process: str) -> None:
        """End a session that gave way. A process that does not hear of it notices when it renews the session."""
        await self._backend.delete(session_key(digest))
        if process != self._mailbox.name:
            await self._mailbox.post(process, "end", digest)
        if (session := self._by_digest.get(digest)) is not None:
            session.deleted = True
            self.end(session, "another session needed its room", TimeoutError())

    def _give_way(self, session: HttpSession) -> None:
        """Have a session no longer in memory; it is stored."""
        self.end(session, "others were used since")

    def add(self, session: HttpSession) -> None:
        assert isinstance(session, SharedSession)
        super().add(session)
        self._by_digest[session.keys.digest] = session

    def _forget(self, session: HttpSession) -> None:
        assert isinstance(session, SharedSession)
        super()._forget(session)
        if self._by_digest.get(session.keys.digest) is session:
            del self._by_digest[session.keys.digest]

    # ---------------------------------------------------------------- sessions of other processes

    async def _session_of(self, head: Head, origin: Origin) -> HttpSession | Refusal:
        """The same; a session that another process has opened is restored, and concurrent requests wait for the first."""
        session, session_id = await super()._session_of(head, origin), head.session_id
        if session_id is None or (isinstance(session, SharedSession) and not session.stale):
            return session
        owner = origin.owner
        try:
            keys = SessionKeys(self._state.name, session_id, owner)
        except ValueError:
            return NOT_FOUND
        task = self._restoring.get(keys.digest)
        if task is None:
            restoring = self._restore(session_id, owner, origin.holder, keys)
            task = self._restoring[keys.digest] = self._loop.create_task(restoring)
            task.add_done_callback(lambda _: self._restoring.pop(keys.digest, None))
        return await wait_shared(task)

    async def _restore(
        self, session_id: str, owner: Owner, holder: Hashable, keys: SessionKeys
    ) -> SharedSession | Refusal:
        try:
            await self._mailbox.start()
            session = self._by_digest.get(keys.digest)
            if session is not None:
                await self._look_again(session)
                return session
            box = await self._backend.get(keys.record)
            if box is None:
                return NOT_FOUND
            record = _opened(keys, box)
            if not self.make_room(holder):
                return TOO_MANY_SESSIONS
            session = self._open(session_id, owner, holder)
            try:
                session.restore(await self.update(session, await self._enters(session.writer, record)))
            except BaseException:
                session.end("the session could not be restored")
                raise
            self.add(session)
            return session
        except Refused as exc:
            return exc.refusal
        except SessionFormat as exc:
            logger.error("%s", exc)
            return STORE_GONE
        except (BackendError, Overloaded) as exc:
            logger.warning("A session could not be restored: %s", exc)
            return STORE_GONE

    async def _enters(self, writer: str, record: SessionRecord) -> Callable[[SessionRecord], bool]:
        """A change that adds a writer, and leaves out those that are gone if there are many."""
        name = self._mailbox.name
        gone = {name}
        if len(record.writers) > _MANY_WRITERS:
            gone.update([each for each in others(record.writers, name) if not await self._mailbox.is_alive(each)])

        def enter(record: SessionRecord) -> bool:
            record.writers = [*(each for each in record.writers if process_of(each) not in gone), writer]
            return True

        return enter

    async def update(self, session: SharedSession, change: Callable[[SessionRecord], bool]) -> SessionRecord:
        """Read the record of a session, change it, and store it unless somebody else has changed it: then again.

        Raises:
            Refused: The session has ended, or what is stored of it can't be used.
            BackendError: The store can't be reached.
        """
        keys = session.keys
        while True:
            box = await self._backend.get(keys.record)
            if box is None:
                self.end(session, "the session has ended in another process")
                raise Refused(NOT_FOUND)
            try:
                record = _opened(keys, box)
            except Refused as exc:
                self.end(session, "what is stored of the session can't be used", exc)
                raise
            if change(record):
                former, box = box, keys.seal_record(record)
                if not await self._backend.replace(keys.record, former, box, ttl=self._sharing.ttl):
                    continue
                session.touched = self._loop.time()
            session.raw, session.record = box, record
            return record

    # ---------------------------------------------------------------- messages of other processes

    def _handle(self, mail: Mail) -> Work | None:
        session = self._by_digest.get(mail.session)
        match mail.kind:
            case "changes":
                return partial(self._changes, int(mail.body))
            case "message":
                if session is not None:
                    session.receive_forwarded(mail.body)
                return partial(_reply, b"")
            case "read elsewhere" if session is not None:
                return partial(_reply, session.read_elsewhere(int(mail.body)))
            case "end":
                if session is not None:
                    session.deleted = True
                    self.end(session, "the client ended the session")
                return partial(_reply, b"")
            case "reading":
                return partial(_reply, b"yes" if session is not None and session.reads else b"")
            case "changed":
                return partial(_reply, b"") if session is None else partial(self._refresh, session)
        return None

    async def _changes(self, position: int) -> bytes:
        """What has changed after a position."""
        changes = self._state.changes.changes_after(position) if position >= 0 else None
        data = b"null" if changes is None or len(changes) > _MOST_CHANGES else msgspec.json.encode(changes)
        return data if len(data) <= _CHANGES_BYTES else b"null"

    async def _refresh(self, session: SharedSession) -> bytes:
        with suppress(Refused):
            await session.refresh(await self.update(session, lambda record: False))
        return b""

    def _distrust(self) -> None:
        """Messages may have been lost: look at each session again before it is used."""
        for session in self._by_digest.values():
            session.stale = True
        if self._reviewing is None or self._reviewing.done():
            self._reviewing = self._mailbox.run(self._review())

    async def _review(self) -> None:
        """Look again at the sessions whose clients read here: no request of theirs need come."""
        for session in [session for session in self._by_digest.values() if session.reads]:
            while session.stale and not session.closed:
                try:
                    await self._look_again(session)
                except Refused:
                    break
                except GemelError:
                    await asyncio.sleep(BEAT / 5)

    async def _look_again(self, session: SharedSession) -> None:
        await session.refresh(await self.update(session, session.enter))
        session.stale = False

    # ---------------------------------------------------------------- the end

    async def end_for_client(self, session: HttpSession) -> Refusal | None:
        """The same in all processes."""
        assert isinstance(session, SharedSession)
        try:
            record = await self.update(session, lambda record: False)
            await self._backend.delete(session.keys.record)
            session.deleted = True
            self.end(session, "the client ended the session")
            self._mailbox.run(self._discard(session.keys, record))
            await session.tell_others(record, "end")
        except Refused as exc:
            return exc.refusal
        except (BackendError, Overloaded) as exc:
            logger.warning("A session could not be ended: %s", exc)
            return STORE_GONE
        return None

    def end_idle(self, now: float) -> None:
        """Forget sessions that were not used here for too long; those that are used live on in the store."""
        super().end_idle(now)
        used = [
            session
            for session in self._by_digest.values()
            if now - session.touched >= self._sharing.ttl / 5 and (session.busy or session.idle_since > session.touched)
        ]
        if used and (self._renewing is None or self._renewing.done()):
            self._renewing = self._loop.create_task(self._renew(used))

    async def _renew(self, used: list[SharedSession]) -> None:
        """Let the records of sessions that are used expire later."""
        try:
            for session in used:
                now = self._loop.time()
                unused = 0.0 if session.busy else now - session.idle_since
                if await self._backend.touch(session.keys.record, ttl=max(self._sharing.ttl - unused, 0.1)):
                    session.touched = now
                else:
                    session.stale = True
        except GemelError as exc:
            logger.warning("Sessions could not be renewed in the store yet: %s", exc)

    async def _discard(self, keys: SessionKeys, record: SessionRecord) -> None:
        """Drop what is stored of a session that has ended, after those who write to it have noticed that."""
        try:
            await self._register.remove(keys.digest)
            await asyncio.sleep(BEAT)
            for log in (keys.standing, *map(keys.events, record.writers)):
                if await self._backend.end_of(log):
                    await self._backend.append(log, [b""], ttl=1.0, most=1)
        except GemelError as exc:
            logger.debug("what is stored of a session is kept until it expires: %s", exc)

    async def wait_closed(self) -> None:
        """Wait, bounded, until all is stored, then leave the other processes."""
        await super().wait_closed()
        if self._renewing is not None:
            self._renewing.cancel()
        await self._mailbox.close()


def _opened(keys: SessionKeys, box: bytes) -> SessionRecord:
    """Decrypt a record. Raises Refused if it was changed, SessionFormat if it is of another version of Gemel."""
    try:
        return keys.open_record(box)
    except SessionFormat:
        raise
    except BackendError as exc:
        logger.error("A session is refused: %s", exc)
        raise Refused(NOT_FOUND) from None


async def _reply(body: bytes) -> bytes:
    return body
