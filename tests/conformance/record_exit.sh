#!/bin/sh
# Runs the client under test and writes its exit status where the runner looks: the suite itself does not judge it.
"$@"
status=$?
echo "$status" > "$CONFORMANCE_EXITS/$(echo "$MCP_CONFORMANCE_SCENARIO" | tr / +)"
exit "$status"
