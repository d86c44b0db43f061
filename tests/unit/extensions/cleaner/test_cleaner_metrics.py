"""What metrics show of compaction, read over HTTP."""

from __future__ import annotations

from http_pages import metrics_of, scrape

import ottla
from ottla.extensions.cleaner.cleaner import Cleaner
from ottla.testing import InProcessBroker, wait_until


def test_compaction_tells_of_its_rounds():
    """What it moves, how long it takes and what is left; nothing is uncleanable."""
    settings = {"metrics_listener": "http://127.0.0.1:0", "log_cleaner_backoff_ms": "100"}
    with InProcessBroker(**settings) as broker:
        url = str(metrics_of(broker.broker).end_point)
        broker.create_topic("compacted", cleanup_policy="compact", segment_bytes=2_000)
        with ottla.Producer(broker.bootstrap_servers, batch_size=0) as producer:
            for number in range(100):
                producer.send("compacted", bytes(100), key=b"%d" % (number % 3))
            producer.flush()
        wait_until(
            lambda: scrape(url)["kafka_utils_throttler_cleaner_io_total", ()] > 10_000,
            "a round of compaction",
        )
        wait_until(
            lambda: scrape(url)["kafka_log_logcleaner_cleaner_recopy_percent", ()] > 0,
            "the end of a round",
        )
        found = scrape(url)
        assert found["kafka_log_logcleaner_cleaner_recopy_percent", ()] < 50
        assert 0 <= found["kafka_log_logcleanermanager_max_dirty_percent", ()] <= 100
        assert found["kafka_log_logcleanermanager_time_since_last_run_ms", ()] < 60_000
        uncleanable = "kafka_log_logcleanermanager_uncleanable_partitions_count"
        assert [value for (name, _), value in found.items() if name == uncleanable] == [0]


def test_log_that_cannot_be_cleaned_is_counted_in_its_directory():
    """It grows until the next start: an alert should tell of it."""
    with InProcessBroker(metrics_listener="http://127.0.0.1:0") as broker:
        url = str(metrics_of(broker.broker).end_point)
        broker.create_topic("broken", cleanup_policy="compact")
        cleaner = broker.broker.find(Cleaner).log_cleaner
        (log,) = (
            each
            for each in broker.broker.log_manager.all_logs()
            if each.topic_partition.topic == "broken"
        )
        cleaner.uncleanable[log] = "planted"
        found = scrape(url)

        tags = (("logDirectory", log.log_dir.path),)
        assert found["kafka_log_logcleanermanager_uncleanable_partitions_count", tags] == 1
