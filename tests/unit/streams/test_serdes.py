"""Serdes: bytes, columns and objects are the same things."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pyspark.sql import functions as F

from ottla.streams import Serdes, Windowed
from ottla.streams.windows import WindowedSerde

pytestmark = pytest.mark.spark


@dataclass
class Line:
    """One line of an order."""

    item: str
    count: int


@dataclass
class Order:
    """A dataclass with all that one may have."""

    number: int
    lines: list[Line]
    notes: dict[str, str]
    price: float | None = None


ORDER = Order(7, [Line("tea", 2), Line("cup", 1)], {"to": "Ljubljana"}, None)
THINGS = [
    (Serdes.bytes(), b"\x00\xff"),
    (Serdes.string(), "žaba"),
    (Serdes.int(), 0),
    (Serdes.int(), -(2**31)),
    (Serdes.int(), 2**31 - 1),
    (Serdes.long(), 2**63 - 1),
    (Serdes.long(), -(2**63)),
    (Serdes.long(), -1),
    (Serdes.json("double"), 1.5),
    (Serdes.json("array<long>"), [1, 2]),
    (Serdes.json("a long, b string"), {"a": 1, "b": None}),
    (Serdes.json(Order), ORDER),
    (WindowedSerde(Serdes.string(), 1000), Windowed("k", 5000, 6000)),
    (WindowedSerde(Serdes.long(), None), Windowed(9, 5000, 5500)),
]


def test_bytes_become_columns_and_bytes_again(spark):
    """Spark and Python agree on every serde, in both directions."""
    for serde, thing in THINGS:
        data = serde.to_bytes(thing)
        frame = spark.createDataFrame([(data,), (None,)], "data binary")
        typed = frame.select(serde.decode(F.col("data")).alias("typed"))
        assert typed.schema["typed"].dataType.simpleString() == serde.type.simpleString()
        rows = typed.select(serde.encode(F.col("typed"))).collect()
        assert [serde.from_bytes(row[0] and bytes(row[0])) for row in rows] == [thing, None]


@pytest.mark.parametrize(
    ("serde", "thing", "data"),
    [
        (Serdes.long(), 258, b"\0\0\0\0\0\0\1\2"),
        (Serdes.int(), -2, b"\xff\xff\xff\xfe"),
        (WindowedSerde(Serdes.string(), 10), Windowed("a", 1, 11), b"a\0\0\0\0\0\0\0\1"),
        (
            WindowedSerde(Serdes.string(), None),
            Windowed("a", 1, 3),
            b"a" + b"\0\0\0\0\0\0\0\3" + b"\0\0\0\0\0\0\0\1",
        ),
    ],
)
def test_bytes_are_those_of_kafka(serde, thing, data):
    """Java's serdes read what these write."""
    assert (serde.to_bytes(thing), serde.from_bytes(data)) == (data, thing)


@pytest.mark.wide
def test_other_bytes_are_null(spark):
    """What is no such thing is told from what is."""
    wrong = [
        (Serdes.int(), b"\0\0\0"),
        (Serdes.long(), b"\0\0\0\0"),
        (Serdes.json("a long"), b"{"),
        (Serdes.json("a long"), b""),
        (Serdes.json("a long"), b'{"a": "x"}'),
        (Serdes.json("double"), b"x"),
        (WindowedSerde(Serdes.string(), 10), b"a"),
    ]
    for serde, data in wrong:
        frame = spark.createDataFrame([(data,)], "data binary")
        assert frame.select(serde.decode(F.col("data"))).first()[0] is None, (serde.name, data)


def test_a_field_that_json_has_not_is_refused():
    """The sentence names the type and the rule."""

    @dataclass
    class Wrong:
        """Bytes are nothing for JSON."""

        data: bytes

    with pytest.raises(TypeError, match="a field may be str, int"):
        Serdes.json(Wrong)


def test_object_is_parsed_once_whatever_is_taken_of_it(spark):
    """Spark makes a parser for each field where it may, and each reads the whole value."""
    values = spark.createDataFrame([(b'{"a": 1, "b": "x", "c": 2}',)], "value binary")
    serde = Serdes.json("a long, b string, c long")
    decoded = values.select(serde.decode(F.col("value")).alias("object"))
    fields = decoded.where("object.a > 0").select("object.b", "object.c")
    plan = decoded._jdf.queryExecution().optimizedPlan().toString()

    assert plan.count("from_json") == 1, plan
    assert fields.collect() == [("x", 2)]
