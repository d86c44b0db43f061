"""Data pipelines on Spark: pure functions from DataFrame to DataFrame, a source and a sink.

The names for pipelines of one's own can be imported from here, each when it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.pipelines.execution import run_samples
    from ottla.pipelines.pipeline import (
        Event,
        Frames,
        Input,
        Output,
        Parameters,
        Pipeline,
        Section,
        event,
        load_pipeline,
    )
    from ottla.pipelines.plots import bars_plot, lines_plot, top_rows_plot
    from ottla.pipelines.runner import spark_session

__all__ = [
    "Event",
    "Frames",
    "Input",
    "Output",
    "Parameters",
    "Pipeline",
    "Section",
    "bars_plot",
    "event",
    "lines_plot",
    "load_pipeline",
    "run_samples",
    "spark_session",
    "top_rows_plot",
]

_HOMES = {"run_samples": "execution", "spark_session": "runner"} | dict.fromkeys(
    ("bars_plot", "lines_plot", "top_rows_plot"), "plots"
)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'ottla.pipelines' has no attribute {name!r}")
    home = _HOMES.get(name, "pipeline")
    value = getattr(import_module(f"ottla.pipelines.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
