"""InitProducerId for idempotent producers."""

import pytest

from ottla.coordinator.transaction.producer_id_manager import ProducerIdManager
from ottla.errors import ErrorCode
from ottla.protocol.message import encode
from ottla.protocol.transactions import InitProducerIdRequest
from ottla.server.handlers.producer_ids import ProducerIdHandlers


class Ids(ProducerIdManager):
    """Counts from 100 without a registry."""

    def __init__(self):
        self.next_id = 99

    async def generate_producer_id(self):
        self.next_id += 1
        return self.next_id


class Context:
    """Who asks."""

    client_id = "app"


def call(body, version=0, ids=None):
    """The answer, which must have bytes in the version of the request."""
    coroutine = ProducerIdHandlers(ids or Ids(), None).handle_init_producer_id(Context(), body)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    encode(stopped.value.value, version)
    return stopped.value.value


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producer_gets_an_id_with_epoch_0(version):
    """Every version asks for the same."""
    answer = call(InitProducerIdRequest(), version)

    assert (answer.error_code, answer.producer_id, answer.producer_epoch) == (0, 100, 0)


def test_producer_that_has_an_id_gets_a_new_one():
    """Without a transactional id there is no epoch to raise (KIP-360)."""
    ids = Ids()
    first = call(InitProducerIdRequest(), 3, ids).producer_id
    second = call(InitProducerIdRequest(producer_id=first, producer_epoch=4), 3, ids)

    assert (second.producer_id, second.producer_epoch) == (101, 0)


@pytest.mark.parametrize("fields", [{"producer_id": 5}, {"producer_epoch": 5}])
def test_id_without_epoch_is_refused(fields):
    """They come together or not at all."""
    answer = call(InitProducerIdRequest(**fields), 3)

    assert (answer.error_code, answer.producer_id) == (ErrorCode.INVALID_REQUEST, -1)


def test_empty_transactional_id_is_not_one():
    """Null means none; an empty text is a mistake."""
    answer = call(InitProducerIdRequest(transactional_id=""))

    assert answer.error_code == ErrorCode.INVALID_REQUEST
