"""`make release-check` says what is wrong with packages and sources; the workflows run only what was pinned."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from gemel import __version__
from tests.source import ROOT
from tools import package_page, pythons, release
from tools.release import Failed

ABOUT = f"gemel-{__version__}.dist-info"
GOOD = {
    "gemel/__init__.py": "",
    "gemel/py.typed": "",
    "gemel/dev/page/main.js": "start();",
    f"{ABOUT}/METADATA": "License-Expression: MIT\nLicense-File: LICENSE\n",
    f"{ABOUT}/licenses/LICENSE": (ROOT / "LICENSE").read_text(encoding="utf-8"),
}
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def made(folder: Path, files: dict[str, str]) -> Path:
    """A folder with a wheel of these files, and a sdist."""
    with zipfile.ZipFile(folder / f"gemel-{__version__}-py3-none-any.whl", "w") as wheel:
        for name, text in files.items():
            wheel.writestr(name, text)
    (folder / f"gemel-{__version__}.tar.gz").touch()
    return folder


# ---------------------------------------------------------------- packages


def test_a_wheel_of_the_project_alone_passes(tmp_path: Path) -> None:
    release.licences(made(tmp_path, GOOD))


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gemel/dev/page/other.js", "/* Copyright (c) 2020 Somebody */", "gemel/dev/page/other.js says"),
        ("gemel/dev/page/other.js", "//# sourceMappingURL=other.js.map", "gemel/dev/page/other.js says"),
        ("gemel/dev/page/font.woff2", "", "gemel/dev/page/font.woff2 is of a kind"),
        (f"{ABOUT}/METADATA", "License-File: LICENSE\n", "must name the licence MIT"),
        (f"{ABOUT}/licenses/LICENSE", "all rights reserved", "not that of the repository"),
    ],
)
def test_what_is_somebody_elses_in_a_wheel_is_named(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(Failed, match=said):
        release.licences(made(tmp_path, GOOD | {name: text}))


def test_a_folder_with_packages_of_another_version_is_refused(tmp_path: Path) -> None:
    made(tmp_path, GOOD)
    (tmp_path / "gemel-0.0.9.tar.gz").touch()
    with pytest.raises(Failed, match=r"one wheel and one sdist .* gemel-0\.0\.9"):
        release.packages(tmp_path)


def test_a_build_needs_an_empty_folder(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="must be empty"):
        release.build(made(tmp_path, GOOD))


# ---------------------------------------------------------------- a tag


def test_a_tag_of_another_version_is_an_obstacle(capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["ready", "v9.9.9"]) == 1
    assert f"the tag is v9.9.9, and src/gemel/version.py says {__version__}" in capsys.readouterr().err


def test_a_project_without_an_address_is_not_released() -> None:
    if not package_page.project_address():
        assert "pyproject.toml has no address of the project" in [*release.obstacles(f"v{__version__}")]


def test_the_notes_of_this_version_are_its_entry_in_the_changelog(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "project_address", lambda: "https://host.example/gemel")
    assert release.main(["notes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert 10 <= len(lines) <= 40
    assert not [line for line in lines if line.startswith("#")]
    assert f"](https://host.example/gemel/blob/v{__version__}/docs/" in "".join(lines)
    assert "](docs/" not in "".join(lines)


# ---------------------------------------------------------------- workflows


def steps(workflow: Path) -> Iterator[dict[str, Any]]:
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        yield from job["steps"]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_digest_with_their_version_beside_it(workflow: Path) -> None:
    used = re.findall(r"uses: (.*)", workflow.read_text(encoding="utf-8"))
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []


def test_an_action_has_one_digest_in_all_workflows() -> None:
    used = {step["uses"] for workflow in WORKFLOWS for step in steps(workflow) if "uses" in step}
    names = [one.partition("@")[0] for one in used]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_no_checkout_keeps_the_token_of_the_host(workflow: Path) -> None:
    checkouts = [step for step in steps(workflow) if step.get("uses", "").startswith("actions/checkout@")]
    assert [step for step in checkouts if step.get("with", {}).get("persist-credentials") is not False] == []


def test_a_release_is_tested_on_each_supported_python_and_uploaded_after_that() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == pythons.supported()
    assert {"build", "test", "attest"} <= set(jobs["upload"]["needs"])
    for name in ("announce", "documentation"):
        assert jobs[name]["needs"] == "upload"


def test_only_what_builds_packages_can_change_them_and_only_the_upload_is_trusted_by_the_index() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8"))["jobs"]
    assert [name for name, job in jobs.items() if job.get("environment") == "pypi"] == ["upload"]
    assert {name for name, job in jobs.items() if "id-token" in job["permissions"]} == {"attest", "upload"}
    packages = [
        name for name, job in jobs.items() for step in job["steps"] if "upload-artifact" in step.get("uses", "")
    ]
    assert set(packages) == {"build"}
