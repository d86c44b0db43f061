"""What a transaction coordinator knows is what a fresh load of its log gives, after anything.

Requests of present producers and of zombies, time limits and expiry, with writes that are
acknowledged late and in any order, refused, or in the log though not in time. No transaction gets
two outcomes, and when all is well again none is open or half done.
"""

from __future__ import annotations

from breadth import examples
from coordinator_world import T0, T1, TIMEOUT_MS, TransactionWorld
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ottla.coordinator.coordinator_writer import SETTLE_MS
from ottla.coordinator.transaction.marker_sender import MARKERS_IN_A_STEP
from ottla.coordinator.transaction.transaction import (
    EPOCH_BUMP,
    IDLE,
    LAST_EPOCH,
    Transaction,
    TransactionState,
)
from ottla.coordinator.transaction.transaction_records import transaction_batch
from ottla.errors import ErrorCode
from ottla.structs import TopicPartition, TxnProducer

IDS = st.sampled_from(["x", "y"])
ERRORS = st.sampled_from(
    [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    ]
)
EXPIRATION_MS = 200_000
MANY = [TopicPartition("many", number) for number in range(MARKERS_IN_A_STEP + 50)]


class TransactionSequences(RuleBasedStateMachine):
    """One coordinator, whose ids begin at any epoch."""

    @initialize(epoch=st.sampled_from([0, LAST_EPOCH - 3, LAST_EPOCH]))
    def start(self, epoch: int) -> None:
        self.world = TransactionWorld(transactional_id_expiration_ms=EXPIRATION_MS)
        begun = Transaction(7, epoch, TIMEOUT_MS, TransactionState.EMPTY, updated_ms=0)
        for name in "xy":
            batch = transaction_batch(name, begun, 0)
            self.world.log.append(0, batch, lambda error, offset: None)
            begun = begun._replace(producer_id=8)
        self.world.restart()
        # Every identity that a producer was given, by id, the latest last.
        self.given: dict[str, list[tuple[int, int]]] = {"x": [], "y": []}

    @property
    def manager(self):
        return self.world.coordinator.manager

    def sender(self, name: str, age: int) -> TxnProducer:
        """The present producer of the id, or one that was before."""
        known = self.given[name]
        return TxnProducer(name, *known[max(-len(known), -1 - age)]) if known else TxnProducer(name)

    def take(self, name: str, error: ErrorCode, producer_id: int, epoch: int) -> None:
        if not error:
            if (producer_id, epoch) in self.given[name]:
                self.given[name].remove((producer_id, epoch))
            self.given[name].append((producer_id, epoch))

    @rule(name=IDS, age=st.sampled_from([None, 0, 1, 5]))
    def init(self, name: str, age: int | None) -> None:
        sender = TxnProducer(name) if age is None else self.sender(name, age)
        self.run(
            self.world.coordinator.init_producer_id(
                sender, TIMEOUT_MS, lambda *answer: self.take(name, *answer)
            )
        )

    def run(self, coroutine) -> None:
        self.world.runtime.scheduler.run(coroutine)

    @rule(name=IDS, partition=st.sampled_from([T0, T1]), age=st.sampled_from([0, 0, 0, 1]))
    def add(self, name: str, partition, age: int) -> None:
        self.world.add(self.sender(name, age), partition)

    @rule(name=IDS)
    def add_many(self, name: str) -> None:
        """So many that their markers are sent in slices, between which all else may come."""
        self.world.add(self.sender(name, 0), *MANY)

    @rule(name=IDS, commit=st.booleans(), age=st.sampled_from([0, 0, 0, 1]))
    def end(self, name: str, commit: bool, age: int) -> None:
        self.world.coordinator.end_transaction(self.sender(name, age), commit, lambda error: None)

    @rule(name=IDS, commit=st.booleans(), age=st.sampled_from([0, 0, 0, 1]))
    def end_with_bump(self, name: str, commit: bool, age: int) -> None:
        self.run(
            self.world.coordinator.end_with_bump(
                self.sender(name, age), commit, lambda *answer: self.take(name, *answer)
            )
        )

    @rule(ms=st.sampled_from([100, TIMEOUT_MS + 10_000, EXPIRATION_MS]))
    def advance(self, ms: int) -> None:
        self.world.advance(ms)

    @rule(error=ERRORS)
    def set_error(self, error: ErrorCode) -> None:
        self.world.log.error = error
        self.world.log.is_replicated = error is not ErrorCode.REQUEST_TIMED_OUT

    @rule(is_led=st.booleans())
    def set_leaders(self, is_led: bool) -> None:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.world.leaders.errors = {} if is_led else {T0: error}

    @rule()
    def hold(self) -> None:
        self.world.log.hold = True

    @rule(in_order=st.booleans())
    def release(self, in_order: bool) -> None:
        self.world.log.hold = False
        self.world.log.release(in_order)

    @precondition(lambda self: self.world.log.held_count)
    @rule()
    def acknowledge_one_write(self) -> None:
        self.world.log.release_first()

    @precondition(lambda self: not self.world.log.hold)
    @rule()
    def restart(self) -> None:
        self.world.restart()

    @rule()
    def lose_power(self) -> None:
        """No producer has an identity that the log does not have."""
        self.world.coordinator.shutdown()
        self.world.log.lose_power()
        self.world.log.hold = False
        self.world.start()
        for name, known in self.given.items():
            current = self.manager.get(name).current
            if known and known[-1][0] == current.producer_id:
                assert known[-1][1] <= current.producer_epoch

    @rule()
    def settle(self) -> None:
        """When nothing is on its way, memory is what the log says."""
        self.set_error(ErrorCode.NONE)
        self.set_leaders(is_led=True)
        self.release(in_order=True)
        self.world.advance(2 * SETTLE_MS)
        assert self.manager.differences(0) == []
        for metadata in self.manager.all():
            assert not metadata.is_pending
            assert metadata.current.state in (*IDLE, TransactionState.ONGOING)

    @invariant()
    def each_epoch_has_one_outcome(self) -> None:
        """With an epoch for each transaction, no partition has markers of both kinds in one."""
        if not hasattr(self, "world"):
            return
        leaders = self.world.leaders
        outcomes: dict[tuple, bool] = {}
        for (*place, commit), version in zip(
            leaders.written, leaders.written_versions, strict=True
        ):
            if version >= EPOCH_BUMP:
                assert outcomes.setdefault(tuple(place), commit) is commit

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.settle()
        self.world.advance(TIMEOUT_MS + 20_000)
        self.settle()
        assert all(metadata.current.state in IDLE for metadata in self.manager.all())


TestTransactionSequences = TransactionSequences.TestCase
TestTransactionSequences.settings = settings(
    max_examples=examples(150), stateful_step_count=40, deadline=None
)
