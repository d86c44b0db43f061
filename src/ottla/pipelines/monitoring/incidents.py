"""The watch over each metric of each host: a state that samples change, in order of time.

The same steps run over a stream, whose state Spark keeps, and over a batch, that begins without.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

ALERTS = "host string, metric string, incident int, alert string, value double, time timestamp"
STATE = "incident int, is_open boolean, newest_us bigint"


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
    watched = samples.where(samples["metric"].isin(list(limits)))
    groups = watched.select("host", "metric", "value", "time").groupBy("host", "metric")
    # Functions without annotations: those with pandas types cannot be resolved when Spark looks.
    if samples.isStreaming:
        return groups.applyInPandasWithState(
            lambda key, frames, state: _step(key, frames, state, limits),
            ALERTS,
            STATE,
            "append",
            "NoTimeout",
        )
    return groups.applyInPandas(
        lambda key, frame: _alerts(key, frame, MetricWatch(), limits[key[1]]), ALERTS
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
    for time, value in zip(ordered["time"], ordered["value"], strict=True):
        alert = watch.see(time.value // 1000, value, limit)
        if alert is not None:
            rows.append((*key, watch.incident, alert, value, time))
    columns = ["host", "metric", "incident", "alert", "value", "time"]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.astype({"incident": "int32", "time": "datetime64[us]"})
