"""The watch over a metric: one alert for each incident, and one for its end."""

from __future__ import annotations

import pytest

from ottla.pipelines.monitoring import Limit, MetricWatch, limits_of

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
