"""Families, their names, their attributes, and the limit on series."""

from __future__ import annotations

import logging
import math

import pytest

from ottla.errors import ConfigError
from ottla.metrics.metrics_registry import (
    BeanKind,
    Beans,
    Family,
    FamilyName,
    Kind,
    MetricsRegistry,
    attributes,
)
from ottla.testing.runtime import mock_runtime

SIZE = FamilyName("kafka.log", "Log", "Size")
COPIED = BeanKind(FamilyName("d", "Copied"), "Copies.", ("record",), ("age-ms",))


@pytest.fixture
def registry():
    return MetricsRegistry(mock_runtime(), max_series=3)


@pytest.mark.parametrize(
    ("tags", "bean"),
    [
        ((), "kafka.log:type=Log,name=Size"),
        (
            (("topic", "a"), ("partition", "0")),
            "kafka.log:type=Log,name=Size,topic=a,partition=0",
        ),
        ((("client-id", "a:b"),), 'kafka.log:type=Log,name=Size,client-id="a:b"'),
        ((("client-id", 'x"*,'),), r'kafka.log:type=Log,name=Size,client-id="x\"\*,"'),
    ],
)
def test_beans_have_the_names_that_jmx_gives_them(tags, bean):
    """A value that would break the name is quoted; client ids with a colon broke parsers."""
    assert SIZE.bean(tags) == bean


def test_bean_of_kafkas_own_library_has_no_name():
    """Its attributes are the metrics."""
    name = FamilyName("kafka.server", "socket-server-metrics")

    assert name.bean((("listener", "PLAINTEXT"),)) == (
        "kafka.server:type=socket-server-metrics,listener=PLAINTEXT"
    )


def test_a_name_is_registered_once(registry):
    """Two families under one name would hide each other."""
    registry.gauge(SIZE, "", lambda: 1)

    with pytest.raises(ConfigError, match="registered already"):
        registry.gauge(SIZE, "", lambda: 2)


def test_meters_follow_their_numbers_while_the_registry_runs(registry):
    """Every 5 seconds, from `start` to `close`."""
    counts = [0]
    meter = registry.meter(FamilyName("d", "T", "XPerSec"), "", lambda: counts[0])
    registry.start()
    counts[0] = 50
    registry.runtime.scheduler.advance(5_000)
    assert meter.rates[0] == 10

    registry.close()
    counts[0] = 5_000
    registry.runtime.scheduler.advance(60_000)
    assert meter.rates[0] == 10


def test_forgotten_meter_is_ticked_no_longer(registry):
    """The meter of a deleted topic costs nothing."""
    counts = [0]
    meter = registry.new_meter(lambda: counts[0])
    registry.forget(meter)
    counts[0] = 50
    registry.tick()

    assert meter.rates == (0, 0, 0)


def test_series_beyond_the_limit_are_left_out(registry, caplog):
    """metrics.max.series bounds a reading, with one warning; numbers without tags stay."""
    registry.gauges(SIZE, "", lambda: (((("topic", str(n)),), n) for n in range(10)))
    registry.gauge(FamilyName("d", "T", "Other"), "", lambda: 7)
    with caplog.at_level(logging.WARNING):
        shown = list(registry.read())
        list(registry.read())

    assert [reading.value for reading in shown] == [0, 1, 2, 7]
    assert registry.dropped_count == 7
    assert caplog.text.count("metrics.max.series=3: 7 series") == 1


def test_sensors_are_filled_before_they_are_read(registry):
    """What comes in lists is folded in when somebody looks."""
    calls = []
    registry.before_read(lambda: calls.append("fold"))
    registry.register(Family(SIZE, Kind.GAUGE, "", lambda: calls.append("read") or ()))
    list(registry.read())

    assert calls == ["fold", "read"]


def test_attributes_are_those_of_jmx(registry):
    """A meter, a histogram and a timer show what Kafka's MBeans show."""
    meter = attributes(registry.new_meter(lambda: 5, "bytes"), now_ms=1_000)
    assert meter == {
        "Count": 5,
        "EventType": "bytes",
        "RateUnit": "SECONDS",
        "MeanRate": 5.0,
        "OneMinuteRate": 0.0,
        "FiveMinuteRate": 0.0,
        "FifteenMinuteRate": 0.0,
    }
    histogram = attributes(registry.new_histogram(), now_ms=0)
    assert {"Count", "Min", "Max", "Mean", "StdDev", "999thPercentile"} <= set(histogram)
    timer = attributes(registry.new_timer(), now_ms=0)
    assert {*meter, *histogram, "LatencyUnit"} == set(timer)
    assert attributes("text", now_ms=0) == {"Value": "text"}


def copied(registry):
    """The attributes of the MBeans of this kind, by their tags."""
    return {e.tags: e.value for e in registry.read() if e.family.name == COPIED.name}


def test_beans_of_threads_come_and_go(registry):
    """What is there when somebody asks is shown, of all that have such MBeans."""
    clock = registry.runtime.clock
    first, second = Beans(clock), Beans(clock)
    registry.show(lambda: [first, second])
    assert copied(registry) == {}
    a, b = (("topic", "a"),), (("topic", "b"),)
    first.measures(COPIED, b).add("record", 3)
    second.measures(COPIED, a).add("record", 1)
    first.measures(COPIED, b).add("record", 2)

    assert {tags: each["record-count"] for tags, each in copied(registry).items()} == {a: 1, b: 5}
    first.drop(COPIED, b)
    assert copied(registry).keys() == {a}


def test_first_of_two_beans_with_one_name_counts(registry):
    """Two tasks may have filled them, of one kind or of two with one name."""
    clock = registry.runtime.clock
    first, second, own = Beans(clock), Beans(clock), (("task", "0"),)
    registry.show(lambda: [first, second])
    first.measures(COPIED, ()).add("record", 1)
    second.measures(COPIED, ()).add("record", 2)
    second.measures(COPIED._replace(doc="Other.", counts=("other",)), own).add("other", 3)

    found = copied(registry)
    assert found[()]["record-count"] == 1
    assert found[own]["other-count"] == 3


def test_bean_with_a_name_of_the_process_is_not_shown(registry, caplog):
    """The log says so, once."""
    registry.gauge(COPIED.name, "", lambda: 7)
    beans = Beans(registry.runtime.clock)
    registry.show(lambda: [beans])
    beans.measures(COPIED, ())

    assert [copied(registry), copied(registry)] == [{(): 7}, {(): 7}]
    assert [each.getMessage().partition(":")[2] for each in caplog.records] == [
        "type=Copied: these MBeans are not shown, as the process has others of this name"
    ]


def test_bean_of_a_thread_shows_counts_and_values(registry):
    """A count with its rate, a value with least, largest and average; NaN before the first."""
    beans = Beans(registry.runtime.clock)
    registry.show(lambda: [beans])
    measures = beans.measures(COPIED, ())
    assert all(math.isnan(copied(registry)[()][name]) for name in ("age-ms", "age-ms-min"))
    measures.add("record", 60)
    measures.record("age-ms", [10, 40])
    measures.record("age-ms", [25])

    assert copied(registry)[()] == {
        "record-count": 60,
        "record-rate": 2,
        "age-ms": 25,
        "age-ms-min": 10,
        "age-ms-max": 40,
        "age-ms-avg": 25,
    }


def test_rates_of_threads_follow_the_ticks(registry):
    """They are those of the last 30 to 60 seconds, whether anybody reads them or not."""
    beans = Beans(registry.runtime.clock)
    registry.show(lambda: [beans])
    registry.start()
    measures = beans.measures(COPIED, ())
    measures.add("record", 600)
    registry.runtime.scheduler.advance(90_000)
    measures.add("record", 60)

    assert copied(registry)[()]["record-rate"] < 2.1
    registry.close()
