"""Clients of both protocols that do one thing at a time, in a group that changes its protocol."""

from __future__ import annotations

from consumer_group_world import REVOCATION_MS, ClassicPeer, ConsumerWorld, Peer, named, packed
from group_world import Reply

from ottla.errors import ErrorCode

PARTITIONS = frozenset(("t", number) for number in range(5))
STARTS_ANEW = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.ILLEGAL_GENERATION,
}
JOINS_AGAIN = {
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


class ClassicClient:
    """A client of the classic protocol that does one thing at a time, and leads if it has to."""

    def __init__(self, world: ConsumerWorld) -> None:
        self.peer = ClassicPeer(world)
        self.is_in = False
        self.joining: Reply | None = None
        self.syncing: Reply | None = None

    @property
    def member_id(self) -> str:
        return self.peer.member_id

    @property
    def held(self) -> frozenset[tuple[str, int]]:
        return self.peer.owned

    @property
    def has_assignment(self) -> bool:
        """Whether it has one, or one has arrived that it has not looked at."""
        return bool(self.held) or self.syncing is not None

    def forget(self) -> None:
        """Hold nothing, and join as somebody new."""
        self.peer = ClassicPeer(self.peer.world)
        self.joining = self.syncing = None

    def step(self) -> None:
        if not self.is_in:
            return
        if self.joining is not None:
            self.finish_join(self.joining)
        elif self.syncing is not None:
            self.finish_sync(self.syncing)
        elif self.peer.wants_to_join:
            self.joining = self.peer.join(version=4)
        else:
            self.judge(self.peer.beat())

    def finish_join(self, reply: Reply) -> None:
        if reply.is_open:
            return
        self.joining = None
        if reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            self.peer.member_id = reply.value.member_id
            return
        self.judge(self.peer.take(reply))
        if not reply.error:
            dealt = None
            if reply.value.leader == self.member_id:
                ids = sorted(member.member_id for member in reply.value.members)
                shares = sorted(PARTITIONS)
                dealt = {m: packed(frozenset(shares[n :: len(ids)])) for n, m in enumerate(ids)}
            self.syncing = self.peer.sync(dealt)

    def finish_sync(self, reply: Reply) -> None:
        if not reply.is_open:
            self.syncing = None
            self.judge(self.peer.receive(reply))

    def judge(self, error: ErrorCode) -> None:
        if error in STARTS_ANEW:
            self.forget()
        else:
            assert not error or error in JOINS_AGAIN, error

    def leave(self) -> None:
        self.peer.world.leave(self.member_id)
        self.forget()
        self.is_in = False


class ConsumerClient:
    """A client of the consumer protocol."""

    def __init__(self, world: ConsumerWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.lives = 0
        self.is_in = False
        self.is_unsure = False
        self.peer = Peer(name)

    @property
    def member_id(self) -> str:
        return self.peer.member_id

    @property
    def held(self) -> frozenset[tuple[str, int]]:
        return named(self.peer.held)

    @property
    def has_assignment(self) -> bool:
        return bool(self.held)

    def forget(self) -> None:
        self.peer.epoch, self.peer.held = 0, frozenset()
        self.is_unsure = False

    def step(self) -> None:
        if not self.is_in:
            return
        if not self.peer.epoch:
            error = self.world.join(self.peer)
        elif self.is_unsure:
            full = {"rebalance_timeout_ms": REVOCATION_MS, **self.peer.subscription}
            error = self.world.beat(self.peer, **full)
        else:
            error = self.world.beat(self.peer)
        if error in STARTS_ANEW:
            self.forget()
            return
        self.is_unsure = bool(error)
        assert not error or error in JOINS_AGAIN, error

    def leave(self) -> None:
        self.world.quit(self.peer)
        self.forget()
        self.lives += 1
        self.peer = Peer(f"{self.name}-{self.lives}")
        self.is_in = False
