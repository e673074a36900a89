"""The search of the built site: its own program, in Node instead of in the worker of a browser."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.programs import require

#: Hands the index to the search, then one query after the other, and prints the places that each finds, the best first.
_PROGRAM = """
const fs = require("fs");
const [program, index, asked] = process.argv.slice(1);
const data = JSON.parse(fs.readFileSync(index, "utf8"));
const queries = JSON.parse(asked);
const found = [];
globalThis.self = {
  postMessage(message) {
    if (message.type === 4) throw new Error("the search failed");
    if (message.type === 3) found.push(message.data.items.map((item) => data.items[item.id].location));
    if (found.length < queries.length) self.onmessage({data: {type: 2, data: {input: queries[found.length]}}});
    else console.log(JSON.stringify(found));
  },
};
eval(fs.readFileSync(program, "utf8"));
self.onmessage({data: {type: 0, data}});
"""


def search(site: Path, queries: Sequence[str]) -> dict[str, list[str]]:
    """Return what a reader of a built site finds: the best ten pages and sections for each query, as links.

    Args:
        site: The folder of a version.
        queries: What the reader types.
    """
    (program,) = site.glob("assets/javascripts/workers/search.*.js")
    done = subprocess.run(
        [require("node"), "-e", _PROGRAM, str(program), str(site / "search.json"), json.dumps(queries)],
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(zip(queries, json.loads(done.stdout), strict=True))
