"""The election of a partition's leader, from its replicas, those in sync, and those that live.

Each takes the partition as the controller knows it and returns the state in the next epoch, or
None where no replica can lead. Replicas are tried in the order of the assignment.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection

from ottla.config.config_type import INT_MAX
from ottla.structs import NO_LEADER, LeaderAndIsr, NamedTuple

logger = logging.getLogger(__name__)


class Candidates(NamedTuple):
    """The facts of an election.

    `live` are the brokers whose replica of the partition can be used; `leaving` are those of them
    that are shutting down. `targets` are the replicas after a reassignment.
    """

    state: LeaderAndIsr
    replicas: tuple[int, ...]
    live: Collection[int]
    leaving: Collection[int] = ()
    targets: tuple[int, ...] = ()
    unclean_allowed: bool = False


LeaderElection = Callable[[Candidates], LeaderAndIsr | None]


def initial_state(replicas: tuple[int, ...], live: Collection[int]) -> LeaderAndIsr | None:
    """The first state of a partition: every live replica is in sync; None if none lives."""
    isr = tuple(replica for replica in replicas if replica in live)
    return LeaderAndIsr(isr[0], 0, isr) if isr else None


def elect_offline(candidates: Candidates) -> LeaderAndIsr | None:
    """The leader is dead: the first live replica in sync leads.

    With `unclean_allowed`, and no live replica in sync, the first live one leads, alone in sync;
    the records that it lacks are lost.
    """
    state, replicas, live, *_ = candidates
    elected = _first(replicas, live, state.isr)
    if elected is not None:
        return _led_by(elected, state, [replica for replica in state.isr if replica in live])
    if candidates.unclean_allowed:
        survivor = _first(replicas, live)
        if survivor is not None:
            return _led_by(survivor, state, [survivor])
    return None


def elect_unclean(candidates: Candidates) -> LeaderAndIsr | None:
    """Elect as `elect_offline` does where an unclean election is allowed."""
    return elect_offline(candidates._replace(unclean_allowed=True))


def elect_preferred(candidates: Candidates) -> LeaderAndIsr | None:
    """The first replica of the assignment leads, if it lives and is in sync."""
    state, replicas, live, *_ = candidates
    elected = _first(replicas[:1], live, state.isr)
    return None if elected is None else _led_by(elected, state, state.isr)


def elect_reassigned(candidates: Candidates) -> LeaderAndIsr | None:
    """One of the replicas that stay after the reassignment leads."""
    state = candidates.state
    elected = _first(candidates.targets, candidates.live, state.isr)
    return None if elected is None else _led_by(elected, state, state.isr)


def elect_for_shutdown(candidates: Candidates) -> LeaderAndIsr | None:
    """A replica leads whose broker is not shutting down; those shutting down leave the ISR."""
    state, replicas, live, leaving, *_ = candidates
    staying = [replica for replica in state.isr if replica not in leaving]
    elected = _first(replicas, live, staying)
    return None if elected is None else _led_by(elected, state, staying)


def in_next_epoch(state: LeaderAndIsr) -> LeaderAndIsr:
    """The next epoch with the same leader: something else has changed for the replicas."""
    return state._replace(leader_epoch=min(state.leader_epoch + 1, INT_MAX))


def without_replica(state: LeaderAndIsr, gone: Collection[int]) -> LeaderAndIsr:
    """The next epoch without those replicas in the ISR; a leader among them no longer leads.

    An ISR that would become empty is kept: one of its members may lead later.
    """
    isr = tuple(replica for replica in state.isr if replica not in gone)
    leader = NO_LEADER if state.leader in gone else state.leader
    epoch = min(state.leader_epoch + 1, INT_MAX)
    return LeaderAndIsr(leader, epoch, isr or state.isr, state.version)


def _first(replicas: Collection[int], *conditions: Collection[int]) -> int | None:
    return next(
        (replica for replica in replicas if all(replica in allowed for allowed in conditions)), None
    )


def _led_by(leader: int, state: LeaderAndIsr, isr: Collection[int]) -> LeaderAndIsr | None:
    """The state after an election; None where no epoch is left: leaders would share the last."""
    if state.leader_epoch >= INT_MAX:
        logger.error("no leader epoch is left after %d, so broker %d cannot lead", INT_MAX, leader)
        return None
    return LeaderAndIsr(leader, state.leader_epoch + 1, tuple(isr), state.version)
