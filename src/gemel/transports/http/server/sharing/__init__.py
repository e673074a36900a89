"""HTTP sessions that any process serves, where the backend of the server is shared.

`stored_sessions.py` has what is stored of a session, `session_count.py` how many there are; `mailbox.py` messages
between processes; `events.py` the events of calls; `standing_stream.py` the stream that GET opens; `session.py` and
`session_store.py` what one process makes of it.

Only the closed handshake era has HTTP sessions: this code is maintained, but gets no new features.
"""
