"""Pipelines as streams: what they have written is what their functions make of the input."""

from __future__ import annotations

import io

import pytest

import ottla
from ottla.cli.main import main
from ottla.cli.terminal import Terminal
from ottla.pipelines.execution import Execution, RunOptions
from ottla.pipelines.news_feed import follow
from ottla.pipelines.pipeline import FeedRequest, after, event, load_pipeline
from ottla.pipelines.topics import create_topics, publish
from ottla.testing.processes import BrokerProcess

pytestmark = pytest.mark.spark

# Others run over the access log, in test_pipelines.py and test_web_traffic.py.
NAMES = ("articles", "event_sourcing")
EVENTS = 200
OPTIONS = RunOptions(max_offsets_per_trigger=400)


@pytest.fixture(scope="module")
def servers(tmp_path_factory):
    """The topics of pipelines have fixed names: a broker of their own."""
    process = BrokerProcess(tmp_path_factory.mktemp("streams") / "data").start()
    yield process.bootstrap_servers
    assert process.stop() == 0


def rows(frame):
    """The rows of a DataFrame as text, in no order."""
    return sorted(str(row.asDict()) for row in frame.collect())


@pytest.mark.wide
@pytest.mark.parametrize("name", NAMES)
def test_stream_comes_to_what_the_functions_make_of_all_input(spark, servers, tmp_path, name):
    """Over several batches and a restart, with state carried on."""
    pipeline = load_pipeline(name)
    create_topics(servers, pipeline)
    batches = []
    for events in (EVENTS, 2 * EVENTS):
        publish(servers, pipeline.feeds["sample"](FeedRequest(events, seed=1)))
        execution = Execution(spark, pipeline, servers, tmp_path, OPTIONS)
        execution.run_once(lambda at_s, batch: batches.append(batch))

    topics = execution.topics()
    expected = pipeline.build(topics, execution.parameters)

    assert sum(batch.late for batch in batches) == 0
    for output in pipeline.outputs:
        found = topics[output.topic].select(expected[output.topic].columns)
        assert rows(found) == rows(expected[output.topic]), output.topic


@pytest.mark.wide
def test_late_event_is_counted_and_left_out(spark, servers, tmp_path):
    """An event whose hour was over for longer than it may be late changes no figure."""
    pipeline = load_pipeline("ranking")
    create_topics(servers, pipeline)
    for time in ("12:00", "11:55", "10:00", "12:01"):
        interaction = {"item": "a", "kind": "view", "time": f"2026-03-02T{time}:00Z"}
        publish(servers, [event("interactions", "a", **interaction)])
    options = RunOptions(max_offsets_per_trigger=1)

    execution = Execution(spark, pipeline, servers, tmp_path, options)
    execution.run_once(lambda at_s, batch: None)

    (row,) = execution.write_tables(tmp_path / "tables")["ranking"].rows
    assert (execution.tally.rows, execution.tally.late, row["views"]) == (4, 1, 3)


@pytest.mark.wide
def test_table_is_read_when_a_run_begins(spark, servers, tmp_path):
    """Who has begun to follow since the last run sees what is done from then on."""
    pipeline = load_pipeline("news_feed")
    create_topics(servers, pipeline)
    post = {"actor": "ann", "verb": "posted", "time": after(60)}
    for follower, thing in (("bob", "1"), ("cid", "2")):
        publish(
            servers, [follow(follower, "ann"), event("activities", "ann", object=thing, **post)]
        )
        execution = Execution(spark, pipeline, servers, tmp_path, RunOptions())
        execution.run_once(lambda at_s, batch: None)

    feed = {(row.follower, row.object) for row in execution.topics()["feed"].collect()}

    assert feed == {("bob", "1"), ("bob", "2"), ("cid", "2")}


def test_reset_forgets_the_output_and_keeps_the_input(servers, tmp_path):
    """Output topics, checkpoints and report are gone; what was read can be read again."""
    pipeline = load_pipeline("ranking")
    create_topics(servers, pipeline)
    (tmp_path / "ranking" / "checkpoints" / "ranking-counts").mkdir(parents=True)
    out = io.StringIO()
    words = ["pipeline", "reset", "ranking", "--output", str(tmp_path)]

    status = main([*words, "--bootstrap-server", servers], Terminal(out=out))

    assert (status, out.getvalue().splitlines()) == (
        0,
        [
            "deleted the topic ranking-counts",
            f"deleted {tmp_path / 'ranking' / 'checkpoints'}",
        ],
    )
    with ottla.Admin(servers) as admin:
        assert {"interactions", "ranking-counts"} & admin.list_topics() == {"interactions"}
