"""Endpoints that are polled and posted to: a server of the standard library answers as it is told.

Cursors, links and documents are followed through restarts; outages are waited out, refusals
reported.
"""

from __future__ import annotations

import itertools
import json
import re
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from random import Random
from threading import Thread
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from breadth import some
from contexts import LoneContext

from ottla import Producer
from ottla.connect.connector import TryAgainError
from ottla.connect.connectors.http import Answer, HttpSink, HttpSource, OutageError
from ottla.connect.data import SinkRecord
from ottla.errors import ConfigError
from ottla.testing import wait_until
from ottla.testing.connector_contract import SinkContract, SourceContract


class Reply(SimpleNamespace):
    """What the server is to say."""

    def __init__(self, body=None, status=200, **headers):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        super().__init__(body=content, status=status, headers=headers)


class Endpoint:
    """A server on loopback; `answer` makes a Reply of a request, `requests` has them all."""

    def __init__(self):
        self.requests = []
        self.answer = lambda request: Reply([])
        outer = self

        class Handler(BaseHTTPRequestHandler):
            """Hands each request on."""

            protocol_version = "HTTP/1.1"

            def serve(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                parts = urlsplit(self.path)
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                request = SimpleNamespace(
                    method=self.command,
                    path=parts.path,
                    query=query,
                    headers=self.headers,
                    body=body,
                )
                outer.requests.append(request)
                reply = outer.answer(request)
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(reply.body)))
                self.end_headers()
                self.wfile.write(reply.body)

            do_GET = do_POST = do_PUT = do_DELETE = serve  # noqa: N815 # http.server's names

            def log_message(self, *_):
                """Nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/items"
        self.thread = Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def endpoint():
    server = Endpoint()
    yield server
    server.close()


@contextmanager
def source(endpoint, stored=None, **settings):
    """A started source, whose offsets are kept in `stored`."""
    given = {"url": endpoint.url, "topic": "t", "poll.interval.ms": "1", "retry.backoff.ms": "1"}
    given |= {key.replace("_", "."): str(value) for key, value in settings.items()}
    made = HttpSource(HttpSource.Settings.parse(given), LoneContext())
    made.context.stored = {} if stored is None else stored
    made.start()
    try:
        yield made
    finally:
        made.stop()


def take(made, polls=6, most=None):
    """What polls bring; the offset of the last one that arrived is stored, as a worker does."""
    found = []
    while polls:
        polls -= made._client.left_s == 0
        found += made.poll()
    for record in found[:most]:
        made.context.stored[tuple(sorted(record.source_partition.items()))] = record.source_offset
    return [record.value for record in found[:most]]


def test_a_document_is_read_again_when_it_has_changed(endpoint):
    """By its ETag while it runs, by its content after a restart."""
    version = {"is": "1", "body": [{"id": 1}, {"id": 2}]}

    def answer(request):
        if request.headers.get("If-None-Match") == version["is"]:
            return Reply(b"", 304)
        return Reply(version["body"], ETag=version["is"])

    endpoint.answer, stored = answer, {}
    with source(endpoint, stored, key_field="id") as made:
        (first, second) = made.poll()
        assert (first.key, first.value, first.topic) == (1, {"id": 1}, "t")
        assert take(made) == []
        assert endpoint.requests[-1].headers["If-None-Match"] == "1"
        version |= {"is": "2", "body": [{"id": 3}, {"id": 4}]}
        assert take(made, most=1) == [{"id": 3}]
    with source(endpoint, stored) as made:
        assert take(made) == [{"id": 4}]
    with source(endpoint, stored) as made:
        assert take(made) == []
    assert second.source_offset["done"] == 2


def test_last_modified_will_do(endpoint):
    """A server without ETag."""
    date = "Mon, 03 Feb 2020 12:00:00 GMT"
    endpoint.answer = lambda request: (
        Reply(b"", 304)
        if request.headers.get("If-Modified-Since") == date
        else Reply({"data": {"rows": [1, 2]}}, Last_Modified=date)
    )
    with source(endpoint, records_field="data.rows") as made:
        assert take(made) == [1, 2]
    assert endpoint.requests[-1].headers["If-Modified-Since"] == date


@pytest.mark.parametrize("paging", ["link", "next-url", "next-token"])
def test_pages_are_followed(endpoint, paging):
    """Pages of two; the last one is asked for again, and grows."""
    items = list(range(5))

    def answer(request):
        page = int(request.query.get("page", 0))
        found = items[2 * page : 2 * page + 2]
        following = page + 1 if len(items) > 2 * page + 2 else None
        link = f"/items?page={following}"
        if paging == "link":
            return Reply(found, **({"Link": f'<{link}>; rel="next"'} if following else {}))
        token = link if paging == "next-url" else str(following)
        return Reply({"found": found, "more": {"at": token if following else None}})

    endpoint.answer, stored = answer, {}
    settings = {"paging": paging.partition("-")[0]}
    if paging != "link":
        settings |= {
            "records_field": "found",
            "next_field": "more.at",
            "cursor_parameter": "page",
        }
    with source(endpoint, stored, **settings) as made:
        assert take(made, most=3) == [0, 1, 2]
    items += [5, 6]
    with source(endpoint, stored, **settings) as made:
        assert take(made) == [3, 4, 5, 6]
        items.append(7)
        assert take(made) == [7]


@pytest.mark.parametrize("is_inclusive", [False, True])
def test_restarts_repeat_nothing(endpoint, is_inclusive):
    """Seeds of growing tables, pages of three, and tasks that are killed anywhere."""
    for seed in range(8):
        random = Random(seed)
        rows, found, stored, number = [], [], {}, 0

        def answer(request, rows=rows):
            since = int(request.query.get("since", -1))
            if is_inclusive:
                return Reply([row for row in rows if row["at"] >= since][:6])
            return Reply([row for row in rows if row["at"] > since][:3])

        endpoint.answer = answer
        for _ in range(6):
            for _ in range(random.randrange(5)):
                step = random.randrange(2) if is_inclusive and len(rows) % 4 else 1
                number += step
                rows.append({"at": number, "row": len(rows)})
            with source(
                endpoint,
                stored,
                paging="cursor",
                cursor_field="at",
                cursor_parameter="since",
                cursor_inclusive=is_inclusive,
            ) as made:
                found += take(made, polls=random.randrange(1, 4), most=random.randrange(7))
        with source(
            endpoint,
            stored,
            paging="cursor",
            cursor_field="at",
            cursor_parameter="since",
            cursor_inclusive=is_inclusive,
        ) as made:
            found += take(made, polls=12)
        assert found == rows


def test_a_server_that_is_down_is_waited_for(endpoint):
    """As long as it asks; then the records come."""
    replies = [
        Reply("busy", 503, Retry_After="0"),
        Reply("slow down", 429, Retry_After="60"),
    ]
    endpoint.answer = lambda request: replies.pop(0) if replies else Reply([1])
    with source(endpoint) as made:
        assert made.poll() == []
        made._client.pause(0)  # the pause of a millisecond may not be over yet
        assert made.poll() == []
        assert 50 < made._client.left_s <= 60
        assert made.poll() == []
        assert len(endpoint.requests) == 2
        made._client.pause(0)
        assert [record.value for record in made.poll()] == [1]


def test_nobody_there_is_an_outage(endpoint):
    """A port that nothing listens at."""
    with source(endpoint, url="http://127.0.0.1:1/") as made:
        assert made.poll() == []
        assert made._client._failures == 1


@pytest.mark.parametrize(
    ("status", "setting"),
    [
        (401, "username, password or headers"),
        (403, "password or headers"),
        (404, "url"),
        (410, "url"),
    ],
)
def test_what_no_wait_mends_ends_the_task(endpoint, status, setting):
    """A sentence says which setting is to be changed."""
    endpoint.answer = lambda request: Reply("no", status)
    with (
        source(endpoint) as made,
        pytest.raises(ConfigError, match=f"{setting}: GET .* not by {status}"),
    ):
        made.poll()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(b"<html>We are back soon</html>"), "url: GET .* must be answered with JSON"),
        (Reply(b""), "must be answered with JSON"),
        (Reply(b'[{"name": "M\xfcnchen"}]'), "must be answered with JSON"),
        (Reply(b"[" * 100_000), "must be answered with JSON"),
        (Reply(b"[1"), "must be answered with JSON"),
        (Reply(b"[" + b"1" * 5000 + b"]"), "must be answered with JSON"),
        (Reply(b"[]", Content_Type="application/json; charset=klingon"), "unknown encoding"),
        (Reply(None), "records.field=: must be a list"),
        (Reply(7), "must be a list"),
        (Reply("maintenance"), "must be a list"),
        (Reply([{"other": 1}]), "cursor.field=id: the records must have it"),
        (Reply([1] * 100_000), r"max\.response\.bytes=200000; set it higher"),
        (Reply("", 302, Location="/items"), "was redirected 6 times"),
        (Reply("", 302, Location="http://[x/"), "leads to no URL"),
        (Reply(b"\x1f\x8b", Content_Encoding="gzip"), "GET"),
    ],
    ids=lambda value: "",
)
def test_an_answer_without_records_is_waited_out(endpoint, reply, said, caplog):
    """The pauses grow, the log says which setting it may be, and the records come in the end."""
    endpoint.answer = lambda request: reply
    settings = {"max_response_bytes": 200_000, "retry_backoff_ms": 1000}
    with source(endpoint, paging="cursor", **settings) as made:
        pauses = []
        for _ in range(5):
            assert made.poll() == []
            pauses.append(made._client.left_s)
            made._client.pause(0)
        endpoint.answer = lambda request: Reply([{"id": 1}])
        assert [record.value for record in made.poll()] == [{"id": 1}]
        assert made._client._failures == 0

    assert all(after > before for before, after in itertools.pairwise(pauses))
    assert len([text for text in caplog.messages if re.search(said, text)]) == 5


@pytest.mark.parametrize(
    "reply",
    [
        Reply(b"", 204),
        Reply(b"", 205),
        Reply({"rows": None}),
        Reply({"rows": []}),
    ],
)
def test_nothing_new_is_no_failure(endpoint, reply, caplog):
    """An answer without content, or with null for its list: it is asked again as always."""
    replies = [Reply({"rows": [1]}), reply, Reply({"rows": [2]})]
    endpoint.answer = lambda request: replies.pop(0) if replies else Reply({"rows": [2]})
    with source(endpoint, records_field="rows") as made:
        assert take(made, polls=4) == [1, 2]
    assert caplog.messages == []


def test_text_in_the_encoding_that_the_answer_names(endpoint):
    """Some servers write JSON in Latin-1 and say so; a byte order mark of UTF-8 is none of it."""
    replies = [
        Reply('["ü"]'.encode("latin-1"), Content_Type="application/json;charset=ISO-8859-1"),
        Reply('["ü!"]'.encode("utf-8-sig"), Content_Type="application/json"),
        Reply('["ü!!"]'.encode("utf-16"), Content_Type="application/json; charset=utf-16"),
    ]
    endpoint.answer = lambda request: replies.pop(0) if replies else Reply([])
    with source(endpoint) as made:
        assert take(made, polls=3) == ["ü", "ü!", "ü!!"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("30", 30),
        (" 30 ", 30),
        ("0030", 30),
        ("86400", 3600),
        ("9" * 5000, 3600),
        ("-1", 0),
        ("+5", 0),
        ("1.5", 0),
        ("1e3", 0),
        ("٣٠", 0),
        ("soon", 0),
        ("", 0),
        (",", 0),
        ("\0", 0),
        ("(" * 500, 0),
        ("Thu, 26 Nov 2026 12:00:30 GMT", 30),
        ("Thursday, 26-Nov-26 12:00:30 GMT", 30),
        ("Thu Nov 26 12:00:30 2026", 30),
        ("Thu, 26 Nov 2026 12:00:30 -0000", 30),
        ("Thu, 26 Nov 2026 13:00:30 +0100", 30),
        ("Thu, 26 Nov 2026 12:00:30", 30),
        ("Thu, 26 Nov 2026 11:00:00 GMT", 0),
        ("Thu, 26 Nov 1026 12:00:30 GMT", 0),
        ("Thu, 26 Nov 9999 12:00:30 GMT", 3600),
        ("Fri, 31 Dec 9999 23:59:59 -1200", 0),
        ("Thu, 26 Nov 99999 12:00:30 GMT", 0),
        ("Thu, 32 Nov 2026 12:00:30 GMT", 0),
        ("Thu, 26 Nov 2026 25:61:61 GMT", 0),
        ("2026-11-26T12:00:30Z", 0),
    ],
)
@pytest.mark.parametrize(
    "date",
    [
        "Thu, 26 Nov 2026 12:00:00 GMT",
        "Thu Nov 26 12:00:00 2026",
        "Thu, 26 Nov 2026 12:00:00 -0000",
    ],
)
def test_retry_after_in_all_its_forms(text, seconds, date):
    """Seconds, the three forms of a date, and what is neither: a pause of at most an hour."""
    answer = Answer(503, {"Retry-After": text, "Date": date}, b"", None)
    assert answer.retry_after_ms == seconds * 1000


@pytest.mark.parametrize("date", ["", "yesterday", "Thu, 26 Nov 99999 12:00:30 GMT"])
def test_retry_after_is_counted_from_now_without_a_date(date):
    """An answer need not say when it was given."""
    until = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    answer = Answer(503, {"Retry-After": until, "Date": date}, b"", None)
    assert 500_000 < answer.retry_after_ms <= 600_000


def test_a_server_that_asks_for_no_pause_gets_one(endpoint):
    """Retry-After: 0, always: the pauses grow all the same."""
    endpoint.answer = lambda request: Reply("", 429, Retry_After="0")
    with source(endpoint, retry_backoff_ms=100) as made:
        pauses = []
        for _ in range(6):
            made.poll()
            pauses.append(made._client.left_s)
            made._client.pause(0)
    assert all(after > before for before, after in itertools.pairwise(pauses))
    assert pauses[-1] > 2


KNOWN = {each.value for each in HTTPStatus if each.value >= 200}
STATUSES = [101, *sorted(KNOWN | {*some(range(200, 600))}), 600, 999]
NO_BODY = (101, 204, 205, 304)


def replies_of(body):
    """An answer of every status, each with a Retry-After that few expect."""
    forms = itertools.cycle(["0", "-1", "soon", "Thu Nov 26 12:00:30 2026", "9" * 50])
    return [
        Reply(b"" if status in NO_BODY else body, status, Retry_After=next(forms))
        for status in STATUSES
    ]


def test_a_source_knows_every_status(endpoint):
    """Each brings records, or a pause, or an error that says the setting: nothing is a surprise."""
    with source(endpoint, poll_interval_ms=60_000, retry_backoff_ms=60_000) as made:
        for number, reply in enumerate(replies_of(b"[]")):
            reply.body = reply.body and json.dumps([number]).encode()
            endpoint.answer = lambda request, reply=reply: reply
            made._client.pause(0)
            status = reply.status
            if status in range(200, 300) or status in (304, 408, 425, 429, *range(500, 600)):
                found = made.poll()
                assert len(found) == (status in range(200, 300) and status not in NO_BODY)
                assert made._client.left_s > 0
            else:
                with pytest.raises(ConfigError, match=f"must be answered .* by {status}"):
                    made.poll()


def test_an_answer_that_never_ends_is_an_outage(endpoint):
    """1xx announces another answer; none comes."""
    with source(endpoint, request_timeout_ms=50) as made:
        for status in (100, 102, 103, 199):
            endpoint.answer = lambda request, status=status: Reply(b"", status)
            made._client.pause(0)
            assert made.poll() == []
        assert made._client._failures == 4


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirections_of_the_same_server_are_followed(endpoint, status):
    """With the headers; the page that answers is the same place as the first."""
    endpoint.answer = lambda request: (
        Reply([1]) if request.path == "/v2" else Reply("", status, Location="../v2")
    )
    with source(endpoint, headers='{"X-Own": "1"}') as made:
        (record,) = made.poll()
    assert record.source_partition == {"url": endpoint.url}
    assert [request.headers["X-Own"] for request in endpoint.requests] == ["1", "1"]


def test_a_redirection_to_another_server_is_refused(endpoint):
    """It would get the password: a sentence says what to set."""
    endpoint.answer = lambda request: Reply("", 302, Location="https://127.0.0.1/login")
    with (
        source(endpoint) as made,
        pytest.raises(ConfigError, match=r"another server.*set url to https://127.0.0.1/login"),
    ):
        made.poll()
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("back_to", ["1", "0"])
@pytest.mark.parametrize("paging", ["link", "next"])
def test_pages_that_lead_in_a_circle_are_read_once(endpoint, paging, back_to, caplog):
    """The last page before it is asked again; what it has more comes, and so does a way out."""
    items = {"0": [0], "1": [1], "2": [2]}
    following = {"0": "1", "1": "2", "2": back_to}

    def answer(request):
        page = request.query.get("page", "0")
        link = f"/items?page={following[page]}"
        if paging == "link":
            return Reply(items[page], Link=f'<{link}>; rel="next"')
        return Reply({"rows": items[page], "next": link})

    endpoint.answer = answer
    settings = {} if paging == "link" else {"records_field": "rows"}
    with source(endpoint, paging=paging, **settings) as made:
        assert take(made, polls=12) == [0, 1, 2]
        assert len([text for text in caplog.messages if "stays at" in text]) <= 2
        items["2"].append(3)
        assert take(made, polls=3) == [3]
        items["3"], following["2"], following["3"] = [4], "3", back_to
        assert take(made, polls=6) == [4]


@pytest.mark.parametrize(
    "following", [{"a": 1}, ["b"], "http://[x/", "http://x:99999999/", inf, "\ud83d"]
)
def test_a_next_page_that_is_none_is_not_asked_for(endpoint, following, caplog):
    """The records of this page come; the source stays there, and a mended page leads on."""
    endpoint.answer = lambda request: Reply({"rows": [1], "next": following})
    with source(endpoint, paging="next", records_field="rows") as made:
        assert take(made, polls=3) == [1]
        assert "stays at the one before" in caplog.text
        endpoint.answer = lambda request: Reply(
            {"rows": [2] if request.query else [1], "next": None if request.query else "token"}
        )
        assert take(made) == [2]


def test_a_header_that_cannot_be_read_is_no_end(endpoint):
    """A Link of rubbish is as good as none."""
    replies = [Reply([1], Link=text) for text in ("<", '<http://[x/>; rel="next"', ";;;,<>")]
    endpoint.answer = lambda request: replies.pop(0) if replies else Reply([1])
    with source(endpoint, paging="link") as made:
        assert take(made, polls=5) == [1]


def test_a_record_without_a_cursor_is_reported(endpoint):
    """It has the place of the one before it; the others go on."""
    rows = [{"id": 1}, {"name": "no id"}, {"id": 3}, "text"]
    endpoint.answer = lambda request: Reply(
        [row for row in rows if not isinstance(row, dict) or row.get("id", 2) > 0]
        if not request.query
        else []
    )
    with source(endpoint, paging="cursor") as made:
        found = made.poll()
    assert [record.value for record in found] == rows
    assert [record.source_offset["next"] for record in found] == [1, 1, 3, 3]
    assert [str(record.error or "")[:30] for record in found] == [
        "",
        "INVALID_RECORD: cursor.field=i",
        "",
        "INVALID_RECORD: cursor.field=i",
    ]


@pytest.mark.parametrize("wrong", [inf, -inf, "\ud83d", ["b"], {"a": 1}])
def test_a_cursor_that_no_offset_holds_is_as_good_as_none(endpoint, wrong):
    """It is the error of its record: no other one is held up by it."""
    rows = [{"id": 1}, {"id": wrong}, {"id": 3}]
    endpoint.answer = lambda request: Reply([] if request.query else rows)
    with source(endpoint, paging="cursor") as made:
        found = made.poll()
        assert made.poll() == []
    assert [record.source_offset["next"] for record in found] == [1, 1, 3]
    assert [record.error is None for record in found] == [True, False, True]


def test_another_server_is_not_asked(endpoint):
    """The next page may not lead the headers elsewhere."""
    endpoint.answer = lambda request: Reply([1], Link='<http://other.example/>; rel="next"')
    with source(endpoint, paging="link") as made:
        assert len(made.poll()) == 1
        with pytest.raises(ConfigError, match="of the same server"):
            made.poll()


def test_offsets_that_a_person_sets(endpoint):
    """A page of this endpoint."""
    settings = HttpSource.Settings.parse({"url": endpoint.url, "topic": "t"})
    place = {"url": endpoint.url}
    assert HttpSource.alter_offsets(settings, [(place, {"next": 7}), (place, None)])
    assert HttpSource.is_exactly_once(settings)
    for partition, offset in (({}, None), (place, {"page": 1}), (place, {"done": -1})):
        with pytest.raises(ConfigError):
            HttpSource.alter_offsets(settings, [(partition, offset)])


class SinkContext(LoneContext):
    """Keeps what is reported."""

    def report(self, record, error):
        self.asked.append((record.offset, str(error)))
        future = Future()
        future.set_result(None)
        return future

    def retry_after(self, timeout_ms):
        self.asked.append(("retry", timeout_ms))


@contextmanager
def sink(endpoint, **settings):
    given = {"url": endpoint.url, "retry.backoff.ms": "1"}
    given |= {key.replace("_", "."): str(value) for key, value in settings.items()}
    made = HttpSink(HttpSink.Settings.parse(given), SinkContext())
    made.start()
    try:
        yield made
    finally:
        made.stop()


def record(offset, value=None, partition=0, **more):
    value = {"n": offset} if value is None else value
    return SinkRecord(topic="t x", partition=partition, offset=offset, value=value, **more)


def test_a_record_is_a_request(endpoint):
    """Its place in a header, by which the receiver knows it; with the user and the key."""
    with sink(
        endpoint,
        url=endpoint.url + "/${topic}/${key}",
        headers='{"X-Own": "1"}',
        username="me",
        password="word",
    ) as made:
        made.put([record(0, key="a/b"), record(1, value="text"), record(2, value=b"\xff")])

    first, second, third = endpoint.requests
    assert (first.method, first.path) == ("POST", "/items/t%20x/a%2Fb")
    assert [each.body for each in endpoint.requests] == [b'{"n":0}', b"text", b"\xff"]
    assert first.headers["Idempotency-Key"] == "t x-0-0"
    assert first.headers["Content-Type"] == "application/json"
    assert first.headers["X-Own"] == "1"
    assert first.headers["Authorization"].startswith("Basic ")
    assert (second.path, third.path) == ("/items/t%20x/", "/items/t%20x/")


@pytest.mark.parametrize(
    ("form", "body"), [("array", b'[{"n":0},"s"]'), ("lines", b'{"n":0}\n"s"\n')]
)
def test_batches(endpoint, form, body):
    """Of one partition each, with the first and the last offset."""
    with sink(endpoint, batch_records=2, batch_format=form) as made:
        made.put([record(0), record(1, value='"s"'), record(2), record(7, partition=1)])

    assert {each.headers["Idempotency-Key"]: each.body for each in endpoint.requests}[
        "t x-0-0-1"
    ] == body
    assert sorted(each.headers["Idempotency-Key"] for each in endpoint.requests) == [
        "t x-0-0-1",
        "t x-0-2",
        "t x-1-7",
    ]


def test_tombstones(endpoint):
    """Left out, or deletions."""
    gone = SinkRecord(topic="t", partition=0, offset=0, key="k", value=None)
    with sink(endpoint) as made:
        made.put([gone])
    assert endpoint.requests == []
    with sink(endpoint, url=endpoint.url + "/${key}", null_values="delete") as made:
        made.put([gone])
    assert [(each.method, each.path) for each in endpoint.requests] == [("DELETE", "/items/k")]
    with pytest.raises(ConfigError, match=r"needs batch\.records=1"):
        HttpSink.Settings.parse({"url": "http://x", "null.values": "delete", "batch.records": "2"})


def test_an_outage_repeats_only_what_was_not_sent(endpoint):
    """Partitions go on by themselves; the server's wish is kept."""
    left = [Reply("no", 503, Retry_After="30")]

    def answer(request):
        return left.pop() if left and b'"n":2' in request.body else Reply()

    endpoint.answer = answer
    with sink(endpoint) as made:
        records = [record(1), record(2), record(3), record(5, partition=1)]
        with pytest.raises(OutageError, match="503"):
            made.put(records)
        with pytest.raises(Exception, match="nothing is sent for"):
            made.put(records)
        assert made.context.asked[-1][0] == "retry"
        made._client.pause(0)
        made.put(records)

    bodies = [each.body for each in endpoint.requests]
    assert sorted(bodies) == [b'{"n":1}', b'{"n":2}', b'{"n":2}', b'{"n":3}', b'{"n":5}']
    assert [body for body in bodies if b"5" not in body][-2:] == [b'{"n":2}', b'{"n":3}']


def test_only_the_refused_record_of_a_batch_is_reported(endpoint):
    """The batch is divided until it is found."""
    kept = []

    def answer(request):
        rows = json.loads(request.body)
        if any(row["n"] == 5 for row in rows):
            return Reply("five is wrong", 422)
        kept.extend(row["n"] for row in rows)
        return Reply()

    endpoint.answer = answer
    with sink(endpoint, batch_records=8) as made:
        made.put([record(number) for number in range(8)])

    assert kept == [0, 1, 2, 3, 4, 6, 7]
    ((offset, said),) = made.context.asked
    assert offset == 5
    assert "refused by 422" in said


@pytest.mark.parametrize("status", [301, 302, 303, 401, 407])
def test_a_wrong_setting_is_no_records_fault(endpoint, status):
    """The task ends; nothing is reported, and the error says where the server is."""
    endpoint.answer = lambda request: Reply("no", status, Location="/v2")
    with sink(endpoint) as made:
        with pytest.raises(ConfigError, match=f"must be accepted, not answered by {status}.*/v2"):
            made.put([record(0)])
        assert made.context.asked == []


def test_a_sink_knows_every_status(endpoint):
    """What is not accepted is sent again, or reported by place, or an error; all else is sent."""
    endpoint.answer = lambda request: answered if request.body == b"poison" else Reply()
    offset = 0
    with sink(endpoint) as made:
        for status in (status for status in STATUSES if status not in (408, 425, 429)):
            answered = Reply(b"", status, Location="http://elsewhere/")
            made._client.pause(0)
            made.context.asked.clear()
            offset += 2
            records = [record(offset, "poison"), record(offset + 1)]
            if status in range(500, 600):
                with pytest.raises(OutageError):
                    made.put(records)
            elif status in range(200, 300):
                made.put(records)
            elif status in range(400, 500) and status not in (401, 407):
                made.put(records)
                ((place, said),) = made.context.asked
                assert (place, f"refused by {status}" in said) == (offset, True)
                assert json.loads(endpoint.requests[-1].body) == {"n": offset + 1}
            else:
                with pytest.raises(ConfigError):
                    made.put(records)
                assert made.context.asked == []


@pytest.mark.parametrize("status", [307, 308])
def test_a_request_is_repeated_where_it_is_to_go(endpoint, status):
    """On the same server, with its body and its place."""
    endpoint.answer = lambda request: (
        Reply() if request.path == "/v2" else Reply("", status, Location="/v2")
    )
    with sink(endpoint) as made:
        made.put([record(0)])
    first, second = endpoint.requests
    assert (first.body, first.headers["Idempotency-Key"]) == (
        second.body,
        second.headers["Idempotency-Key"],
    )


@pytest.mark.parametrize("batch_records", [1, 8])
@pytest.mark.parametrize(
    "poison",
    [
        {"value": "cut \ud83d"},
        {"value": object()},
        {"value": {"n": [object()]}},
        {"key": "\ud83d"},
    ],
)
def test_what_no_request_can_be_made_of_is_reported(endpoint, batch_records, poison):
    """Whatever kind of error it is; the records beside it are sent."""
    with sink(endpoint, url=endpoint.url + "/${key}", batch_records=batch_records) as made:
        made.put([record(0, key="a"), record(1, **({"key": "a"} | poison)), record(2, key="a")])
        ((offset, _),) = made.context.asked
    assert offset == 1
    assert b"".join(request.body for request in endpoint.requests).count(b'"n"') == 2


def test_an_outage_within_a_batch_reports_nothing_twice(endpoint):
    """A half that was refused or sent before is not sent again."""
    left = [Reply("", 503)]

    def answer(request):
        rows = json.loads(request.body)
        if any(row["n"] == 0 for row in rows):
            return Reply("", 422)
        return left.pop() if left and rows[0]["n"] == 2 else Reply()

    endpoint.answer = answer
    records = [record(number) for number in range(4)]
    with sink(endpoint, batch_records=4) as made:
        with pytest.raises(OutageError):
            made.put(records)
        made._client.pause(0)
        made.put(records)
        assert [each[0] for each in made.context.asked if each[0] != "retry"] == [0]
    sent = [json.loads(request.body) for request in endpoint.requests]
    assert sent[-1] == [{"n": 2}, {"n": 3}]


@pytest.mark.parametrize("batch_records", [1, 8])
def test_an_outage_behind_a_key_of_no_url_reports_nothing_twice(endpoint, batch_records):
    """Such a record counts as done, and those before it are sent first."""
    left = [Reply("", 503)]
    endpoint.answer = lambda request: left.pop() if left and b"2" in request.body else Reply()
    records = [record(0), record(1, key="\ud83d"), record(2), record(3)]
    with sink(endpoint, url=endpoint.url + "/${key}", batch_records=batch_records) as made:
        with pytest.raises(OutageError):
            made.put(records)
        made._client.pause(0)
        made.put(records)
        assert [each[0] for each in made.context.asked if each[0] != "retry"] == [1]
    numbers = re.findall(rb'"n":(\d)', b"".join(each.body for each in endpoint.requests))
    assert sorted(set(numbers)) == [b"0", b"2", b"3"]
    assert numbers.count(b"0") == 1


def test_a_slow_endpoint_does_not_keep_the_worker_from_its_group(endpoint, monkeypatch):
    """`put` ends when its time is over, and what is left goes with the next one, once each."""
    monkeypatch.setattr("ottla.connect.connectors.http.LONGEST_PUT_MS", 0)
    records = [record(0), record(1), record(2), record(0, partition=1)]
    with sink(endpoint, null_values="ignore") as made:
        for _ in range(2):
            with pytest.raises(TryAgainError, match="1 partitions have records left"):
                made.put(records)
        made.put(records)
        assert [each for each in made.context.asked if each[0] != "retry"] == []
    places = sorted(request.headers["Idempotency-Key"] for request in endpoint.requests)
    assert places == ["t x-0-0", "t x-0-1", "t x-0-2", "t x-1-0"]


def test_a_place_that_is_made_of_the_key_may_be_missing(endpoint):
    """404 is the record's own then."""
    endpoint.answer = lambda request: Reply("", 404 if request.path.endswith("bad") else 200)
    with sink(endpoint, url=endpoint.url + "/${key}") as made:
        made.put([record(0, key="bad"), record(1, key="good")])
        assert [offset for offset, _ in made.context.asked] == [0]


def test_a_task_that_stops_waits_for_no_answer(endpoint):
    """It would be left behind by its worker."""
    with sink(endpoint) as made:

        def answer(request):
            wait_until(lambda: made.context.is_over == "asked", "the task to be stopped")
            return Reply()

        def is_stopping(self):
            self.is_over = "asked"
            return True

        endpoint.answer = answer
        type(made.context).is_stopping = property(is_stopping)
        try:
            with pytest.raises(OutageError, match="stops before"):
                made.put([record(0)])
        finally:
            del type(made.context).is_stopping


class TestSource(SourceContract):
    """What every source keeps."""

    connector = HttpSource
    bad_settings = ({"url": "ftp://x"}, {"paging": "guess"}, {"headers": "[]"})

    @pytest.fixture(autouse=True)
    def _endpoint(self, endpoint):
        self.endpoint, self.rows = endpoint, []
        endpoint.answer = lambda request: Reply(
            [row for row in self.rows if row["id"] > int(request.query.get("cursor", -1))]
        )

    def own_settings(self):
        return {
            "topic": self.topic,
            "url": self.endpoint.url,
            "paging": "cursor",
            "poll.interval.ms": "10",
            "value.converter": "JsonConverter",
            "value.converter.schemas.enable": "false",
        }

    def bring(self, count):
        self.rows += [{"id": len(self.rows) + number} for number in range(count)]


class TestSink(SinkContract):
    """What every sink keeps."""

    connector = HttpSink
    bad_settings = ({"url": ""}, {"batch.records": "0"})

    @pytest.fixture(autouse=True)
    def _endpoint(self, endpoint):
        self.endpoint = endpoint

    def own_settings(self):
        return {"topics": self.topic, "url": self.endpoint.url}

    def written(self):
        return [request.body.decode() for request in self.endpoint.requests]

    def test_a_server_that_is_down_sends_nothing_to_the_dead_letters(self):
        """Through the worker: an outage, then a poison record, which alone goes there."""
        state = {"is": "down"}

        def answer(request):
            if state["is"] == "down":
                return Reply("", 503)
            return Reply("", 422 if request.body == b"poison" else 200)

        self.endpoint.answer = answer
        letters = "letters"
        with self.worker() as worker:
            self.send(["a", "poison"])
            worker.create(
                self.properties(
                    retry_backoff_ms="10",
                    errors_tolerance="all",
                    errors_deadletterqueue_topic_name=letters,
                    errors_deadletterqueue_topic_replication_factor="1",
                )
            )
            wait_until(lambda: len(self.endpoint.requests) > 6, "some attempts")
            assert self.broker.records(letters) == []
            state["is"] = "up"
            (letter,) = self.broker.wait_for_records(letters, 1)
            assert letter.value == b"poison"
            with Producer(self.broker.bootstrap_servers) as producer:
                producer.send(self.topic, b"b", partition=0)
            wait_until(lambda: "b" in self.written(), "the record behind it")
