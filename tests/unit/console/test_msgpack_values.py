"""MessagePack as JSON, and bytes that mean harm."""

from __future__ import annotations

import tracemalloc

import pytest

from ottla.console.decoding import Decoders, shown_bytes
from ottla.console.msgpack_values import msgpack_of

DECODERS = Decoders(packed=msgpack_of)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("80", {}),
        ("81a16101", {"a": 1}),
        ("93c0c2c3", [None, False, True]),
        ("94ccffcdffffceffffffffcfffffffffffffffff", [255, 65_535, (1 << 32) - 1, (1 << 64) - 1]),
        (
            "95d080d18000d280000000d38000000000000000ff",
            [-128, -(1 << 15), -(1 << 31), -(1 << 63), -1],
        ),
        ("92ca3fc00000cb3ff8000000000000", [1.5, 1.5]),
        ("93a161d90162da000163", ["a", "b", "c"]),
        ("91db00000001c3", ["0xc3"]),
        ("93c40101c5000102c600000001ff", ["0x01", "0x02", "0xff"]),
        ("92d40107c7020500ff", [{"type": 1, "data": "0x07"}, {"type": 5, "data": "0x00ff"}]),
        ("dc000201dd0000000102", [1, [2]]),
        ("de0001a161df00000001a16202", {"a": {"b": 2}}),
        ("8201a1619101a162", {"1": "a", "[1]": "b"}),
    ],
)
def test_values_of_each_kind_are_read(data, value):
    """Texts that are no UTF-8, and bytes, as hexadecimal digits; names of maps as text."""
    assert msgpack_of(bytes.fromhex(data)) == ("msgpack", value)


@pytest.mark.parametrize("data", [b"", b"\x01", b"a", b"\x91", b"\xc1", b"\x91\xc1", b"\x90\0"])
def test_other_bytes_are_refused(data):
    """Numbers and texts alone, which any byte could be, as well."""
    with pytest.raises(ValueError, match=r"\w"):
        msgpack_of(data)


@pytest.mark.parametrize(
    "data",
    [
        (b"\xdd" + b"\xff" * 4) * 10_000,
        (b"\xdd\x00\x00\xff\xff") * 60 + b"\xc0" * 60_000,
        b"\x91" * 60_000 + b"\xc0",
        (b"\xdf" + b"\xff" * 4) * 10_000,
        b"\xdb" + b"\xff" * 60_000,
    ],
)
def test_hostile_lengths_cost_nothing(data):
    """A list that says that it has four thousand million items gets no room for them."""
    tracemalloc.start()
    shown = shown_bytes(data, decoders=DECODERS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert shown.kind == "hex"
    assert peak < 16 * 1024 * 1024


def test_text_and_numbers_stay_what_they_are():
    """Only bytes that would be digits in hexadecimal are tried."""
    assert shown_bytes(b"\xdc\x90" * 3, decoders=DECODERS).kind == "text"
    assert shown_bytes(b"\x93\x01\x02\x03", decoders=DECODERS).kind == "number"
    shown = shown_bytes(b"\x82\xa1a\x93\x01\x02\x03\xa1b\xcf" + b"\xff" * 8, decoders=DECODERS)
    assert (shown.kind, shown.text) == ("msgpack", '{"a": [1, 2, 3], "b": 18446744073709551615}')
