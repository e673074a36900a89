"""What is stored of an HTTP session, and how: under a digest of its id and owner, encrypted with a key made of its id.

The store never sees the id, so nobody who reads the store can use, read or forge a session.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import msgspec

from gemel.backends.keys import make_key
from gemel.backends.log_reader import BEGINNING, LogPlace
from gemel.encryption import KEY_BYTES, KeyRing
from gemel.errors import BackendError, GemelError, Overloaded
from gemel.protocol.http.request import Owner
from gemel.schema.base import Implementation
from gemel.schema.lifecycle import ClientCapabilities

#: The version of everything that is stored for sessions. Processes with another version don't touch it.
FORMAT = 1
#: Bytes of one part of an entry: a backend takes 1 MiB, of which encryption and the description need some.
PART_BYTES = 1 << 19
_FIRST, _LAST = 1, 2
#: Bytes of a record: they are read and written again when something in it changes.
MAX_RECORD_BYTES = 128 << 10
#: Bytes of what functions keep in a session, besides: a backend takes 1 MiB.
MAX_STATE_BYTES = 512 << 10


class SessionRecord(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The facts of one session."""

    revision: str
    client_info: Implementation | None = None
    capabilities: ClientCapabilities = msgspec.field(default_factory=ClientCapabilities)
    log_level: str | None = None
    #: The resources that it subscribed to.
    uris: list[str] = []
    #: The processes that have it in memory: names of writers.
    writers: list[str] = []
    #: The writer whose process has the GET stream open, and how many have opened it before: the fencing token.
    reader: str = ""
    opened: int = 0
    #: The process that told the session of changes last, and up to which of its positions.
    told: tuple[str, int] = ("", -1)
    #: The place in the standing log up to which its client was given messages.
    given: LogPlace = BEGINNING
    #: What functions keep in the session: JSON by its keys.
    state: dict[str, msgspec.Raw] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(SessionRecord).decode


class SessionFormat(BackendError):
    """What is stored of a session was written by another version of Gemel."""


def session_key(digest: str) -> str:
    """The name of the record of a session."""
    return make_key("session", digest)


class SessionKeys:
    """The names of what is stored for one session, and its encryption."""

    __slots__ = ("_ring", "digest", "record", "standing", "tag")

    def __init__(self, server: str, session_id: str, owner: Owner) -> None:
        """Raises ValueError for a text that is not an id of a session."""
        secret = session_id.encode()
        if len(secret) < KEY_BYTES:
            raise ValueError("the id of a session is longer")
        whole = b"\0".join((b"gemel http session", server.encode(), secret, _encode(owner)))
        self.digest = sha256(whole).hexdigest()[:40]
        self._ring = KeyRing((secret,), b"gemel http session", name="a session")
        self.record = session_key(self.digest)
        self.standing = make_key("standing", self.digest)
        #: Distinguishes the event ids of sessions.
        self.tag = self.digest[:6]

    def events(self, writer: str) -> str:
        """The log with the events of the calls that ran in one process."""
        return make_key("events", self.digest, writer)

    def seal(self, plain: bytes, name: str) -> bytes:
        """Encrypt what is stored under a name."""
        return bytes((FORMAT,)) + self._ring.encrypt(plain, name.encode())

    def open(self, box: bytes, name: str) -> bytes:
        """Decrypt what was stored under a name. Raises SessionFormat, and BackendError for what was changed."""
        if box[:1] != bytes((FORMAT,)):
            raise SessionFormat("A session was stored by another version of Gemel")
        try:
            return self._ring.decrypt(box[1:], name.encode())
        except ValueError as exc:
            raise BackendError(f"What is stored of a session can't be decrypted: {exc}") from None

    def seal_record(self, record: SessionRecord) -> bytes:
        """Encrypt a record. Raises Overloaded if it is too large, GemelError if its state is."""
        box = self.seal(_encode(record), self.record)
        state = len(_encode(record.state))
        if state > MAX_STATE_BYTES:
            raise GemelError(f"ctx.session_state: a backend keeps at most {MAX_STATE_BYTES >> 10} KiB for a session")
        if len(box) - state > MAX_RECORD_BYTES:
            raise Overloaded(
                f"There is too much to remember of this session: the description of its client and the URIs that it subscribed "
                f"to have at most {MAX_RECORD_BYTES >> 10} KiB"
            )
        return box

    def open_record(self, box: bytes) -> SessionRecord:
        """Decrypt a record. Raises SessionFormat, and BackendError for what was changed."""
        try:
            return _decode(self.open(box, self.record))
        except msgspec.MsgspecError as exc:
            raise BackendError(f"What is stored of a session can't be read: {exc}") from None


def split(data: bytes) -> list[bytes]:
    """Cut data into parts, each with a byte that says whether it is the first and the last."""
    starts = range(0, max(len(data), 1), PART_BYTES)
    return [
        bytes(((_FIRST if start == 0 else 0) | (_LAST if start == starts[-1] else 0),))
        + data[start : start + PART_BYTES]
        for start in starts
    ]


class Joiner:
    """Puts parts together again; what lost its beginning is left out."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, part: bytes) -> bytes | None:
        """Add a part. Returns the data when it is complete."""
        flags = part[0] if part else 0
        if flags & _FIRST:
            self._parts = []
        elif not self._parts:
            return None
        self._parts.append(part[1:])
        if not flags & _LAST:
            return None
        data, self._parts = b"".join(self._parts), []
        return data


def process_of(writer: str) -> str:
    """The process of a writer: each session that a process has in memory writes under a name of its own."""
    return writer.partition("-")[0]


def others(writers: Sequence[str], process: str) -> list[str]:
    """The other processes that have a session in memory."""
    return list(dict.fromkeys(name for name in map(process_of, writers) if name != process))
