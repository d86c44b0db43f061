"""Who leads a partition: functions of its replicas, those in sync, and those that live.

Each takes the partition as the controller knows it and returns the state in the next epoch, or
None where it has nobody to offer. Replicas are tried in the order of the assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from ottla.structs import NO_LEADER, LeaderAndIsr


class Candidates(NamedTuple):
    """What an election looks at.

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

    With `unclean_allowed`, and nobody in sync alive, the first live one does, alone in sync, at
    the price of what it has not got.
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
    """As `elect_offline` where an unclean election is allowed."""
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
    """A replica leads whose broker is not shutting down; those that are leave the ISR."""
    state, replicas, live, leaving, *_ = candidates
    staying = [replica for replica in state.isr if replica not in leaving]
    elected = _first(replicas, live, staying)
    return None if elected is None else _led_by(elected, state, staying)


def in_next_epoch(state: LeaderAndIsr) -> LeaderAndIsr:
    """Led as before: there is something else that the replicas are to know."""
    return state._replace(leader_epoch=state.leader_epoch + 1)


def without_replica(state: LeaderAndIsr, gone: Collection[int]) -> LeaderAndIsr:
    """The next epoch without those replicas in the ISR; a leader among them leads no more.

    An ISR of which nobody would be left is kept: one of its members may lead later.
    """
    isr = tuple(replica for replica in state.isr if replica not in gone)
    leader = NO_LEADER if state.leader in gone else state.leader
    return LeaderAndIsr(leader, state.leader_epoch + 1, isr or state.isr, state.version)


def _first(replicas: Collection[int], *conditions: Collection[int]) -> int | None:
    return next(
        (replica for replica in replicas if all(replica in allowed for allowed in conditions)),
        None,
    )


def _led_by(leader: int, state: LeaderAndIsr, isr: Collection[int]) -> LeaderAndIsr:
    return LeaderAndIsr(leader, state.leader_epoch + 1, tuple(isr), state.version)
