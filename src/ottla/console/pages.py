"""The table of all pages, changes, streams and exports of the console: `page` has the interface."""

from __future__ import annotations

from typing import Final

from ottla.console.access_pages import ACCESS_PAGES
from ottla.console.alert_book import Webhook
from ottla.console.alert_pages import ALERT_PAGES, alerts_firing
from ottla.console.alert_watch import AlertWatch
from ottla.console.broker_pages import BROKER_PAGES
from ottla.console.connector_pages import CONNECTOR_CHANGES, CONNECTOR_PAGES, connectors_failed
from ottla.console.exporting import RECORD_EXPORT, table_exports
from ottla.console.flow_pages import FLOW_PAGES
from ottla.console.group_pages import GROUP_CHANGES, GROUP_PAGES, groups_behind
from ottla.console.group_reset import RESET_CHANGES, RESET_PAGES
from ottla.console.lag_collector import LagCollector
from ottla.console.live_tail import RECORD_STREAMS
from ottla.console.metrics_pages import METRICS_PAGES
from ottla.console.metrics_samples import MetricSamples
from ottla.console.mirror_pages import MIRROR_PAGES
from ottla.console.overview import overview, partitions_in_danger
from ottla.console.page import ConsoleChange, ConsoleExport, ConsolePage, ConsoleStream
from ottla.console.pipeline_pages import PIPELINE_PAGES
from ottla.console.producing import PRODUCE_CHANGES, PRODUCE_PAGES
from ottla.console.records import RECORD_PAGES
from ottla.console.redriving import REDRIVE_CHANGES, REDRIVE_PAGES
from ottla.console.registry_pages import REGISTRY_PAGES
from ottla.console.run_pages import RUN_PAGES
from ottla.console.search_progress import SEARCH_STREAMS
from ottla.console.shape import SHAPE_PAGES
from ottla.console.sql_pages import SQL_EXPORT, SQL_PAGES, SQL_STREAMS
from ottla.console.topic_changes import TOPIC_CHANGES, TOPIC_FORMS
from ottla.console.topic_pages import PARTS_OF_TOPICS
from ottla.console.topics import TOPIC_PAGES
from ottla.console.transaction_pages import TRANSACTION_CHANGES, TRANSACTION_PAGES

COLLECTORS: Final = (LagCollector, MetricSamples, AlertWatch, Webhook)
"""What looks at the cluster as long as the console runs; `ConsoleCluster.part` has each."""

WATCHERS: Final = (partitions_in_danger, groups_behind, connectors_failed, alerts_firing)
"""What may want attention on the overview."""

PAGES: Final[tuple[ConsolePage, ...]] = (
    overview(WATCHERS),
    *TOPIC_PAGES,
    *TOPIC_FORMS,
    *RECORD_PAGES,
    *PARTS_OF_TOPICS,
    *SHAPE_PAGES,
    *PRODUCE_PAGES,
    *REDRIVE_PAGES,
    *GROUP_PAGES,
    *RESET_PAGES,
    *TRANSACTION_PAGES,
    *BROKER_PAGES,
    *ACCESS_PAGES,
    *CONNECTOR_PAGES,
    *PIPELINE_PAGES,
    *RUN_PAGES,
    *FLOW_PAGES,
    *SQL_PAGES,
    *MIRROR_PAGES,
    *REGISTRY_PAGES,
    *METRICS_PAGES,
    *ALERT_PAGES,
)
CHANGES: Final[tuple[ConsoleChange, ...]] = (
    *TOPIC_CHANGES,
    *PRODUCE_CHANGES,
    *REDRIVE_CHANGES,
    *GROUP_CHANGES,
    *RESET_CHANGES,
    *TRANSACTION_CHANGES,
    *CONNECTOR_CHANGES,
)
STREAMS: Final[tuple[ConsoleStream, ...]] = (*RECORD_STREAMS, *SEARCH_STREAMS, *SQL_STREAMS)
EXPORTS: Final[tuple[ConsoleExport, ...]] = (RECORD_EXPORT, SQL_EXPORT, *table_exports(PAGES))
