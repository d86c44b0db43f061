"""Counters whose offsets commit in the same database transaction."""

from __future__ import annotations

import json

import pytest

from ottla import Producer
from ottla.site.readers import LoginCounters
from ottla.testing import wait_until

TOPIC = "logins"


@pytest.fixture
def servers(ottla_fresh_broker):
    """A broker with thirty logins of three people in two partitions."""
    ottla_fresh_broker.create_topic(TOPIC, partitions=2)
    with Producer(ottla_fresh_broker.bootstrap_servers) as producer:
        for number in range(30):
            login = json.dumps({"person": f"person-{number % 3}"})
            producer.send(TOPIC, login, partition=number % 2)
    return ottla_fresh_broker.bootstrap_servers


def test_u16_counts_and_offsets_are_of_one_moment(servers, tmp_path):
    """Reopened, the counters go on where they were: each login counts once."""
    path = tmp_path / "logins.sqlite"
    counters = LoginCounters(servers, TOPIC, path)
    wait_until(lambda: counters.record_count > 0, "a transaction", meanwhile=counters.step)
    assert sum(counters.next_offsets.values()) == counters.record_count
    counters.close()

    counters = LoginCounters(servers, TOPIC, path)
    wait_until(lambda: counters.record_count == 30, "all logins", meanwhile=counters.step)
    assert counters.counts == {f"person-{number}": 10 for number in range(3)}
    assert counters.next_offsets == {0: 15, 1: 15}
    counters.close()


def test_u16_failure_within_a_transaction_counts_nothing(servers, tmp_path):
    """The offsets are refused after the counts were written: both are gone, and come again."""
    path = tmp_path / "logins.sqlite"
    counters = LoginCounters(servers, TOPIC, path)
    counters._database.execute(
        "create trigger full before insert on next_offsets begin select raise(abort, 'full'); end"
    )

    def fails() -> bool:
        try:
            counters.step()
        except Exception as error:
            return "full" in str(error)
        return False

    wait_until(fails, "the transaction to fail")
    assert counters.counts == {}
    assert counters.next_offsets == {}
    counters._database.execute("drop trigger full")
    counters.close()

    counters = LoginCounters(servers, TOPIC, path)
    wait_until(lambda: counters.record_count == 30, "all logins", meanwhile=counters.step)
    assert counters.next_offsets == {0: 15, 1: 15}
    counters.close()
