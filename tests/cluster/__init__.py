"""`make cluster`: processes that are killed and restarted while clients use them, and stores that are full or lose writes."""
