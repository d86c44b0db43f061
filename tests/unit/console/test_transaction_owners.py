"""The owners of open transactions: one that is not known may still have one."""

from __future__ import annotations

import pytest

from ottla.clients.admin.transactions import (
    OpenTransaction,
    ProducerDescription,
    TransactionDescription,
)
from ottla.console.transaction_owners import TransactionOwners
from ottla.errors import ErrorCode, KafkaError
from ottla.structs import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
OPENED = OpenTransaction(T0, ProducerDescription(7, 0, 0, 0, 0, 5))


def description(*partitions):
    return TransactionDescription(1, "Ongoing", 7, 0, 60_000, 0, frozenset(partitions))


@pytest.mark.parametrize(
    ("described", "owner"),
    [
        ({"shop": description(T0)}, "shop"),
        ({"shop": description(T1)}, None),
        ({"shop": KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "it has expired")}, None),
        ({}, None),
    ],
)
def test_coordinator_that_was_asked_decides(described, owner):
    """The id is known and has the partition open, or the transaction hangs."""
    owners = TransactionOwners(dict.fromkeys([7] if described else [], "shop"), described, 0)

    assert (owners.of(OPENED), owners.doubt(OPENED)) == (owner, "")


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ],
)
def test_coordinator_that_does_not_answer_leaves_it_open(error):
    """It was shown as hanging, with a button that aborts it behind the coordinator's back."""
    owners = TransactionOwners({7: "shop"}, {"shop": KafkaError(error, "not now")}, 0)

    assert owners.of(OPENED) is None
    assert owners.doubt(OPENED) == "its coordinator does not describe it: not now"


def test_ids_without_a_coordinator_leave_it_open():
    """No broker lists them."""
    owners = TransactionOwners({}, {}, 2)

    assert owners.doubt(OPENED).startswith("2 partitions of __transaction_state have no leader")
