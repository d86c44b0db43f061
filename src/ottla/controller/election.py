"""Who leads a partition: a function of its replicas, those in sync, and those that live."""

from __future__ import annotations

from collections.abc import Collection

from ottla.structs import NO_LEADER, LeaderAndIsr


def initial_state(replicas: tuple[int, ...], live: Collection[int]) -> LeaderAndIsr | None:
    """The first state of a partition: every live replica is in sync; None if none lives."""
    isr = tuple(replica for replica in replicas if replica in live)
    return LeaderAndIsr(isr[0], 0, isr) if isr else None


def elect_leader(
    state: LeaderAndIsr,
    replicas: tuple[int, ...],
    live: Collection[int],
    unclean_allowed: bool,
) -> LeaderAndIsr:
    """The state in the next epoch, led by the first live replica that is in sync.

    If none is: with `unclean_allowed` by the first live one, alone in sync, at the price of what
    it has not got; else by nobody, the ISR kept, so that one of its members may lead later.
    """
    epoch = state.leader_epoch + 1
    isr = tuple(replica for replica in state.isr if replica in live)
    candidates = [replica for replica in replicas if replica in isr]
    if candidates:
        return LeaderAndIsr(candidates[0], epoch, isr, state.version)
    survivors = [replica for replica in replicas if replica in live]
    if survivors and unclean_allowed:
        return LeaderAndIsr(survivors[0], epoch, (survivors[0],), state.version)
    return LeaderAndIsr(NO_LEADER, epoch, state.isr, state.version)
