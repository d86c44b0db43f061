"""Million records a second through one core: building and reading record batches.

Values of 100 bytes, no keys, no headers; every batch with its header and its CRC. Beside Ottla's
compiled and plain loops, in the same run, kafka-python and aiokafka. The best call counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_python_records

from ottla.record import (
    columns,
    kernel,
    plain_compaction,
    plain_decoding,
    plain_encoding,
    plain_survey,
    rows,
)
from ottla.record.batch_builder import BatchBuilder, build_batch, build_batch_of_values
from ottla.record.columnar import decode_columns
from ottla.record.compression import CompressionType
from ottla.record.record import NewRecord
from ottla.record.record_batch import RecordBatch

SIZES = (150, 1_000, 10_000)
ROUND_SECONDS = 0.5
NOW = 1_700_000_000_000
VALUE = b"v" * 100
ROWS = 30_000


def million_per_second(call: Callable[[], object], count: int) -> float:
    """Records a second, in millions, in the best of the calls that fit into a round."""
    call()
    best = float("inf")
    end = time.perf_counter() + ROUND_SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return count / best / 1e6


@contextmanager
def plain_loops() -> Iterator[None]:
    """Ottla as it is where nothing could be compiled."""
    compiled: dict[str, Any] = {name: getattr(kernel, name) for name in kernel.__all__}
    modules = plain_encoding, plain_decoding, plain_survey, plain_compaction, columns, rows
    for name in compiled.keys() - {"COMPILED", "crc32c"}:  # the latter is always compiled
        setattr(kernel, name, next(getattr(one, name) for one in modules if hasattr(one, name)))
    try:
        yield
    finally:
        for name, function in compiled.items():
            setattr(kernel, name, function)


def build_one_by_one(values: list[bytes]) -> bytes:
    builder = BatchBuilder()
    append = builder.append
    for value in values:
        append(NOW, None, value)
    return builder.build()


def build_with(client: Any, values: list[bytes], codec: int = 0) -> bytes:
    builder = client.DefaultRecordBatchBuilder(2, codec, False, -1, -1, -1, 1 << 30)
    for offset, value in enumerate(values):
        builder.append(offset, NOW, None, value, [])
    return bytes(builder.build())


def read(data: bytes) -> int:
    batch = RecordBatch(data)
    batch.verify()
    return len(list(batch.records()))


def read_with(client: Any, data: bytes) -> int:
    batch = client.DefaultRecordBatch(data)
    batch.validate_crc()
    return sum(1 for record in batch if record.value)


def read_columns(data: bytes, count: int) -> int:
    """Many of the batch, so that the Arrow batches have their usual size."""
    chunks = [data] * max(1, ROWS // count)
    return sum(batch.num_rows for batch in decode_columns(chunks, "topic", 0))


def print_row(name: str, rates: list[float], peers: list[float] | None) -> None:
    cells = [
        f"{rate:>8.2f}" + (f" {rate / peer:>6.1f}x" if peers else " " * 8)
        for rate, peer in zip(rates, peers or rates, strict=True)
    ]
    print(f"{name:<38}" + "".join(cells))


def compare(title: str, cases: dict[str, Callable[[int], Callable[[], object]]]) -> None:
    """A row for each case and a column for each size; the last case is the one to compare with."""
    rates = {
        name: [million_per_second(make(size), size) for size in SIZES]
        for name, make in cases.items()
    }
    peer = list(rates)[-1]
    print(f"\n{title + ', batches of':<38}" + "".join(f"{size:>8}" + " " * 8 for size in SIZES))
    for name, row in rates.items():
        print_row(name, row, None if name == peer else rates[peer])


def in_plain(make: Callable[[int], Callable[[], object]]) -> Callable[[int], Callable[[], object]]:
    """The same case with the plain loops."""

    def make_plain(size: int) -> Callable[[], object]:
        call = make(size)

        def plain() -> object:
            with plain_loops():
                return call()

        return plain

    return make_plain


def values(size: int) -> list[bytes]:
    return [VALUE] * size


def records(size: int) -> list[NewRecord]:
    return [(NOW, None, VALUE, ())] * size


def compare_building() -> None:
    def bulk(size: int) -> Callable[[], object]:
        items = records(size)
        return lambda: build_batch(items)

    def of_values(size: int) -> Callable[[], object]:
        items = values(size)
        return lambda: build_batch_of_values(items, NOW)

    def one_by_one(size: int) -> Callable[[], object]:
        items = values(size)
        return lambda: build_one_by_one(items)

    compare(
        "build",
        {
            "ottla, from a list of values": of_values,
            "ottla, from a list of records": bulk,
            "ottla, record by record": one_by_one,
            "ottla plain, from a list of values": in_plain(of_values),
            "ottla plain, from a list of records": in_plain(bulk),
            "ottla plain, record by record": in_plain(one_by_one),
            "aiokafka": lambda size: lambda: build_with(aiokafka_records, values(size)),
            "kafka-python": lambda size: lambda: build_with(kafka_python_records, values(size)),
        },
    )


def compare_reading() -> None:
    data = {size: build_batch(records(size)) for size in SIZES}

    def ours(size: int) -> Callable[[], object]:
        return lambda: read(data[size])

    compare(
        "read",
        {
            "ottla": ours,
            "ottla plain": in_plain(ours),
            "aiokafka": lambda size: lambda: read_with(aiokafka_records, data[size]),
            "kafka-python": lambda size: lambda: read_with(kafka_python_records, data[size]),
        },
    )


def compare_columns() -> None:
    print(f"\n{'read to Arrow, batches of':<38}" + "".join(f"{n:>8}" + " " * 8 for n in SIZES))
    data = {size: build_batch(records(size)) for size in SIZES}
    counts = {size: size * max(1, ROWS // size) for size in SIZES}

    def rates() -> list[float]:
        return [
            million_per_second(lambda size=size: read_columns(data[size], size), counts[size])
            for size in SIZES
        ]

    compiled = rates()
    with plain_loops():
        plain = rates()
    print_row("ottla", compiled, plain)
    print_row("ottla plain", plain, None)


def compare_codecs() -> None:
    items = [
        b'{"id": %d, "page": "/products/%d", "agent": "Mozilla/5.0"}' % (n, n % 97)
        for n in range(1000)
    ]
    print(f"\n{'1000 records of JSON':<20}{'build':>8}{'':>8}{'read':>16}")
    for codec in CompressionType:
        ours, theirs = (
            build_batch_of_values(items, NOW, codec),
            build_with(kafka_python_records, items, codec),
        )
        building = [
            million_per_second(call, len(items))
            for call in (
                lambda codec=codec: build_batch_of_values(items, NOW, codec),
                lambda codec=codec: build_with(kafka_python_records, items, codec),
            )
        ]
        reading = [
            million_per_second(call, len(items))
            for call in (
                lambda data=ours: read(data),
                lambda data=theirs: read_with(kafka_python_records, data),
            )
        ]
        print(
            f"{codec.label:<20}"
            f"{building[0]:>8.2f} {building[0] / building[1]:>6.1f}x"
            f"{reading[0]:>16.2f} {reading[0] / reading[1]:>6.1f}x kafka-python"
        )


def main() -> None:
    print(f"million records/s, kernel {'compiled' if kernel.COMPILED else 'plain only'}")
    compare_building()
    compare_reading()
    compare_columns()
    compare_codecs()


if __name__ == "__main__":
    main()
