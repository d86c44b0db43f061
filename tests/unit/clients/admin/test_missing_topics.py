"""Topics that several instances of a program create when they start."""

from __future__ import annotations

from itertools import product

import pytest

from ottla import Admin, KafkaError, NewTopic
from ottla.clients.admin.missing_topics import create_missing_topics
from ottla.testing import InProcessBroker

NAMES = ("a", "b", "c")


class Overtaken(Admin):
    """Another instance creates some topics after this one has asked which there are."""

    others = ()

    def list_topics(self):
        listed = super().list_topics()
        super().create_topics([NewTopic(name, 3) for name in self.others if name not in listed])
        return listed


@pytest.mark.parametrize("fates", [*product(("missing", "there", "overtaken"), repeat=3)])
def test_topics_are_there_whoever_has_created_them(fates):
    """One name alone must not keep the others from being created, nor be an error."""
    fate_of = dict(zip(NAMES, fates, strict=True))
    with InProcessBroker() as broker, Overtaken(broker.bootstrap_servers) as admin:
        for name in (name for name, fate in fate_of.items() if fate == "there"):
            broker.create_topic(name, 3)
        admin.others = [name for name, fate in fate_of.items() if fate == "overtaken"]

        created = create_missing_topics(admin, [NewTopic(name, 1) for name in NAMES])

        described = admin.describe_topics(NAMES)
    assert created == [name for name, fate in fate_of.items() if fate == "missing"]
    found = {name: len(topic.partitions) for name, topic in described.items()}
    assert found == {name: 1 if name in created else 3 for name in NAMES}


def test_topic_that_cannot_be_created_is_an_error():
    """It is no race."""
    with (
        InProcessBroker() as broker,
        Admin(broker.bootstrap_servers) as admin,
        pytest.raises(KafkaError, match="INVALID_REPLICATION_FACTOR"),
    ):
        create_missing_topics(admin, [NewTopic("a", 1, 3)])
