"""The plug-in API as authors of connectors use it."""

from __future__ import annotations

import pytest
from contexts import LoneContext

from ottla.config.config_def import REQUIRED, ConfigTable, config_key
from ottla.connect.connector import SourceConnector, TryAgainError
from ottla.connect.data import SourceRecord


class Ticks(SourceConnector):
    """Counts up to a number, in runs of three."""

    class Settings(ConfigTable):
        """Where to, and how far."""

        topic: str = config_key(default=REQUIRED, doc="Where the numbers go.")
        last: int = config_key(default=7, doc="The last number.")

    def records(self, offset):
        first = offset["number"] + 1 if offset else 0
        for number in range(first, min(first + 3, self.settings.last + 1)):
            yield SourceRecord(
                topic=self.settings.topic, value=number, source_offset={"number": number}
            )


def ticks(context, **settings):
    return Ticks(Ticks.Settings(topic="t", **settings), context)


def numbers(records):
    return [record.value for record in records]


def test_records_go_on_behind_the_last_one():
    """When `records` ends it is called again, with the offset of the last record."""
    source = ticks(LoneContext())

    assert [numbers(source.poll()) for _ in range(3)] == [[0, 1, 2], [3, 4, 5], [6, 7]]


def test_first_offset_is_the_stored_one():
    """A new task continues where offsets were stored."""
    source = ticks(LoneContext({(): {"number": 4}}))

    assert numbers(source.poll()) == [5, 6, 7]


def test_nothing_to_read_is_a_wait():
    """A source that has nothing now is asked again after a pause, which a stop ends."""
    context = LoneContext()

    assert ticks(context, last=-1).poll() == []
    assert context.asked == [("wait", 1.0)]


def test_none_keeps_the_iterator():
    """A source that yields None is not begun again: it continues behind the yield."""

    class Slow(SourceConnector):
        def records(self, offset):
            yield SourceRecord(topic="t", value=1)
            yield None
            yield SourceRecord(topic="t", value=2)

    source = Slow(ConfigTable(), LoneContext())

    assert [numbers(source.poll()) for _ in range(2)] == [[1], [2]]


def test_one_poll_is_bounded():
    """A source without end is taken in portions."""
    source = ticks(LoneContext())
    source.most_records = 2

    assert [numbers(source.poll()) for _ in range(2)] == [[0, 1], [2]]


def test_source_without_records_says_so():
    """The sentence names the class and the two ways."""

    class Empty(SourceConnector):
        pass

    with pytest.raises(TypeError, match="Empty must define records or poll"):
        Empty(ConfigTable(), LoneContext()).poll()


def test_defaults_of_a_connector():
    """One task with the settings as they are, nothing to complain of, nothing to watch."""
    source = ticks(LoneContext())

    assert source.tasks(5) == [{}]
    assert Ticks.validate(source.settings) == {}
    assert source.watch() is None


def test_an_error_may_ask_to_be_tried_again():
    """A system that is down is no fault of a record."""
    assert TryAgainError("the database is down").message == "the database is down"
