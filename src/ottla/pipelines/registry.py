"""The table of all pipelines. A new one is a package with `pipeline.PIPELINE`, and a name here."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from typing import Final

from ottla.pipelines.pipeline import Pipeline

PIPELINES: Final = (
    "web_traffic",
    "news_feed",
    "ranking",
    "crawlers",
    "monitoring",
    "profile_visits",
    "articles",
    "event_sourcing",
    "retail",
    "change_capture",
    "word_count",
)


class UnknownPipelineError(Exception):
    """No pipeline has this name; the text suggests one."""


def load_pipeline(name: str) -> Pipeline:
    """The pipeline of this name; its modules, and PySpark with them, are imported now."""
    if name not in PIPELINES:
        near = get_close_matches(name, PIPELINES, n=1)
        hint = f"did you mean {near[0]}?" if near else "'ottla pipeline list' shows them all."
        raise UnknownPipelineError(f"there is no pipeline '{name}'; {hint}")
    pipeline = import_module(f"ottla.pipelines.{name}.pipeline").PIPELINE
    assert isinstance(pipeline, Pipeline)
    return pipeline
