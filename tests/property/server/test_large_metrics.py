"""A page of very many metrics is read and written in short steps of the broker's loop."""

from __future__ import annotations

import json
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from counted_calls import calls
from request_fuzzer import Watch, steps_measured

from ottla.extensions.measures.measures import Measures
from ottla.metrics import metrics_pages
from ottla.metrics.metrics_pages import MetricsPages, TimeSlices
from ottla.metrics.metrics_registry import Family, FamilyName, Kind
from ottla.testing import InProcessBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

SERIES = 20_000
MOST_CALLS = 100_000
"""Of functions in one step, the built-in ones among them: some 20 ms."""
NAME = FamilyName("kafka.log", "Many", "Size")


@pytest.fixture(scope="module")
def broker() -> Iterator[InProcessBroker]:
    """A broker with as many series as some thousand partitions have."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as running:
        measures = running.broker.find(Measures)
        assert measures is not None
        assert measures.listener is not None
        tags = [(("topic", f"t{number}"),) for number in range(SERIES)]

        async def register() -> None:
            family = Family(NAME, Kind.GAUGE, "Many.", lambda: ((each, 1.5) for each in tags))
            measures.listener.registry.register(family)

        running.run(register())
        yield running


def ask(broker: InProcessBroker, path: str) -> Any:
    url = str(broker.broker.find(Measures).listener.end_point)
    with urllib.request.urlopen(f"{url}/{path}", timeout=120) as answer:
        return answer.read().decode()


def test_text_for_prometheus_is_made_in_slices(broker):
    """Between some hundred series others have their turn."""
    watch = Watch(broker)
    with steps_measured(watch, calls):
        text = ask(broker, "metrics")

    assert text.count("t1999") > 10
    assert watch.worst <= MOST_CALLS


class Turns(TimeSlices):
    """Counts how often others may have their turn."""

    count = 0

    async def step(self) -> None:
        self.count += 1


@pytest.mark.parametrize("kind", ["list", "search", "read"])
def test_answer_of_very_many_beans_is_made_and_written_in_parts(broker, kind):
    """It was one JSON, made of one dictionary: half a second of the loop for 100,000 of them."""
    registry = broker.broker.find(Measures).listener.registry
    turns = Turns(registry.runtime.clock)
    asked = {"type": kind, "mbean": "kafka.log:type=Many,*"}
    parts = broker.run(MetricsPages(registry)._reply(asked, turns))

    assert turns.count > SERIES
    assert sum(map(len, parts)) > 40 * SERIES
    assert max(map(len, parts)) < 40_000


@pytest.mark.parametrize("kind", ["list", "search", "read"])
def test_answer_that_takes_too_long_is_an_error(broker, monkeypatch, kind):
    """The MBeans that were found until then would be taken for all that there are."""
    monkeypatch.setattr(metrics_pages, "TIME_LIMIT_NS", 0)
    path = "jolokia/list" if kind == "list" else f"jolokia/{kind}/kafka.log:type=Many,*"
    answer = json.loads(ask(broker, path))

    assert answer["status"] == 503
    assert "takes longer than" in answer["error"]
    assert "value" not in answer


def test_answers_in_parts_are_those_of_jolokia(broker, monkeypatch):
    """Put together they are one JSON, with each MBean once."""
    monkeypatch.setattr(metrics_pages, "TIME_LIMIT_NS", 10**12)  # of a busy machine
    name = "kafka.log:type=Many,name=Size,topic=t7"
    listed = json.loads(ask(broker, "jolokia/list"))
    searched = json.loads(ask(broker, "jolokia/search/kafka.log:type=Many,*"))
    read = json.loads(ask(broker, "jolokia/read/kafka.log:type=Many,*"))
    one = json.loads(ask(broker, f"jolokia/read/{name}"))

    attributes = listed["value"]["kafka.log"][name.partition(":")[2]]["attr"]
    assert attributes == {"Value": {"rw": False, "type": "float", "desc": "Value"}}
    assert len(searched["value"]) == len(set(searched["value"])) == SERIES
    assert len(read["value"]) == SERIES
    assert read["value"][name] == one["value"] == {"Value": 1.5}
    assert {each["status"] for each in (listed, searched, read, one)} == {200}
    assert read["request"] == {"type": "read", "mbean": "kafka.log:type=Many,*"}
