"""What a reset removes, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

from ottla.cli.pipeline.reset import remove_results
from ottla.pipelines.registry import load_pipeline


def test_only_what_runs_made_is_removed(tmp_path):
    """The folder for the output may be anybody's."""
    for name in ("checkpoints/ranking-counts", "trending", "mine", "broker"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("report.html", "spark.log", "mine.html"):
        (tmp_path / name).touch()

    removed = remove_results(load_pipeline("ranking"), tmp_path)

    assert removed == ["checkpoints", "trending", "report.html", "spark.log"]
    assert sorted(path.name for path in Path(tmp_path).iterdir()) == [
        "broker",
        "mine",
        "mine.html",
    ]
