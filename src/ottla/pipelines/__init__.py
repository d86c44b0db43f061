"""Data pipelines on Spark: pure functions from DataFrame to DataFrame, a source and a sink.

The names for pipelines of one's own can be imported from here, each when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.late_names import late_names

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

__getattr__, __dir__ = late_names(
    __name__,
    {
        "execution": "run_samples",
        "pipeline": "Event Frames Input Output Parameters Pipeline Section event load_pipeline",
        "plots": "bars_plot lines_plot top_rows_plot",
        "runner": "spark_session",
    },
)
