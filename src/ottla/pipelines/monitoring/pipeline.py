"""Monitoring as a pipeline: metrics in, figures per minute and alerts out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.pipelines.monitoring.feeds import METRICS, from_log, sample, this_host
from ottla.pipelines.monitoring.incidents import alerts, limits_of
from ottla.pipelines.monitoring.transformations import health, incidents, per_minute
from ottla.pipelines.pipeline import Frames, Input, Output, Parameters, Pipeline, Section
from ottla.pipelines.plots import lines_plot

if TYPE_CHECKING:
    from ottla.pipelines.tables import ResultTable

PER_MINUTE, ALERTS = "metrics-per-minute", "alerts"
PLOTTED_METRICS = 3


def build(streams: Frames, parameters: Parameters) -> Frames:
    metrics = streams[METRICS]
    return {
        PER_MINUTE: per_minute(metrics, parameters["late"]),
        ALERTS: alerts(metrics, limits_of(parameters["limits"])),
    }


def _plot(table: ResultTable, parameters: Parameters) -> str:
    """The greatest values of the first metrics that have a limit, over all hosts."""
    limits = limits_of(parameters["limits"])
    names = [name for name in limits if name in table.column("metric")][:PLOTTED_METRICS]
    moments = sorted({row["minute"] for row in table.rows})
    series = {
        name: [
            max(
                (
                    row["greatest"]
                    for row in table.rows
                    if row["metric"] == name and row["minute"] == moment
                ),
                default=float("nan"),
            )
            for moment in moments
        ]
        for name in names
    }
    return lines_plot("Greatest value per minute", moments, series) if series else ""


PIPELINE = Pipeline(
    name="monitoring",
    summary="Aggregate the metrics of hosts per minute, and alert once for each incident.",
    inputs=(Input(METRICS, "host string, metric string, value double, time timestamp"),),
    outputs=(
        Output(PER_MINUTE, key=("host",), identity=("host", "metric", "minute"), mode="update"),
        Output(ALERTS, key=("host",)),
    ),
    build=build,
    feeds={"sample": sample, "log": from_log, "host": this_host},
    sections=(
        Section(
            "incidents",
            "Incidents",
            "Each has one alert when it begins, and one record when it is over.",
            lambda topics, parameters: incidents(topics[ALERTS]),
        ),
        Section(
            "health",
            "Health",
            "Each metric of each host, over all minutes.",
            lambda topics, parameters: health(topics[PER_MINUTE]),
        ),
        Section(
            "minutes",
            "Minutes",
            "Every metric of every host, minute by minute. The plot has the greatest of any host.",
            lambda topics, parameters: topics[PER_MINUTE].orderBy("minute", "host", "metric"),
            _plot,
        ),
    ),
    parameters={
        "limits": "cpu_percent:90:70, memory_percent:90:85, disk_percent:90:88, "
        "error_percent:5:2, requests:120:110",
        "late": "10 minutes",
    },
)
