"""What the newcomer notices: the rules of `tests.newcomer.run`, with small documents."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.docs import documents
from tests.docs.console import commands
from tests.newcomer import run
from tests.newcomer.run import Failed, Reader
from tests.programs import require
from tests.source import ROOT

PAGE = """
```sh
mkdir work && cd work
```

```python
# greet.py
print("hello", 2)
```

```console
$ python greet.py
hello …
```

```python
from pathlib import Path

import asyncio

await asyncio.sleep(0)
Path("greet.py").exists()  # → True
```

```console
$ docker run it
```
"""


def read(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, skipped: dict[str, str]) -> int:
    """Type one document."""
    require("bash")
    for module in (run, documents):
        monkeypatch.setattr(module, "ROOT", folder)
    monkeypatch.setitem(run.TABLE, "skipped", {"page.md": skipped})
    (folder / "page.md").write_text(text, encoding="utf-8")
    (folder / "empty").mkdir()
    path = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    reader = Reader(folder / "page.md", folder / "empty", {**os.environ, "PATH": path}, folder / "none.whl")
    reader.read()
    return reader.typed


SKIPPED = {"$ docker run": "needs Docker"}


def test_what_works_as_printed_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(tmp_path, PAGE, monkeypatch, SKIPPED) == 3
    assert (tmp_path / "empty" / "work" / "greet.py").exists()


@pytest.mark.parametrize(
    ("shown", "instead", "told"),
    [
        ("hello …\n", "bye\n", "the document shows\nbye\nbut it is\nhello 2"),
        ("→ True", "→ False", "the document shows False, but it is True"),
        ("$ python greet.py\nhello …", "$ python nowhere.py", "python nowhere.py ended with 2"),
        ("from pathlib", "from nowhere", "No module named 'nowhere'"),
        ("$ docker run it", "$ true", "skips what is not there: $ docker run"),
    ],
)
def test_what_does_not_work_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown: str, instead: str, told: str
) -> None:
    assert shown in PAGE
    with pytest.raises(Failed) as caught:
        read(tmp_path, PAGE.replace(shown, instead), monkeypatch, SKIPPED)
    assert told in str(caught.value)


def test_every_reason_belongs_to_a_document() -> None:
    for part in ("skipped", "replaced"):
        assert not [name for name in run.TABLE[part] if not (ROOT / name).exists()]


@pytest.mark.parametrize("document", [*run.SHORT, *sorted(run.HOW_TO.glob("*.md"))], ids=lambda path: path.name)
def test_programs_that_a_document_names_are_written_before(document: Path) -> None:
    written: set[str] = set()
    missing: list[str] = []
    skipped = run.TABLE["skipped"].get(document.relative_to(ROOT).as_posix(), {})
    for block in documents.blocks(document):
        if block.file is not None:
            written.add(Path(block.file).name)
        elif block.language in ("sh", "console") and not any(block.text.startswith(text) for text in skipped):
            text = (
                "\n".join(command for command, _ in commands(block.text)) if block.language == "console" else block.text
            )
            missing += [name for name in re.findall(r"(?<![\w/.-])[\w-]+\.py\b", text) if name not in written]
    assert not missing
