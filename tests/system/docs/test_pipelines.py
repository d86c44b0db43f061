"""docs/use/pipelines.md as it stands, from an empty folder: one's own pipeline and its report."""

from __future__ import annotations

import os
import runpy
import tomllib
from sys import path as folders_of_python

import pytest
from page import Page, conversations

# One program on the tests' session, for which a person starts one of their own each time.
pytestmark = pytest.mark.spark

PAGE = Page("docs/use/pipelines.md")
SECTION = PAGE.text[PAGE.text.index("## Your own pipeline in ten minutes") :]
PAGE.text = SECTION


def shown_in(printed: list[str], shown: list[str]) -> bool:
    """Whether lines were printed as they are shown; `...` stands for any others."""
    places, ahead = [], 0
    for part in "\n".join(shown).split("...\n"):
        wanted = part.splitlines()
        while printed[ahead : ahead + len(wanted)] != wanted:
            ahead += 1
            if ahead > len(printed):
                return False
        places.append(ahead)
        ahead += len(wanted)
    return places[0] == 0 and ahead == len(printed)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, in which modules are found as anywhere."""
    monkeypatch.setattr("sys.path", [*folders_of_python])
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.wide
def test_own_pipeline_is_made_as_the_page_says(folder, run_here, spark, monkeypatch):
    """Its commands print what is shown, its files are those that are written, its test passes."""
    for text in (*PAGE.blocks_in("csv"), *PAGE.blocks_in("json")):
        first, _, rest = text.partition("\n")
        if first.startswith("# "):
            (folder / first[2:]).write_text(rest)
    install(folder, monkeypatch)

    for text in PAGE.blocks_in("console"):
        for command, shown in conversations(text):
            printed = run_here(*command.removeprefix("ottla ").split())
            assert shown_in(printed, shown), (command, printed)

    pipeline, test = PAGE.blocks_in("python")
    assert (folder / "orders" / "pipeline.py").read_text() == pipeline
    assert (folder / "orders" / "test_orders.py").read_text() == test
    assert (folder / "orders" / "sample.csv").read_text() == PAGE.blocks_in("csv")[0]
    program = runpy.run_path(os.fspath(folder / "orders" / "test_orders.py"))
    program["test_totals_of_the_sample"](spark, folder / "of-the-test")
    check_report((folder / "pipeline-output" / "orders" / "report.html").read_text("utf-8"))


def install(folder, monkeypatch):
    """What pip leaves of the page's package beside its modules."""
    (text,) = PAGE.blocks_in("toml")
    project = tomllib.loads(text)["project"]
    ((group, points),) = project["entry-points"].items()
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n")
    lines = (f"{name} = {place}" for name, place in points.items())
    (info / "entry_points.txt").write_text("\n".join((f"[{group}]", *lines)))
    monkeypatch.syspath_prepend(folder)


def check_report(html):
    """The last run has read all that was published, and says what was left out, and why."""
    for cell in ("used", "quantity is no int", "records read", "shelf; white"):
        assert f">{cell}</td>" in html
    assert "cards" in html
    assert "did not parse" in html
