"""The watch over a metric: one alert for each incident, and one for its end."""

from __future__ import annotations

import pytest
from pyarrow import parquet
from pyspark.sql import functions as F

from ottla.pipelines.monitoring import Limit, MetricWatch, limits_of
from ottla.pipelines.monitoring import alerts as found_alerts

LIMIT = Limit(90.0, 70.0)


def alerts(*values, watch=None):
    watch = watch or MetricWatch()
    return [watch.see(number, value, LIMIT) for number, value in enumerate(values)]


def test_incident_is_told_once():
    """What lies between the limits, and what is above again, changes nothing."""
    assert alerts(95, 99, 80, 92, 60, 65) == ["raised", None, None, None, "recovered", None]


def test_next_incident_has_the_next_number():
    """Incidents of a metric are counted."""
    watch = MetricWatch()

    assert alerts(95, 60, 91, watch=watch) == ["raised", "recovered", "raised"]
    assert (watch.incident, watch.is_open) == (2, True)


def test_the_limits_themselves_are_neither_above_nor_below():
    """An incident begins above the upper and ends below the lower limit."""
    assert alerts(90, 90.1, 70, 69.9) == [None, "raised", None, "recovered"]


def test_late_sample_changes_nothing():
    """A sample older than one that was seen cannot begin an incident, or end one."""
    watch = MetricWatch()
    watch.see(100, 95.0, LIMIT)

    assert watch.see(99, 10.0, LIMIT) is None
    assert watch.is_open
    assert watch.see(100, 10.0, LIMIT) == "recovered"


def test_limits_are_read_from_text():
    """metric:upper:lower, with blanks around."""
    assert limits_of("a:9:7, b:1.5:0") == {"a": Limit(9.0, 7.0), "b": Limit(1.5, 0.0)}


@pytest.mark.parametrize("text", ["a", "a:1", "a:1:2:3", "a:x:1", ""])
def test_wrong_limits_are_told(text):
    """With the part that is wrong."""
    with pytest.raises(ValueError, match="is not of the form metric:upper:lower"):
        limits_of(text)


TIMES_US = (1_793_514_600_000_001, 10_413_792_000_000_000, 253_402_300_799_999_999)
"""Of 2026, 2300 and 9999."""
SAMPLES = [
    *(("a", "cpu", *each) for each in zip((95.0, 10.0, 95.0), TIMES_US, strict=True)),
    ("a", "cpu", 95.0, None),
]


@pytest.mark.spark
@pytest.mark.parametrize("is_stream", [False, True])
def test_samples_of_any_time_are_watched(spark, tmp_path, is_stream):
    """Also those beyond the years of pandas; those without a time are left out."""
    text = "host string, metric string, value double, time bigint"
    rows = spark.createDataFrame(SAMPLES, text).withColumn("time", F.timestamp_micros("time"))
    found = []
    if is_stream:
        parquet.write_table(rows.toArrow(), tmp_path / "1.parquet")
        samples = spark.readStream.schema(rows.schema).parquet(str(tmp_path))
        stream = found_alerts(samples, {"cpu": LIMIT}).writeStream.trigger(availableNow=True)
        stream = stream.foreachBatch(lambda batch, _: found.extend(shown(batch)))
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()
    else:
        found = shown(found_alerts(rows, {"cpu": LIMIT}))

    expected = zip((1, 1, 2), ("raised", "recovered", "raised"), TIMES_US, strict=True)
    assert found == list(expected)


def shown(alerts):
    rows = alerts.select("incident", "alert", F.unix_micros("time")).collect()
    return [tuple(row) for row in rows]
