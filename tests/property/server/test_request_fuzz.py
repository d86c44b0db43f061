"""What a request costs the broker is bounded, whatever it names and however often.

The long run, with the clock of the processor, is in tests/soak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from apis_world import Client
from breadth import examples
from counted_calls import calls
from request_fuzzer import (
    MEMORY_BYTES,
    MEMORY_FACTOR,
    WITHOUT,
    RequestFuzzer,
    Watch,
    memory_of,
    steps_measured,
)

from ottla.errors import LocalProtocolError
from ottla.protocol.api_keys import ApiKey
from ottla.protocol.header import encode_request
from ottla.protocol.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.protocol.types import String
from ottla.security.principal import KafkaPrincipal
from ottla.testing import InProcessBroker

GUARDED = {
    "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
    "super_users": "User:admin",
}
REQUESTS = 80
SIZES = [3, 700, 2_500]
HUGE = [30_000]
MOST_CALLS = 150_000
"""Of functions in one step of the loop: some 50 ms, where nothing else runs."""
EVE, ADMIN = KafkaPrincipal.user("eve"), KafkaPrincipal.user("admin")


@pytest.fixture(scope="module", params=[{}, GUARDED], ids=["open", "guarded"])
def broker(request: pytest.FixtureRequest) -> Iterator[InProcessBroker]:
    """A broker where everybody may do everything, and one where most may do nothing."""
    with InProcessBroker(**request.param) as broker:
        broker.create_topic("t", partitions=5)
        yield broker


@pytest.mark.parametrize("principal", [EVE, ADMIN], ids=["eve", "admin"])
def test_no_step_has_more_work_than_a_step_may_have(broker, principal):
    """Of any request: the functions that a step calls are counted, as seconds depend on others."""
    fuzzer = RequestFuzzer(1, broker.broker.apis.supported(), SIZES)
    watch = Watch(broker)
    too_long = []
    with steps_measured(watch, calls):
        for _ in range(REQUESTS):
            frame, what = fuzzer.frame()
            watch.worst = 0
            watch.send(frame, principal)
            if watch.worst > MOST_CALLS:
                too_long.append(f"{what}: {watch.worst} calls")

    assert too_long == []


@pytest.mark.parametrize(
    ("sizes", "count"), [(SIZES, REQUESTS), (HUGE, examples(25))], ids=["many", "huge"]
)
def test_no_request_takes_more_memory_than_it_may(broker, sizes, count):
    """Four times its bytes and 16 MB, with its answer and what is kept of it."""
    fuzzer = RequestFuzzer(2, broker.broker.apis.supported(), sizes)
    watch = Watch(broker)
    frames = [fuzzer.frame() for _ in range(count)]
    too_much = []
    for frame, what in frames:
        most = memory_of(lambda frame=frame: watch.send(frame, EVE))
        if most > MEMORY_FACTOR * len(frame) + MEMORY_BYTES:
            too_much.append(f"{what}: {most} bytes")

    assert too_much == []


SMALL_ELEMENTS = [
    (WriteTxnMarkersRequest(markers=[marker] * count), 1)
    for count, marker in (
        (119_000, WritableTxnMarker()),
        (59_000, WritableTxnMarker(topics=[WritableTxnMarkerTopic()])),
        (24_000, WritableTxnMarker()),
        (8_000, WritableTxnMarker(topics=[WritableTxnMarkerTopic(partition_indexes=[0])])),
    )
]
"""As many as were taken, and as many as are."""


@pytest.mark.parametrize("principal", [EVE, ADMIN], ids=["eve", "admin"])
@pytest.mark.parametrize(("request_", "version"), SMALL_ELEMENTS)
def test_very_many_small_elements_take_no_more_memory_than_they_may(
    broker, request_, version, principal
):
    """Markers in an element of 17 bytes were answered out of 80 MB."""
    watch, frame = Watch(broker), encode_request(version, 1, "c", request_)[4:]
    watch.send(frame, principal)  # codecs are made
    most = memory_of(lambda: watch.send(frame, principal))

    assert most <= MEMORY_FACTOR * len(frame) + MEMORY_BYTES


class LongNames(RequestFuzzer):
    """Each string is as long as one may be."""

    def _scalar(self, type_: Any) -> Any:
        return (
            self.chance.choice(["x" * 32_767, "é" * 16_383])
            if type_ is String
            else super()._scalar(type_)
        )


async def answered(broker: InProcessBroker, frame: bytes) -> bool:
    """Whether a request is answered, or ended; False where it is hung up on."""
    client = Client(EVE)
    asyncio.get_running_loop().call_soon(
        client.hand_over, broker.broker.apis, memoryview(bytearray(frame))
    )
    while not (client.sent or client.ended or client.closed):
        await asyncio.sleep(0)
        broker.broker.replica_manager.complete_delayed()
    return client.closed is None


@pytest.mark.parametrize("seed", range(examples(6)))
def test_names_as_long_as_they_may_be_are_answered(broker, seed):
    """Messages that name them did not fit into an answer, and the client waited for ever."""
    refused = []
    for api in broker.broker.apis.supported():
        if api[0] in WITHOUT:
            continue
        fuzzer = LongNames(seed, [api], [1, 2])
        request, version = fuzzer.request()
        try:
            frame = encode_request(version, 7, "fuzzer", request)[4:]
        except LocalProtocolError:
            continue
        if not broker.run(answered(broker, frame)):
            refused.append((ApiKey(api[0]).name, version))

    assert refused == []
