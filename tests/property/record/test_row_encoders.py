"""Whatever the rows: the compiled encoder writes the bytes of the plain one."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.record import kernel, rows
from ottla.record.rows import rows_of

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
content = st.none() | st.binary(max_size=300)
header = st.fixed_dictionaries({"key": st.text(max_size=9), "value": content})
row = st.tuples(
    content,
    content,
    st.none() | st.integers(0, 2),
    st.none() | st.lists(header, max_size=3),
)


@pytest.mark.skipif(not kernel.COMPILED, reason="nothing is compiled here")
@given(
    table=st.lists(row, min_size=1, max_size=40),
    skipped=st.integers(0, 3),
    batch_size=st.integers(1, 2000),
    times=st.lists(st.integers(0, 2**40), min_size=1, max_size=3),
)
def test_both_encoders_write_the_same(table, skipped, batch_size, times):
    """Partitions, counts, timestamps and every byte."""
    values, keys, partitions, headers = zip(*table, strict=True)
    columns = [
        pa.array(values, pa.binary()),
        pa.array(keys, pa.binary()),
        pa.array(partitions, pa.int32()),
        pa.array(headers, HEADERS),
    ]
    found = []
    for encoder_class in (rows.RowEncoder, kernel.RowEncoder):
        encoder = encoder_class(3, batch_size, itertools.cycle((1, 0, 2)).__next__)
        batches = []
        for time in times:
            batches += encoder.append(rows_of(*(c.slice(skipped) for c in columns)), time)
        batches += encoder.finish()
        found.append([each._replace(payload=bytes(each.payload)) for each in batches])

    assert found[0] == found[1]
