"""Files of rows: CSV and JSON become records, or are left out for a reason; and that once."""

from __future__ import annotations

import gzip
import json

import pytest

from ottla.pipelines.access_log import LogError, Position
from ottla.pipelines.pipeline import Event, Input, Output, Pipeline, columns_of
from ottla.pipelines.rows_file import RowsFile
from ottla.pipelines.topics import LogFeed, Pace, create_topics
from ottla.testing import InProcessBroker

SOURCE = Input("t", "name string, n int, price decimal(10,2), ok boolean, at timestamp")
HEADER = b"name,n,price,ok,at\n"


@pytest.fixture
def read(tmp_path):
    """The values that the bytes of a file become, and the file that has read them."""

    def run(data, source=SOURCE, name="rows", **places):
        path = tmp_path / name
        path.write_bytes(data)
        file = RowsFile(source, path, **places)
        return [event.value for event in file.events()], file

    return run


def test_cells_become_what_their_columns_say(read):
    """Numbers as they are written, truths, texts; nothing is null, and what does not fit stays."""
    values, file = read(
        HEADER
        + b'a,007,19.90,TRUE,2026-03-02 08:00:00\n"b, ""c""",1e2,+.5,no,\n,x,1_0, true ,NaN\n'
    )

    assert values == [
        b'{"name": "a", "n": 7, "price": 19.90, "ok": true, "at": "2026-03-02 08:00:00"}',
        b'{"name": "b, \\"c\\"", "n": 1E+2, "price": 0.5, "ok": "no", "at": null}',
        b'{"name": null, "n": "x", "price": "1_0", "ok": true, "at": "NaN"}',
    ]
    assert file.ledger.words() == "3 rows read = 3 events (3 CSV) + 0 left out"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("delimiter", [b",", b";", b"\t", b"|"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_csv_of_any_program_is_read(read, mark, end, delimiter, is_packed):
    """Byte order mark, ends of lines, delimiter, compression; a last line without an end counts."""
    lines = [b"name,n,price,ok,at,more", b"a,1,2,true,x,y", b"", b"b,2,3,false,z,"]
    data = mark + end.join(lines).replace(b",", delimiter)

    values, file = read(gzip.compress(data) if is_packed else data)

    assert [json.loads(value)["n"] for value in values] == [1, 2]
    assert (file.reached.offset, file.digest) == (len(data), file.digest_up_to(len(data)))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"a,1", "has 2 cells where the header has 5"),
        (b"a,1,2,true,x,y,z", "has 7 cells where the header has 5"),
        (b'"a"b,1,2,true,x', "is no row of CSV: ',' expected after '\"'"),
        (b'"a,1,2,true,x', "is no row of CSV: unexpected end of data"),
        (b"\xff\xfe,1,2,true,x", "the row is not in UTF-8"),
        (b"a" * 2_000 + b",1,2,true,x", "the line is too long"),
    ],
)
@pytest.mark.parametrize("behind", [1, 300])
def test_row_that_cannot_be_read_is_left_out_alone(read, line, reason, behind):
    """The rows before it and behind it are read; the ledger has its reason and its line."""
    good = b"b,2,3,false,y\n"
    values, file = read(HEADER + good + line + b"\n" + good * behind, longest_line=1_000)

    assert len(values) == 1 + behind
    assert file.ledger.words() == (
        f"{behind + 2:,} rows read = {behind + 1:,} events ({behind + 1:,} CSV) + 1 left out "
        f"(1: {reason}, first in line 3)"
    )


def test_objects_of_lines_and_of_an_array_are_records(read):
    """The text of each as it stands; what is none is left out alone, in both forms."""
    objects = [b'{"n": 1, "price": 1.10}', b'{"n": 2,\t"x": [1, {"n": 3}]}']
    others = [b'"n"', b'{"other": 1}']

    lines, by_lines = read(b"\n\n".join([objects[0], others[0], others[1], objects[1]]))
    array, in_array = read(b" [\n" + b" ,\n".join([objects[0], *others, objects[1]]) + b"\n]\n")

    assert lines == array == objects
    assert by_lines.ledger.left_out == in_array.ledger.left_out
    assert by_lines.ledger.words() == (
        "4 rows read = 2 events (2 JSON) + 2 left out (1: has none of the columns name, n, price, "
        "ok, at, first in line 5; 1: the line is no JSON object, first in line 3)"
    )


def test_array_that_is_broken_off_keeps_what_comes_before(read):
    """From the place on that is no JSON nothing can be told apart."""
    values, file = read(b'[{"n": 1},\n{"n": 2}, {"n": oops}, {"n": 4}]')

    assert len(values) == 2
    assert file.ledger.first_lines == {"the array is no JSON from here on": 2}


@pytest.mark.parametrize("behind", [b"[{}]", b'\n{"n": 3}\n', b"oops", b"]"])
def test_rest_behind_an_array_is_told(read, behind):
    """As of two files that were put together: nothing goes missing without a word."""
    values, file = read(b'[{"n": 1},\n{"n": 2}]' + behind)

    assert len(values) == 2
    reason = "the array has ended, and the rest of the file is left out"
    assert file.ledger.first_lines == {reason: 2}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is empty"),
        (HEADER.replace(b"at", b"at,n") + b"a,1,2,true,x,3\n", "has more than one column n"),
        (b"\n \n", "is empty"),
        (b"PAR1\x15\x04", "is neither CSV nor JSON"),
        (b"PK\x03\x04...", "is compressed with zip; gzip and zstd are read"),
        (b"a\0b", "is neither CSV nor JSON"),
        (b"name,n\na,1\n", "has no column price, ok, at (it has: name, n)"),
        (b'name,n,price,ok,"at\n', "its first line is no header of CSV"),
    ],
)
def test_file_that_has_no_rows_for_the_topic_is_refused(read, data, said):
    """Before anything is published."""
    with pytest.raises(LogError, match=rf"rows: {said.replace('(', '.')[:40]}"):
        read(data)


def test_keys_are_those_of_the_columns(read):
    """Rows of a table need one; one without a value has none."""
    table = Input("t", "name string, n int", is_table=True, key=("name", "n"))
    _, file = read(b"name,n\na,1\n,2\n,\n", table)

    assert [event.key for event in file.events()] == [b"a|1", b"2", None]
    with pytest.raises(LogError, match="its Input needs a key"):
        read(b"name,n\n", Input("t", "name string, n int", is_table=True))


def test_row_that_has_changed_since_is_told(read):
    """The last line had no end when it was published: an end may come, and nothing else."""
    before = HEADER + b"a,1,2,true,x"
    place = Position(2, len(before))

    assert (
        read(before + b"\r\nb,1,2,true,x\n", start=place)[1].ledger.words().endswith("0 left out")
    )
    changed, file = read(before + b"y\nb,1,2,true,x\n", start=place)
    assert len(changed) == 1
    assert file.ledger.left_out == {"the row has changed since it was published": 1}


def test_columns_of_a_schema_are_known_by_their_types():
    """Commas within types part no columns."""
    schema = "a int, `b c` decimal(10, 2), d: STRUCT<e: int, f: array<string>>"

    assert columns_of(schema) == {
        "a": "int",
        "b c": "decimal(10, 2)",
        "d": "struct<e: int, f: array<string>>",
    }
    assert columns_of("") == {}


def test_rows_are_published_once(tmp_path):
    """Given again, grown, or beside another file for another topic; a second time if asked for."""
    customers = Input("customers", "name string", is_table=True, key=("name",))
    pipeline = Pipeline("p", "", (SOURCE, customers), (Output("out"),), lambda topics, given: {})
    rows, names = tmp_path / "rows.csv", tmp_path / "names.jsonl"
    rows.write_bytes(HEADER + b"a,1,2,true,x\nb,1\n")
    names.write_bytes(b'{"name": "a"}\n{"name": "b"}')

    with InProcessBroker() as broker:
        create_topics(broker.bootstrap_servers, pipeline)

        def publish(source, path, again=False):
            feed = LogFeed.of_rows(pipeline, source, path, again)
            return feed.publish(broker.bootstrap_servers, Pace())

        found = [publish(SOURCE, rows), publish(customers, names), publish(SOURCE, rows)]
        rows.write_bytes(rows.read_bytes() + b"c,1,2,true,x\n")
        found += [publish(SOURCE, rows), publish(customers, names, again=True)]
        counts = {topic: len(list(broker.records(topic))) for topic in ("t", "customers")}

    assert [sum(each.counts.values()) for each in found] == [1, 2, 0, 1, 2]
    assert counts["customers"] >= 4
    assert found[3].words() == (
        "3 rows read = 2 events (2 CSV) + 1 left out (1: has 2 cells where the header has 5, first "
        "in line 3); 3 lines were published before"
    )


def test_rows_beside_a_log_are_published(tmp_path):
    """A pipeline that has read a log into two topics takes a file for one of them."""
    other = Input("u", "n int")
    pipeline = Pipeline("p", "", (SOURCE, other), (Output("out"),), lambda topics, given: {})
    log, rows = tmp_path / "access.log", tmp_path / "rows.csv"
    log.write_bytes(b'192.0.2.1 - - [26/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 7 "-" "x"\n')
    rows.write_bytes(b"n\n1\n2\n")

    def both(request):
        for line in request.log.lines():
            yield from (Event(topic, None, line.value) for topic in ("t", "u"))

    with InProcessBroker() as broker:
        create_topics(broker.bootstrap_servers, pipeline)
        feeds = [LogFeed(pipeline, both, log), LogFeed.of_rows(pipeline, other, rows)]
        found = [each.publish(broker.bootstrap_servers, Pace()) for each in feeds * 2]

    assert [sum(each.counts.values()) for each in found] == [2, 2, 0, 0]
