"""Two clusters of one broker each, in this process: `site` is copied from, `centre` to."""

from __future__ import annotations

import pytest

from ottla import Producer
from ottla.testing import InProcessBroker


@pytest.fixture(scope="module")
def site():
    """The cluster that is copied from."""
    with InProcessBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def centre():
    """The cluster that is copied to."""
    with InProcessBroker() as broker:
        yield broker


@pytest.fixture
def produce():
    """`produce(broker, topic, values, partition)` writes records and waits for the last one."""

    def write(broker, topic, values, partition=0, **keywords):
        with Producer(broker.bootstrap_servers, **keywords) as producer:
            sent = [producer.send(topic, str(each), partition=partition) for each in values]
        return [each.result().offset for each in sent]

    return write


@pytest.fixture
def two():
    """The clusters a and b, of one broker each, for one test."""
    with InProcessBroker() as a, InProcessBroker() as b:
        yield {"a": a, "b": b}
