"""Metrics of hosts: aggregated in minutes, and watched, with an alert for each incident.

The watch over each metric of each host is a state that samples change, in order of time. The same
steps run over a stream, whose state Spark keeps, and over a batch, that begins without.
"""

from __future__ import annotations

import random
import socket
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from ottla.pipelines.access_log import lines_of, requests
from ottla.pipelines.pipeline import (
    Event,
    FeedRequest,
    Frames,
    Input,
    Output,
    Parameters,
    Pipeline,
    Section,
    after,
    event,
)
from ottla.pipelines.plots import lines_plot

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, GroupedData

    from ottla.pipelines.tables import ResultTable


ALERT_COLUMNS = "host string, metric string, incident int, alert string, value double, time bigint"
WATCH_COLUMNS = "incident int, is_open boolean, newest_us bigint"


@dataclass(frozen=True, slots=True)
class Limit:
    """An incident begins above `upper` and ends below `lower`."""

    upper: float
    lower: float


@dataclass(slots=True)
class MetricWatch:
    """Where a metric of a host stands: the number of its newest incident, and its newest sample."""

    incident: int = 0
    is_open: bool = False
    newest_us: int = 0

    def see(self, time_us: int, value: float, limit: Limit) -> str | None:
        """The alert that a sample causes; an incident has one at its beginning, one at its end."""
        if time_us < self.newest_us:
            return None
        self.newest_us = time_us
        if not self.is_open and value > limit.upper:
            self.is_open = True
            self.incident += 1
            return "raised"
        if self.is_open and value < limit.lower:
            self.is_open = False
            return "recovered"
        return None


def limits_of(text: str) -> dict[str, Limit]:
    """Limits as written on the command line: `metric:upper:lower,...`."""
    found = {}
    for part in text.split(","):
        try:
            metric, upper, lower = part.strip().split(":")
            found[metric] = Limit(float(upper), float(lower))
        except ValueError:
            raise ValueError(f"'{part}' is not of the form metric:upper:lower") from None
    return found


def alerts(samples: DataFrame, limits: Mapping[str, Limit]) -> DataFrame:
    """The alerts that samples cause; metrics without limits cause none."""
    is_watched = samples["metric"].isin(list(limits)) & samples["time"].isNotNull()
    watched = samples.where(is_watched)
    # Microseconds, as a time of pandas ends in 2262, and a sample may say any.
    timed = watched.select("host", "metric", "value", F.unix_micros("time").alias("time"))
    found = _found(timed.groupBy("host", "metric"), limits, watched.isStreaming)
    return found.withColumn("time", F.timestamp_micros("time"))


def _found(groups: GroupedData, limits: Mapping[str, Limit], is_streaming: bool) -> DataFrame:
    """The alerts of each metric of each host, with microseconds for their time."""
    # Functions without annotations: those with pandas types cannot be resolved when Spark looks.
    if is_streaming:
        return groups.applyInPandasWithState(
            lambda key, frames, state: _step(key, frames, state, limits),
            ALERT_COLUMNS,
            WATCH_COLUMNS,
            "append",
            "NoTimeout",
        )
    return groups.applyInPandas(
        lambda key, frame: _alerts(key, frame, MetricWatch(), limits[key[1]]), ALERT_COLUMNS
    )


def _step(
    key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: Any, limits: Mapping[str, Limit]
) -> Iterator[pd.DataFrame]:
    """Process the samples of a micro-batch; the state continues from the batch before."""
    import pandas as pd

    # Spark itself concatenates the results of the groups, and most of them are empty.
    warnings.filterwarnings("ignore", category=FutureWarning, message="The behavior of DataFrame")
    watch = MetricWatch(*state.get) if state.exists else MetricWatch()
    samples = pd.concat(list(frames))
    found = _alerts(key, samples, watch, limits[key[1]])
    if len(found):
        yield found
    state.update((watch.incident, watch.is_open, watch.newest_us))


def _alerts(
    key: tuple[Any, ...], samples: pd.DataFrame, watch: MetricWatch, limit: Limit
) -> pd.DataFrame:
    import pandas as pd

    ordered = samples.sort_values("time", kind="stable")
    rows = []
    for moment, value in zip(ordered["time"], ordered["value"], strict=True):
        alert = watch.see(moment, value, limit)
        if alert is not None:
            rows.append((*key, watch.incident, alert, value, moment))
    columns = ["host", "metric", "incident", "alert", "value", "time"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"incident": "int32", "time": "int64"})


def per_minute(samples: DataFrame, late: str) -> DataFrame:
    """Count, mean, least, greatest and sum of each metric of each host in each minute."""
    return (
        samples.withWatermark("time", late)
        .groupBy(F.window("time", "1 minute").alias("window"), "host", "metric")
        .agg(
            F.count("*").alias("samples"),
            F.avg("value").alias("mean"),
            F.min("value").alias("least"),
            F.max("value").alias("greatest"),
            F.sum("value").alias("sum"),
        )
        .select(
            "host",
            "metric",
            F.col("window.start").alias("minute"),
            "samples",
            "mean",
            "least",
            "greatest",
            "sum",
        )
    )


def health(per_minute: DataFrame) -> DataFrame:
    """Each metric of each host over all minutes."""
    return (
        per_minute.groupBy("host", "metric")
        .agg(
            F.sum("samples").alias("samples"),
            F.round(F.sum("sum") / F.sum("samples"), 6).alias("mean"),
            F.max("greatest").alias("greatest"),
            F.max("minute").alias("newest"),
        )
        .orderBy("metric", "host")
    )


def incidents(alerts: DataFrame) -> DataFrame:
    """Each incident with its beginning and, where it is over, its end."""
    is_end = F.col("alert") == "recovered"
    return (
        alerts.groupBy("host", "metric", "incident")
        .agg(
            F.min(F.when(~is_end, F.col("time"))).alias("began"),
            F.max(F.when(is_end, F.col("time"))).alias("ended"),
            F.min(F.when(~is_end, F.col("value"))).alias("value"),
            F.count_if(~is_end).alias("alerts"),
        )
        .orderBy("began", "host", "metric")
    )


METRICS = "metrics"
HOSTS = 5
SAMPLE_PAUSE_S = 5.0
HOST_PAUSE_S = 1.0
OVERLOADS = (300, 900, 1700)  # seconds at which a made-up host has too much to do
OVERLOAD_S = 180
SITE = "site"


def sample(request: FeedRequest) -> Iterator[Event]:
    """Hosts whose CPU is busy now and then; one is overloaded for a few minutes."""
    chance = random.Random(request.seed)
    for number in range(request.events):
        host = f"host-{number % HOSTS}"
        now_s = number // HOSTS * SAMPLE_PAUSE_S
        busy = host == "host-3" and any(0 <= now_s - begin < OVERLOAD_S for begin in OVERLOADS)
        cpu = min(100.0, max(0.0, chance.gauss(96.0 if busy else 35.0, 6.0)))
        yield metric(host, "cpu_percent", round(cpu, 1), after(now_s))


def this_host(request: FeedRequest) -> Iterator[Event]:
    """Samples of this machine, one a second: as many as events are asked for."""
    import psutil

    host = socket.gethostname()
    psutil.cpu_percent()
    before = psutil.net_io_counters()
    for _ in range(request.events):
        time.sleep(HOST_PAUSE_S)
        now = datetime.now(UTC)
        after_pause = psutil.net_io_counters()
        values = {
            "cpu_percent": psutil.cpu_percent(),
            "memory_percent": psutil.virtual_memory().percent,
            "disk_percent": psutil.disk_usage("/").percent,
            "load": psutil.getloadavg()[0],
            "network_bytes": float(
                after_pause.bytes_sent
                + after_pause.bytes_recv
                - before.bytes_sent
                - before.bytes_recv
            ),
        }
        before = after_pause
        for name, value in values.items():
            yield metric(host, name, value, now)


def from_log(request: FeedRequest) -> Iterator[Event]:
    """The reports of an agent on the web server: requests, errors and bytes per minute."""
    found = requests(lines_of(request.log, request.seed, request.events))
    ordered = sorted(found, key=lambda each: each.time)
    for minute, group in groupby(ordered, lambda each: each.time.replace(second=0, microsecond=0)):
        asked = list(group)
        errors = sum(each.status >= 400 for each in asked)
        yield metric(SITE, "requests", float(len(asked)), minute)
        yield metric(SITE, "error_percent", round(100 * errors / len(asked), 3), minute)
        yield metric(SITE, "bytes", float(sum(each.size or 0 for each in asked)), minute)


def metric(host: str, name: str, value: float, time: datetime) -> Event:
    return event(METRICS, host, host=host, metric=name, value=value, time=time)


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
    inputs=(
        Input(
            METRICS,
            "host string, metric string, value double, time timestamp",
            needed=("host", "metric", "value", "time"),
        ),
    ),
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
