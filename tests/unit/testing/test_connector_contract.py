"""The contract of connectors, kept by those that come with Ottla and broken by one that is bad."""

from __future__ import annotations

import pytest
from connect_kit import MoodySource

from ottla.connect.connectors.files import FileStreamSink, FileStreamSource
from ottla.testing.connector_contract import NAME, SinkContract, SourceContract, connect_worker

__all__ = ["connect_worker"]


class TestFileStreamSource(SourceContract):
    """A file to which lines are appended."""

    connector = FileStreamSource
    bad_settings = ({"batch.size": "0"}, {"topic": ""})

    def own_settings(self):
        return {"topic": self.topic, "file": str(self.folder / "in.txt")}

    def bring(self, count):
        with (self.folder / "in.txt").open("a") as file:
            file.writelines(f"line {number}\n" for number in range(count))


class TestFileStreamSink(SinkContract):
    """A file that gets a line for each record."""

    connector = FileStreamSink

    def own_settings(self):
        return {"topics": self.topic, "file": str(self.folder / "out.txt")}

    def written(self):
        path = self.folder / "out.txt"
        return path.read_text().splitlines() if path.exists() else []


def test_source_that_forgets_breaks_the_contract(ottla_fresh_broker, tmp_path):
    """A source whose records have no offsets says everything again."""

    class Contract(SourceContract):
        connector = Forgetful

        def bring(self, count):
            Forgetful.total += count

    contract = Contract()
    contract.broker, contract.folder = ottla_fresh_broker, tmp_path
    with pytest.raises(AssertionError):
        contract.test_it_resumes_without_repeating()


class Forgetful(MoodySource):
    """Brings all it has at each start."""

    total = 0

    def records(self, offset):
        for record in super().records(None):
            yield record.replace(source_offset={"n": 0})
        while not self.context.is_stopping:
            yield None


def test_fixture_is_a_worker(connect_worker):
    """For tests of an author's own."""
    place = {"name": NAME, "connector.class": "connect_kit.MoodySource", "topic": "t"}
    assert connect_worker.create(place)["name"] == NAME
