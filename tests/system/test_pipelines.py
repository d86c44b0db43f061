"""The pipelines over a real access log: every figure is that of a plain script over the file."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from datetime import UTC, datetime

import pytest

from ottla.pipelines.access_log import AccessLog
from ottla.pipelines.execution import Execution, RunOptions
from ottla.pipelines.pipeline import FeedRequest, load_pipeline
from ottla.pipelines.topics import create_topics, publish
from ottla.testing.processes import BrokerProcess

pytestmark = pytest.mark.spark

LINE = re.compile(
    r'(\S+) \S+ \S+ \[([^]]+)\] "(\S+) (\S+) HTTP/[\d.]+" (\d+) (\d+|-) "([^"]*)" "[^"]*"'
)
NO_PAGES = (
    *("css", "js", "png", "jpg", "jpeg", "gif", "ico"),
    *("svg", "webp", "woff", "woff2", "ttf", "map"),
)
SITE = re.compile(r"https?://(?:www\.)?semicomplete\.com")


@pytest.fixture(scope="module")
def pipeline_broker(tmp_path_factory):
    """The topics of pipelines have fixed names: a broker of their own."""
    process = BrokerProcess(tmp_path_factory.mktemp("pipelines") / "data").start()
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def requests(access_log):
    """Client, time, method, path, status, size and referrer of each request of the log."""
    found = []
    for line in access_log.read_text(encoding="utf-8").splitlines():
        if match := LINE.fullmatch(line):
            client, time, method, path, status, size, referrer = match.groups()
            moment = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z")
            found.append(
                (
                    client,
                    moment,
                    method,
                    path.split("?")[0],
                    int(status),
                    int(size.replace("-", "0")),
                    referrer,
                )
            )
    assert len(found) == 9_999
    return found


@pytest.fixture
def run(spark, pipeline_broker, tmp_path):
    """Runs a pipeline over what a feed publishes, and returns its tables as sets of tuples."""

    def run(name, request, feed="log", **parameters):
        pipeline, servers = load_pipeline(name), pipeline_broker.bootstrap_servers
        create_topics(servers, pipeline)
        publish(servers, pipeline.feeds[feed](request))
        options = RunOptions(parameters=parameters)
        execution = Execution(spark, pipeline, servers, tmp_path, options)
        execution.run_once(lambda at_s, batch: None)
        return {
            section: {tuple(plain(value) for value in row.values()) for row in table.rows}
            for section, table in execution.write_tables(tmp_path / "tables").items()
        }

    return run


def plain(value):
    """Moments that can be compared."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value


def is_page(path, status):
    return status < 400 and path.lower().rpartition(".")[2] not in NO_PAGES


@pytest.mark.wide
def test_news_feed_of_the_log(requests, run, access_log):
    """Every page that a client reads is in the feed of every other client of its network."""
    networks = defaultdict(set)
    for client, *_ in requests:
        networks[client.rpartition(".")[0]].add(client)
    feeds = defaultdict(list)
    for client, time, _, path, status, *_ in requests:
        if is_page(path, status):
            for follower in networks[client.rpartition(".")[0]] - {client}:
                feeds[follower].append((client, time))

    tables = run("news_feed", FeedRequest(0, 0, AccessLog(access_log)))

    assert tables["feed_sizes"] == {
        (follower, len(feed), len({actor for actor, _ in feed}), max(time for _, time in feed))
        for follower, feed in feeds.items()
    }
    assert len(feeds) > 100


@pytest.mark.wide
def test_ranking_of_the_log(requests, run, access_log):
    """Views, click-throughs, votes, scores and ranks of all pages, and of the last hour's."""
    counts = defaultdict(Counter)
    for _, time, _, path, status, _, referrer in requests:
        if not is_page(path, status):
            continue
        hour = time.replace(minute=0, second=0)
        counts[path, hour]["view"] += 1
        found = re.match(r"(https?://[^/?#]+)([^?#]*)", referrer)
        if found and SITE.fullmatch(found[1]):
            counts[found[2] or "/", hour]["click"] += 1
        elif found:
            counts[path, hour]["vote"] += 1
    last = max(hour for _, hour in counts)

    tables = run("ranking", FeedRequest(0, 0, AccessLog(access_log)))

    assert tables["ranking"] == ranked(counts)
    assert tables["trending"] == ranked({key: of for key, of in counts.items() if key[1] == last})


def ranked(counts):
    """Rank, item, score, views, clicks, votes and click-through of each item."""
    items = defaultdict(Counter)
    for (item, _), of_hour in counts.items():
        items[item].update(of_hour)
    rows = []
    for item, of_item in items.items():
        views, clicks, votes = (of_item[kind] for kind in ("view", "click", "vote"))
        share = clicks / views if views else None
        rows.append((-(views + 3 * clicks + 10 * votes), item, views, clicks, votes, share))
    return {(rank, row[1], -row[0], *row[2:]) for rank, row in enumerate(sorted(rows), 1)}


@pytest.mark.wide
def test_crawlers_of_the_log(requests, run, access_log):
    """Each minute in which a client breaks a rule is an offence, and puts it on the blocklist."""
    limits = {"crawler": 20, "rate-limit": 1, "spam": 0}
    counts = defaultdict(Counter)
    for client, time, method, path, *_ in requests:
        minute = counts[client, time.replace(second=0)]
        minute["crawler"] += 1
        minute["rate-limit"] += path.lower().endswith((".xml", ".rss", ".atom", ".json"))
        minute["spam"] += method == "POST"
    offences = {
        (client, rule, minute, count, limits[rule])
        for (client, minute), of_minute in counts.items()
        for rule, count in of_minute.items()
        if count > limits[rule]
    }
    of_clients = defaultdict(list)
    for offence in offences:
        of_clients[offence[0]].append(offence)

    limit = {"max_requests": "20", "max_api_calls": "1", "max_posts": "0"}
    tables = run("crawlers", FeedRequest(0, 0, AccessLog(access_log)), **limit)

    assert tables["offences"] == offences
    assert tables["blocklist"] == {
        (
            client,
            ", ".join(sorted({each[1] for each in found})),
            len(found),
            max(each[3] for each in found),
            max(each[2] for each in found),
        )
        for client, found in of_clients.items()
    }
    assert {rule for _, rule, *_ in offences} == set(limits)


@pytest.mark.wide
def test_monitoring_of_the_log(requests, run, access_log):
    """Figures per minute, and incidents with their beginning and end, each alerted once."""
    minutes = defaultdict(lambda: [0, 0, 0])
    for _, time, _, _, status, size, _ in requests:
        minute = minutes[time.replace(second=0)]
        minute[0] += 1
        minute[1] += status >= 400
        minute[2] += size
    values = {
        (metric, time): value
        for time, (count, errors, size) in minutes.items()
        for metric, value in (
            ("requests", float(count)),
            ("error_percent", round(100 * errors / count, 3)),
            ("bytes", float(size)),
        )
    }
    expected = set()
    for metric, upper, lower in (("requests", 120, 110), ("error_percent", 5, 2)):
        expected |= set(incidents(values, metric, upper, lower))

    tables = run("monitoring", FeedRequest(0, 0, AccessLog(access_log)))

    assert tables["minutes"] == {
        ("site", metric, time, 1, value, value, value, value)
        for (metric, time), value in values.items()
    }
    assert tables["incidents"] == expected
    assert {metric for _, metric, *_ in expected} == {"requests", "error_percent"}


def incidents(values, metric, upper, lower):
    """The incidents of a metric, value by value in the order of time."""
    began = None
    number = 0
    for (name, time), value in sorted(values.items()):
        if name != metric:
            continue
        if began is None and value > upper:
            began, number = (time, value), number + 1
        elif began is not None and value < lower:
            yield ("site", metric, number, began[0], time, began[1], 1)
            began = None
    if began is not None:
        yield ("site", metric, number, began[0], None, began[1], 1)
