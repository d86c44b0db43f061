"""Files of rows, whatever is in their cells."""

from __future__ import annotations

import csv
import io
import json
from itertools import islice

from breadth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.pipelines.pipeline import Input
from ottla.pipelines.rows_file import RowsFile

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0\r\ufeff"), max_size=8)


@settings(max_examples=examples(80))
@given(rows=st.lists(st.tuples(TEXT, st.integers(-99, 99)), max_size=6), at=st.integers(0, 6))
def test_what_python_writes_as_csv_is_read(tmp_path_factory, rows, at):
    """Commas, quotes and ends of lines within cells; also when it is read in two parts."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("name", "n"), *rows])
    path = tmp_path_factory.getbasetemp() / "written.csv"
    path.write_bytes(text.getvalue().encode())
    source = Input("t", "name string, n int")
    first = RowsFile(source, path)
    found = list(islice(first.events(), at))
    assert first.digest == first.digest_up_to(first.reached.offset)

    found += RowsFile(source, path, first.reached).events()

    assert [tuple(json.loads(event.value).values()) for event in found] == [
        (name or None, n) for name, n in rows
    ]
