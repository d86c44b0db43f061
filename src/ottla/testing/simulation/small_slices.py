"""Worlds in which work that is done in slices pauses at every second element.

A slice has hundreds or thousands, and a world has a handful of partitions, groups and members: all
of it would be done in one step, and nothing would ever come between two. That also takes a loop
whose turns take time (`World.turns`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from ottla.controller import (
    active_controller,
    broker_changes,
    broker_request_batch,
    controller_context,
    isr_changes,
    leader_balance,
    partition_state_machine,
    replica_state_machine,
    topic_changes,
)
from ottla.coordinator import coordinator_partitions
from ottla.coordinator.group import (
    deletion,
    group_coordinator,
    group_records,
    member_answers,
    member_requests,
    partition_loader,
    rebalancer,
    topic_drops,
)
from ottla.coordinator.group.consumer import (
    assignors,
    cluster_topics,
    consumer_group_records,
    consumer_rebalancer,
    group_migration,
    target_assignment,
    topic_matches,
)
from ottla.coordinator.transaction import (
    marker_sender,
    transaction_loader,
    transaction_partitions,
    transaction_state_manager,
)
from ottla.protocol import message
from ottla.runtime import scheduler
from ottla.server import controller_orders, order_messages, slicing

MODULES: Final = (
    *(active_controller, broker_changes, broker_request_batch, controller_context, isr_changes),
    *(leader_balance, partition_state_machine, replica_state_machine, topic_changes),
    *(coordinator_partitions, deletion, group_coordinator, group_records, member_answers),
    *(member_requests, partition_loader, rebalancer, topic_drops, assignors, cluster_topics),
    *(consumer_group_records, consumer_rebalancer, group_migration, target_assignment),
    *(topic_matches, marker_sender, transaction_loader, transaction_partitions),
    *(transaction_state_manager, message, scheduler, controller_orders, order_messages, slicing),
)
NAMES: Final = re.compile(
    r"\w+_(IN_A_SLICE|IN_A_STEP|IN_A_REQUEST|AT_ONCE|PER_STEP|PER_BATCH)"
    r"|SLICE_STEPS|MANY_PARTITIONS|LONG_VALUE_BYTES"
)
SMALL: Final = 2


@contextmanager
def small_slices() -> Iterator[None]:
    """Let all such work pause at every second element meanwhile."""
    with ExitStack() as stack:
        for module in MODULES:
            for name in filter(NAMES.fullmatch, list(vars(module))):
                stack.callback(setattr, module, name, getattr(module, name))
                setattr(module, name, SMALL)
        yield
