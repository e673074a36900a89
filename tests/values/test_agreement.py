"""What a server lists is what it accepts and sends, for annotations made by chance: 2,600, of which some 2,270 are registered.

Arguments that fit the listed input schema are accepted, and what is accepted fits it, except for what the documents name:
see `lenient_judge`. Null for an optional argument is accepted where it is not listed, so three quarters of the annotations are
looked at with `list_null=True`. What is sent fits the listed output schema, and values that fit the annotation are sent.

It takes half a minute of CPU time; `make fuzz` goes on with other annotations.
"""

from __future__ import annotations

import random

import pydantic
import pytest

from tests.values.agreement import disagreements
from tests.values.annotations import Source

PARTS, EACH, REGISTERED = 20, 130, 100

pytestmark = pytest.mark.skipif(
    tuple(map(int, pydantic.VERSION.split(".")[:3])) < (2, 14, 4),
    reason="earlier versions of pydantic list some types otherwise than they read them",
)


@pytest.mark.parametrize("part", range(PARTS))
async def test_what_is_listed_is_what_is_accepted_and_sent(part: int) -> None:
    seeds = range(part * EACH, (part + 1) * EACH)
    sources = [Source(random.Random(seed).randrange) for seed in seeds]
    wrong, registered = await disagreements(sources, list_null=part % 4 != 0)
    assert not wrong, "\n".join(wrong[:5])
    assert registered >= REGISTERED
