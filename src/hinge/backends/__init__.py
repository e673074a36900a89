"""Where state that outlives one process lives. `backend.py` is the contract."""
