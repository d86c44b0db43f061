"""How requests are counted and timed, on a clock of the test's own."""

from __future__ import annotations

from collections import Counter

import pytest

from ottla.config.broker_config import BrokerConfig
from ottla.extensions.measures.request_metrics import (
    COUNTED_IN_A_SLICE,
    LOOK_EACH,
    ROWS_AT_ONCE,
    RequestLog,
    RequestMetrics,
    error_counters,
)
from ottla.metrics.metrics_registry import MetricsRegistry
from ottla.metrics.sensors import TICK_MS
from ottla.network.connection import Connection
from ottla.network.frame_buffer import BufferPool, FrameBuffer
from ottla.network.processor import Sent
from ottla.network.request_context import RequestContext
from ottla.protocol.api_keys import MESSAGES, ApiKey
from ottla.protocol.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.fetch import FetchRequest, FetchResponse
from ottla.protocol.header import RequestHeader
from ottla.protocol.message import request_class
from ottla.protocol.offsets import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.runtime import DelayedOperation
from ottla.runtime.scheduler import at_once, pause
from ottla.server.apis import Apis
from ottla.testing.runtime import mock_runtime


class Owner:
    """The processor's place: what is sent is noted by `sent`."""

    def has_output(self, connection):
        pass


class World:
    """Requests of one connection, measured."""

    def __init__(self):
        self.runtime = mock_runtime()
        self.registry = MetricsRegistry(self.runtime, 1_000)
        self.sent = Sent(self.runtime.clock)
        self.metrics = RequestMetrics(self.registry, self.sent)
        self.apis = Apis(self.runtime)
        self.apis.meter = self.metrics
        self.connection = Connection(
            Owner(), None, FrameBuffer(1_000, BufferPool()), "id", "PLAINTEXT", ("127.0.0.1", 1)
        )

    def pass_ms(self, ms):
        self.runtime.clock.advance(ms)

    @property
    def now_ns(self):
        return self.runtime.clock.monotonic_ns()

    def begin(self, body, version=3, size=100):
        """A request whose bytes are here now, as its handler gets it."""
        context = self._context(body, version)
        context.watch = self.metrics.measure(context, body, size)
        return context

    def _context(self, body, version):
        self.connection.muted = 1
        return RequestContext(self.connection, RequestHeader(body.api_key, version, 7, "client"), 0)

    def handle(self, body, response, version=3):
        """A request that its handler answers at once, from the table of APIs on."""
        self.apis._call(lambda context, body: response, self._context(body, version), body, 100)

    def send(self):
        """What is queued begins to be sent now, and takes 1 ms."""
        self.sent.begin()
        self.pass_ms(1)
        if self.connection.unsent:
            self.metrics.on_sent(self.connection)

    def read(self, name):
        """The values of a family by the values of their tags."""
        return {
            tuple(value for _, value in tags): value
            for family, tags, value in filter(None, self.registry.read())
            if family.name.name == name
        }

    def times(self, request):
        """The mean of each time of an API, in ms."""
        names = ("TotalTimeMs", "RequestQueueTimeMs", "LocalTimeMs", "RemoteTimeMs")
        names += ("ResponseQueueTimeMs", "ResponseSendTimeMs")
        return tuple(
            self.read(name)[(request,)].snapshot(self.registry.now_ms).mean for name in names
        )


@pytest.fixture
def world():
    return World()


def test_times_of_a_request_that_is_answered_at_once(world):
    """Queued for 2 ms, 5 ms in the handler, 3 ms until sending, 1 ms to send: 11 in all."""
    world.connection.ready_ns = world.now_ns
    world.pass_ms(2)
    context = world.begin(ApiVersionsRequest())
    world.pass_ms(5)
    context.respond(ApiVersionsResponse())
    world.pass_ms(3)
    world.send()

    assert world.times("ApiVersions") == (11, 2, 5, 0, 3, 1)
    assert world.read("RequestBytes")[("ApiVersions",)].snapshot(0).max == 100


def test_waiting_is_remote_time(world):
    """A produce with acks=all is 4 ms in the handler, then waits for 90 ms for its replicas."""
    world.connection.ready_ns = world.now_ns
    context = world.begin(ProduceRequest())
    world.pass_ms(4)
    context.begin_wait()
    world.pass_ms(90)
    context.respond(ProduceResponse())
    world.send()

    assert world.times("Produce") == (95, 0, 4, 90, 0, 1)


class Acknowledgement(DelayedOperation):
    """What a produce waits for; the test answers in its place."""

    def try_complete(self):
        return False

    def on_complete(self):
        """Do nothing."""


def test_answer_that_is_held_behind_another_is_in_the_queue_until_it_is_sent(world):
    """Two produces wait for their replicas; the second is acknowledged 90 ms before the first."""
    world.connection.ready_ns = world.now_ns
    contexts = []
    for _ in range(2):
        contexts.append(world.begin(ProduceRequest()))
        contexts[-1].await_acknowledgement(Acknowledgement(1_000))
    first, second = contexts
    second.respond(ProduceResponse())
    world.send()
    assert world.read("TotalTimeMs")[("Produce",)].count == 0
    world.pass_ms(89)
    first.respond(ProduceResponse())
    world.send()
    total = world.read("TotalTimeMs")[("Produce",)].snapshot(0)

    assert (total.count, total.min, total.max) == (2, 91, 91)
    assert world.read("ResponseQueueTimeMs")[("Produce",)].snapshot(0).max == 91
    assert world.read("ResponseSendTimeMs")[("Produce",)].snapshot(0).max == 1
    assert world.connection.unsent == ()


def test_request_without_an_answer_is_measured(world):
    """A produce with acks=0 ends when its handler does."""
    world.connection.ready_ns = world.now_ns
    context = world.begin(ProduceRequest())
    world.pass_ms(4)
    context.no_response()
    world.send()

    assert world.read("TotalTimeMs")[("Produce",)].shown_count == 1
    assert world.read("LocalTimeMs")[("Produce",)].snapshot(0).mean == 4


def test_requests_are_counted_by_version_and_errors_by_name(world):
    """Each partition of an answer counts, those without an error as NONE."""
    for version, codes in ((8, (0, 3)), (9, (0,))):
        partitions = [
            PartitionProduceResponse(index=index, error_code=code)
            for index, code in enumerate(codes)
        ]
        context = world.begin(ProduceRequest(), version)
        context.respond(
            ProduceResponse(
                responses=[TopicProduceResponse(name="t", partition_responses=partitions)]
            )
        )
    requests = {tags: meter.count for tags, meter in world.read("RequestsPerSec").items()}
    errors = {tags: meter.count for tags, meter in world.read("ErrorsPerSec").items()}

    assert requests == {("Produce", "8"): 1, ("Produce", "9"): 1}
    assert errors == {("Produce", "NONE"): 2, ("Produce", "UNKNOWN_TOPIC_OR_PARTITION"): 1}


def test_fetches_of_consumers_and_followers_are_told_apart(world):
    """Fetch is both together."""
    for replica_id in (-1, 2, 2):
        context = world.begin(FetchRequest(replica_id=replica_id), version=11)
        context.respond(FetchResponse())
        world.send()
    counts = {tags[0]: value.shown_count for tags, value in world.read("TotalTimeMs").items()}

    assert counts == {"Fetch": 3, "FetchConsumer": 1, "FetchFollower": 2}
    assert world.read("RequestsPerSec")[("Fetch", "11")].count == 3


def test_all_are_counted_where_only_some_are_timed(world):
    """At 5,000 requests a second one in fifty is timed; the counts are those of all."""
    world.registry.start()
    for _ in range(2_000):
        for _ in range(25):
            world.handle(ApiVersionsRequest(), ApiVersionsResponse())
            if world.connection.unsent:
                world.metrics.on_sent(world.connection)
        world.runtime.scheduler.advance(5)
    histogram = world.read("TotalTimeMs")[("ApiVersions",)]

    assert histogram.shown_count == 50_000
    assert 800 < histogram.count < 1_200
    for _ in range(2):  # and when they become few, all are timed again
        world.runtime.scheduler.advance(5_000)
    assert world.metrics._every == 1


def test_log_of_requests_has_every_one_timed(world):
    """Nothing is left to chance while there is a log."""
    world.metrics._every = world.metrics.until_timed = 100
    world.metrics.log = RequestLog(BrokerConfig())
    for _ in range(10):
        world.begin(ApiVersionsRequest()).respond(ApiVersionsResponse())

    assert len(world.connection.unsent) == 10


@pytest.mark.parametrize("key", MESSAGES, ids=lambda key: key.name)
def test_errors_of_every_response_can_be_counted(key):
    """A response without an error, of any API, has no other error than NONE."""
    response = request_class(key).response_class
    errors = Counter()
    count, count_in_slices = error_counters(response, errors)
    count(response())
    at_once(count_in_slices(response()))

    assert set(errors) <= {0}


@pytest.mark.parametrize("sizes", [[], [3], [70_000], [9_000] * 7, [1] * 300, [0, 30_000, 0]])
def test_errors_of_an_answer_are_counted_in_slices_as_at_once(sizes):
    """With a pause after so many of them, wherever they stand."""
    topics = [
        OffsetFetchResponseTopics(
            partitions=[OffsetFetchResponsePartitions(error_code=size % 3)] * size
        )
        for size in sizes
    ]
    response = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(topics=topics)])
    errors, whole = Counter(), Counter()
    pauses = list(error_counters(OffsetFetchResponse, errors)[1](response))
    error_counters(OffsetFetchResponse, whole)[0](response)

    assert errors == whole
    in_a_slice = COUNTED_IN_A_SLICE + max(sizes, default=0)
    assert whole.total() <= (len(pauses) + 1) * (in_a_slice + 1)


def test_request_has_the_throttle_time_and_the_queue_time_of_its_own(world):
    """However late it is: moments are differences."""
    world.pass_ms(10**6)
    world.connection.ready_ns = world.now_ns
    world.pass_ms(2)
    context = world.begin(ProduceRequest())
    context.respond(ProduceResponse(throttle_time_ms=70))
    world.send()
    world.send()

    assert world.read("ThrottleTimeMs")[("Produce",)].snapshot(0).mean == 70
    assert world.read("RequestQueueTimeMs")[("Produce",)].snapshot(0).mean == 2
    total = world.read("TotalTimeMs")[("Produce",)]
    assert (total.count, total.snapshot(0).mean) == (1, 3)


def test_burst_is_timed_less_at_once_and_slow_requests_are_all_timed_again(world):
    """A tick is five seconds away; what is looked at is how fast the last ones came."""
    world.registry.start()
    world.pass_ms(10**6)
    for _ in range(4 * LOOK_EACH):
        world.handle(ApiVersionsRequest(), ApiVersionsResponse())
        world.metrics.on_sent(world.connection)
    timed = world.read("TotalTimeMs")[("ApiVersions",)]
    assert timed.shown_count == 4 * LOOK_EACH
    assert timed.count < 3 * LOOK_EACH
    world.runtime.scheduler.advance(3 * TICK_MS)
    before = world.read("TotalTimeMs")[("ApiVersions",)].count
    for _ in range(50):
        world.pass_ms(100)
        world.handle(ApiVersionsRequest(), ApiVersionsResponse())
        world.metrics.on_sent(world.connection)

    assert world.read("TotalTimeMs")[("ApiVersions",)].count == before + 50


def test_requests_that_come_slowly_are_all_timed(world):
    """However many there have been."""
    for _ in range(3 * LOOK_EACH):
        world.pass_ms(50)
        world.handle(ApiVersionsRequest(), ApiVersionsResponse())
        world.metrics.on_sent(world.connection)

    assert world.read("TotalTimeMs")[("ApiVersions",)].count == 3 * LOOK_EACH


def test_rows_are_folded_before_they_are_too_many(world):
    """Nobody may read the metrics for days."""
    kinds = {}
    for _ in range(ROWS_AT_ONCE):
        world.pass_ms(50)
        context = world.begin(ProduceRequest())
        kinds[context.watch.kind] = None
        context.respond(ProduceResponse())
    world.metrics.on_sent(world.connection)
    (kind,) = kinds

    assert kind.rows == []
    assert kind.histograms[0].count == ROWS_AT_ONCE


def test_fetches_are_looked_at_even_where_they_are_not_timed(world):
    """Of these it has to be asked who fetches; of others the count is enough."""
    for _ in range(3):
        world.begin(FetchRequest(replica_id=2), version=11)
    world.read("RequestsPerSec")

    assert ApiKey.FETCH not in world.metrics.watches
    world.begin(ProduceRequest())
    assert ApiKey.PRODUCE in world.metrics.watches


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_time_after_the_handler_has_returned_is_remote_time(world, is_coroutine):
    """Whether it answers by its context, or by a coroutine."""
    contexts = []

    async def answer():
        await pause(world.runtime.scheduler, 90)
        return ProduceResponse()

    def handle(context, body):
        contexts.append(context)
        return answer() if is_coroutine else None

    world.pass_ms(1)
    world.connection.ready_ns = world.now_ns
    body = ProduceRequest()
    world.apis._call(handle, world._context(body, 9), body, 100)
    world.runtime.scheduler.advance(90)
    if not is_coroutine:
        contexts[0].respond(ProduceResponse())
    world.send()

    assert world.times("Produce")[2:4] == (0, 90)
