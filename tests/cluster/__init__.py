"""`make cluster`: four processes behind haproxy, killed and restarted while foreign clients use them."""
