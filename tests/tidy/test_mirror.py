"""Unit tests mirror src/ottla: of each module one sees where it is tested."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from sources import ROOT, house

HOUSE = ROOT / "src" / "ottla"
UNIT = ROOT / "tests" / "unit"


class Elsewhere(NamedTuple):
    """Modules that have no unit test of their own, the tests that they have, and why there."""

    tests: str
    why: str
    modules: str


ELSEWHERE = (
    Elsewhere(
        "tests/wire",
        "the bytes of each message in each version are compared with other implementations",
        "protocol/*",
    ),
    Elsewhere(
        "tests/unit/pipelines/test_samples.py",
        "each pipeline is run over its samples",
        "pipelines/articles pipelines/change_capture pipelines/crawlers "
        "pipelines/event_sourcing pipelines/news_feed pipelines/profile_visits pipelines/ranking "
        "pipelines/retail pipelines/web_traffic pipelines/word_count",
    ),
    Elsewhere(
        "tests/simulation/test_seeds.py",
        "hundreds of seeds run every story, and each planted bug must be found",
        "testing/simulation/*",
    ),
    Elsewhere(
        "tests/unit/record/test_kernel.py",
        "the same tests run on each kernel, plain and compiled",
        "record/plain_encoding record/plain_decoding record/plain_survey record/plain_compaction "
        "record/native_kernel record/native_compaction",
    ),
    Elsewhere(
        "tests/unit/record/test_columnar.py",
        "columns are tested on both kernels, through the functions that build and read them",
        "record/columns record/native_columns record/native_rows",
    ),
    Elsewhere(
        "tests/unit/clients/producer/test_producer.py",
        "records are made and refused alike by both kinds of producers",
        "clients/producer/record_sending",
    ),
    Elsewhere(
        "tests/unit/clients/consumer/test_consumer.py",
        "an iteration that is left in the middle, by its consumer",
        "clients/consumer/unread_records",
    ),
    Elsewhere(
        "tests/unit/clients/processing/test_processing.py",
        "records are worked on, and buried, by the workers of each kind",
        "clients/processing/dead_letters clients/dead_letter_headers "
        "clients/processing/processing_calls",
    ),
    Elsewhere(
        "tests/unit/clients/aio",
        "a name for each client",
        "aio",
    ),
    Elsewhere(
        "tests/unit/clients/producer/test_partitioner.py",
        "a hash is right if records go where Kafka's clients send them",
        "record/murmur",
    ),
    Elsewhere(
        "tests/unit/clients/admin",
        "a row for each call of the client says which requests it makes",
        "clients/admin/admin_calls clients/admin/client_quotas clients/admin/delegation_tokens "
        "clients/admin/features "
        "clients/admin/log_dirs clients/admin/offsets clients/admin/scram_users",
    ),
    Elsewhere(
        "tests/unit/clients/consumer/test_group_member.py",
        "what both kinds of members share is tested by the older one",
        "clients/consumer/membership",
    ),
    Elsewhere(
        "tests/unit/clients/consumer/test_consumer_group_member.py",
        "a member and the coordinator of its consumer are two sides of one exchange",
        "clients/consumer/reconciling_coordinator",
    ),
    Elsewhere(
        "tests/unit/clients/legacy",
        "patterns and fetches, by what connectors read",
        "clients/legacy/stream_fetcher clients/legacy/topic_filter",
    ),
    Elsewhere(
        "tests/unit/config",
        "one test holds all tables of settings: names, defaults, limits, documentation",
        "config/authorizer_config config/cluster_config config/delegation_token_config "
        "config/known_keys config/mirror_config config/replication_config "
        "config/zookeeper_tls_config",
    ),
    Elsewhere(
        "tests/unit/config/test_sasl_config.py",
        "entries of JAAS as listeners and clients have them",
        "config/jaas config/sasl_client_config",
    ),
    Elsewhere(
        "tests/unit/controller/test_controller.py",
        "the parts of the controller are tested by what it makes of events",
        "controller/controller_context controller/controller_core controller/orders_to_brokers "
        "controller/partition_state_machine controller/replica_state_machine controller/statuses",
    ),
    Elsewhere(
        "tests/unit/server/handlers/test_transactions.py",
        "a verification is asked for by a produce and answered by the coordinator",
        "server/own_transactions",
    ),
    Elsewhere(
        "tests/unit/server",
        "every handler and the broker itself work with its parts",
        "server/parts",
    ),
    Elsewhere(
        "tests/unit/extensions/measures/test_broker_metrics_parts.py",
        "connections and bytes are counted for the metrics of listeners",
        "network/traffic",
    ),
    Elsewhere(
        "tests/unit/extensions/measures/test_request_metrics.py",
        "what they watch is known where it is measured",
        "network/request_watch server/request_meter",
    ),
    Elsewhere(
        "tests/unit/server/test_apis.py",
        "an API, and a family of them, is what its requests find in the table",
        "server/api",
    ),
    Elsewhere(
        "tests/unit/server/test_slicing_contexts.py",
        "a slice is tested by the answer that becomes whole",
        "server/slice_context",
    ),
    Elsewhere(
        "tests/unit/server/test_ask_controller.py",
        "changes of in-sync replicas reach the controller over the link",
        "server/isr_requests",
    ),
    Elsewhere(
        "tests/unit/server/test_controller_orders.py",
        "orders of a controller are sent by its brokers' handler",
        "server/handlers/controller_orders",
    ),
    Elsewhere(
        "tests/unit/server/test_membership.py",
        "a member whose log directory fails",
        "server/log_dir_failure_handler",
    ),
    Elsewhere(
        "tests/unit/server/test_orders_to_cluster.py",
        "orders are sent as messages, in their order",
        "server/broker_sender",
    ),
    Elsewhere(
        "tests/unit/extensions/audit/test_audit_log.py",
        "a record is looked at where it is written",
        "extensions/audit/audit_record",
    ),
    Elsewhere(
        "tests/unit/server/test_dynamic_config.py",
        "notifications of settings, which are followed, cleared away and missed, and their keys",
        "config/dynamic_keys registry/change_notifications",
    ),
    Elsewhere(
        "tests/unit/network",
        "a processor with real sockets tests what it lets in, and their handshakes",
        "network/connection_rates network/handshakes",
    ),
    Elsewhere(
        "tests/property/network",
        "bytes come in pieces of any size",
        "network/frame_buffer network/response_reader",
    ),
    Elsewhere(
        "tests/unit/network/test_tls_context.py",
        "stores are opened for the contexts that they are for",
        "network/tls_stores",
    ),
    Elsewhere(
        "tests/unit/extensions/quotas/test_client_quotas.py",
        "the time of the network is charged to the clients that it is taken for",
        "extensions/quotas/timed_transport",
    ),
    Elsewhere(
        "tests/unit/extensions/logins/test_listener_login.py",
        "logins are counted where clients log in",
        "extensions/measures/login_metrics",
    ),
    Elsewhere(
        "tests/unit/extensions/measures/test_broker_metrics_parts.py",
        "what each part of a broker shows is tested together, and read as one page",
        "extensions/measures/topic_metrics extensions/measures/replica_metrics "
        "extensions/measures/controller_metrics extensions/measures/coordinator_metrics "
        "extensions/measures/network_metrics extensions/measures/server_metrics "
        "extensions/measures/domains",
    ),
    Elsewhere(
        "tests/unit/extensions/measures/test_request_log.py",
        "the log of requests is turned on and off while a broker serves",
        "extensions/measures/request_log_switch",
    ),
    Elsewhere(
        "tests/unit/extensions/logins/test_own_principals.py",
        "builders are called by what has loaded them",
        "security/principal_builder",
    ),
    Elsewhere(
        "tests/unit/extensions/measures/test_metric_reporters.py",
        "reporters are called by what has loaded them",
        "metrics/metrics_reporter",
    ),
    Elsewhere(
        "tests/unit/extensions/moves/test_reassignment.py",
        "the reassignment of partitions is what attaches to the active controller",
        "controller/active_feature",
    ),
    Elsewhere(
        "tests/unit/extensions/moves/test_replica_moves.py",
        "logs move from directory to directory as a whole",
        "extensions/moves/replica_move extensions/moves/segment_copy",
    ),
    Elsewhere(
        "tests/unit/coordinator/group",
        "groups of both types are tested through their coordinator",
        "coordinator/group/classic_group coordinator/group/delayed_join "
        "coordinator/group/group_types coordinator/group/member_metadata "
        "coordinator/group/member_requests coordinator/group/subscribed_topics",
    ),
    Elsewhere(
        "tests/unit/coordinator/group/consumer",
        "the parts of consumer groups are tested by the heartbeats of their members",
        "coordinator/group/consumer/classic_subscription coordinator/group/consumer/cluster_topics "
        "coordinator/group/consumer/consumer_member coordinator/group/consumer/heartbeat_checks "
        "coordinator/group/consumer/target_assignment coordinator/group/consumer/topic_matches",
    ),
    Elsewhere(
        "tests/unit/coordinator/test_coordinator_partitions.py",
        "writes are answered and read again by the partitions of a coordinator",
        "coordinator/coordinator_log",
    ),
    Elsewhere(
        "tests/unit/coordinator/transaction",
        "the states of a transactional id, by the requests that change them",
        "coordinator/transaction/marker_sender coordinator/transaction/transaction "
        "coordinator/transaction/transaction_loader "
        "coordinator/transaction/transaction_metadata",
    ),
    Elsewhere(
        "tests/unit/extensions/cleaner/test_cleaning.py",
        "the parts of a round are tested by what it leaves of a log",
        "extensions/cleaner/batch_filter extensions/cleaner/cleaned_segment "
        "extensions/cleaner/cleaned_transactions extensions/cleaner/offset_map",
    ),
    Elsewhere(
        "tests/unit/metrics/test_exposition.py",
        "pages are tested as clients read them, over HTTP",
        "metrics/jolokia metrics/metrics_pages",
    ),
    Elsewhere(
        "tests/unit/registry/test_session_tree.py",
        "nodes are tested through the sessions that share them",
        "registry/node_tree",
    ),
    Elsewhere(
        "tests/unit/registry/test_zookeeper.py",
        "the session and the watches of a broker, on a real ZooKeeper server",
        "registry/node_watch registry/zookeeper_session",
    ),
    Elsewhere(
        "tests/unit/log",
        "the parts of a log are tested by the logs that they make up",
        "log/flush_job log/index_file log/log_results log/producer_state_entry log/readable_log "
        "log/segments",
    ),
    Elsewhere(
        "tests/unit/extensions/rights/test_access_checks.py",
        "the matrix holds what each API answers to those without rights",
        "extensions/rights/denials",
    ),
    Elsewhere(
        "tests/system/cluster/test_moving_partitions.py",
        "elections and moves need several brokers",
        "cli/leader_election cli/replica_dirs",
    ),
    Elsewhere(
        "tests/unit/cli/test_acls.py",
        "each action of the command works on the same ACLs",
        "cli/acl_decisions cli/acl_source",
    ),
    Elsewhere(
        "tests/unit/cli/test_connect.py",
        "dead letters are those of connectors that the same command has made",
        "cli/connect_redrive",
    ),
    Elsewhere(
        "tests/unit/cli/test_demo.py",
        "the options of the demo say what it runs",
        "cli/demo_run",
    ),
    Elsewhere(
        "tests/unit/cli/test_pipeline.py",
        "the options of a run say what it publishes",
        "cli/pipeline_plan",
    ),
    Elsewhere(
        "tests/unit/cli/test_doctor.py",
        "each planted fault is found, and explained, by the command",
        "cli/cluster_checks cli/finding cli/host_checks cli/machine cli/setting_checks",
    ),
    Elsewhere(
        "tests/unit/console/test_planted_causes.py",
        "groups are looked at, and evidence is fetched, where a cause of lag was planted",
        "console/group_look console/lag_evidence",
    ),
    Elsewhere(
        "tests/unit/console/test_topics.py",
        "a window is a part of a list",
        "console/row_window",
    ),
    Elsewhere(
        "tests/unit/cli/test_lag.py",
        "lag is read for the command that prints it",
        "console/lag_reader",
    ),
    Elsewhere(
        "tests/unit/cli/test_perf_tests.py",
        "the three tools measure one broker, which is filled once",
        "cli/consumer_perf_test cli/end_to_end_latency cli/producer_perf_test",
    ),
    Elsewhere(
        "tests/unit/cli/test_transactions.py",
        "each action of the command works on the same transactions",
        "cli/hanging_transactions",
    ),
    Elsewhere(
        "tests/unit/cli/test_users.py",
        "two commands write the same users",
        "cli/scram_users",
    ),
    Elsewhere(
        "tests/unit/connect/connectors/test_postgres.py",
        "the log is what a database writes",
        "connect/connectors/pgoutput",
    ),
    Elsewhere(
        "tests/unit/connect/test_tolerance.py",
        "letters are those of records that failed",
        "connect/dead_letter_queue",
    ),
    Elsewhere(
        "tests/unit/connect/test_transform.py",
        "the transforms and predicates that come with the contract",
        "connect/field_path connect/predicates",
    ),
    Elsewhere(
        "tests/unit/mirror/test_failover.py",
        "groups go to the other end, and come back",
        "mirror/failback",
    ),
    Elsewhere(
        "tests/unit/mirror/test_replication_policy.py",
        "names, and the lists that choose among them",
        "mirror/name_filter",
    ),
    Elsewhere(
        "tests/unit/pipelines/test_access_log.py",
        "lines are read, as feeds and tasks of Spark read them",
        "pipelines/line_rows pipelines/logged_request",
    ),
    Elsewhere(
        "tests/unit/connect/test_connect_worker.py",
        "the parts of a worker are tested together, against a broker in the process",
        "connect/worker connect/worker_task connect/plugin_thread connect/worker_clients "
        "connect/herder",
    ),
    Elsewhere(
        "tests/unit/connect/test_distributed_herder.py",
        "groups of workers in the process, against a broker there",
        "connect/worker_group",
    ),
    Elsewhere(
        "tests/system/zookeeper/test_commands.py",
        "commands that talk to ZooKeeper, or are it",
        "cli/four_letter_words cli/znode_commands cli/zookeeper cli/zookeeper_shell",
    ),
    Elsewhere(
        "tests/system/zookeeper/test_acls.py",
        "the nodes of ACLs are written to a real ZooKeeper",
        "cli/zookeeper_acls",
    ),
    Elsewhere(
        "tests/system/cluster/test_cluster_command.py",
        "a command that starts processes",
        "cli/cluster",
    ),
    Elsewhere(
        "tests/unit/cli",
        "parts of commands, tested through the command as a person types it",
        "cli/command cli/consumer_group_listing cli/log_dump cli/registry_files "
        "cli/segment_conversion cli/segment_file cli/topic_views",
    ),
    Elsewhere(
        "tests/unit/record/test_legacy.py",
        "messages are seen as batches, and their frames are those of magic 0",
        "record/legacy_batch record/legacy_lz4",
    ),
    Elsewhere(
        "tests/unit/log/test_log_segment.py",
        "a segment is searched by time, and its indexes may lie",
        "log/index_checks log/time_search",
    ),
    Elsewhere(
        "tests/unit/record/test_record_batch.py",
        "batches follow each other in the bytes that one is read from",
        "record/memory_records",
    ),
    Elsewhere(
        "tests/unit/runtime/test_disk.py",
        "one contract holds for each disk",
        "runtime/local_disk runtime/local_file",
    ),
    Elsewhere(
        "tests/unit/server/test_broker_loggers.py",
        "levels are set as a resource of the broker",
        "runtime/log_levels",
    ),
    Elsewhere(
        "tests/unit/site/test_activity.py",
        "activity is taken from a log or made up, and both are published alike",
        "site/log_replay",
    ),
    Elsewhere(
        "tests/unit/record/test_batch_builder_control_records.py",
        "control records are built, and read as they were built",
        "record/control_record",
    ),
    Elsewhere(
        "tests/unit/server/handlers/test_produce_refusals.py",
        "batches are refused with and without a transaction",
        "server/handlers/transactional_produce",
    ),
    Elsewhere(
        "tests/unit/network/test_node_connection.py",
        "a login is a part of opening a connection",
        "network/sasl_login",
    ),
    Elsewhere(
        "tests/unit/spark/test_connections.py",
        "clients are kept by their settings, producers as well",
        "spark/producers",
    ),
    Elsewhere(
        "tests/unit/runtime/test_poller.py",
        "one contract holds for each poller",
        "runtime/portable_pollers",
    ),
    Elsewhere(
        "tests/unit/runtime/test_runtime.py",
        "both clocks, by the runtime that has them",
        "runtime/clock",
    ),
    Elsewhere(
        "tests/unit/security",
        "a mechanism is tested by logins, with its names, keys and tokens",
        "security/jwks security/oauth_login security/short_names security/ssl_principal_mapper",
    ),
    Elsewhere(
        "tests/unit/spark/test_readers_stream.py",
        "lost records and the progress of a group, by a query that reads",
        "spark/data_loss spark/group_progress",
    ),
    Elsewhere(
        "tests/system/test_spark_sink.py",
        "calls that Spark makes, in processes of its own",
        "spark/exactly_once spark/writers",
    ),
    Elsewhere(
        "tests/system/test_streams.py",
        "a topology means something only as queries of Spark",
        "streams/aggregates "
        "streams/naming streams/operations streams/records streams/reset "
        "streams/topology_test streams/windows",
    ),
    Elsewhere(
        "tests/unit/warehouse/test_delta.py",
        "tables are merged and emptied that loads have written",
        "warehouse/delta_maintenance",
    ),
    Elsewhere(
        "tests/system/warehouse/test_warehouse.py",
        "tables are written and read by Spark",
        "warehouse/column_types warehouse/layout warehouse/loads warehouse/table_location "
        "warehouse/warehouse_load",
    ),
    Elsewhere(
        "tests/property/log",
        "the states in which a crash can leave a disk, tried on the log",
        "testing/crash_states",
    ),
    Elsewhere(
        "tests/system",
        "processes of servers, which every test here starts",
        "testing/processes",
    ),
    Elsewhere(
        "tests/unit/replication",
        "the rest of a cluster is the other brokers of a world",
        "replication/cluster_view",
    ),
    Elsewhere(
        "tests/unit/replication/test_fetcher.py",
        "fetchers, by what they copy",
        "replication/fetcher_manager",
    ),
    Elsewhere(
        "tests/unit/replication/test_partition_reads.py",
        "the values of requests, and reads, by partitions that are read",
        "replication/fetch_reads replication/replica_requests",
    ),
    Elsewhere(
        "tests/unit/replication/test_replica_manager_waits.py",
        "requests that wait, by what ends the wait",
        "replication/delayed_produce replication/delayed_fetch replication/delayed_delete_records "
        "replication/append_results replication/delayed_operations",
    ),
    Elsewhere(
        "tests/unit/testing/test_memory_disk.py",
        "files are written, synced and lost through the disk",
        "testing/inodes",
    ),
    Elsewhere(
        "tests/unit/testing/test_in_process_broker.py",
        "the parts of a broker in a test's process are tested through it",
        "testing/live_brokers",
    ),
    Elsewhere(
        "tests/unit/console/test_frame.py",
        "tables and values that the frame reads, and shows to a browser",
        "console/page console/refusals console/console_settings",
    ),
    Elsewhere(
        "tests/unit/console/test_registry_pages.py",
        "a broker's nodes over HTTP, as the console asks for them",
        "extensions/measures/registry_page",
    ),
    Elsewhere("tests/unit/testing/test_runtime.py", "time of the runtime", "testing/virtual_loop"),
    Elsewhere("tests/unit/cli/test_main.py", "a line each", "__main__ version"),
    Elsewhere("tests/unit", "errors that every test has in hand", "errors"),
)


def modules() -> set[str]:
    """Every module as its path below src/ottla without `.py`; a package is its folder."""
    found = {source.path.relative_to(HOUSE).with_suffix("") for source in house()}
    return {str(path.parent if path.name == "__init__" else path) for path in found}


def owner(test: Path, known: set[str]) -> str | None:
    """The module of a unit test: `test_<module>.py` or `test_<module>_<aspect>.py`."""
    folder, name = test.parent.relative_to(UNIT), test.stem.removeprefix("test_")
    while name:
        for module in (name, f"__{name}__"):
            if str(folder / module) in known:
                return str(folder / module)
        name = name.rpartition("_")[0]
    return "." if test.name == "test_ottla.py" else None


def unit_tests() -> list[Path]:
    return sorted(UNIT.rglob("test_*.py"))


def test_each_unit_test_is_named_after_its_module():
    """It stands where its module stands, and one that tests several has a row above."""
    known, rows = modules(), {row.tests for row in ELSEWHERE}

    assert not [
        name
        for test in unit_tests()
        if owner(test, known) is None and (name := str(test.relative_to(ROOT))) not in rows
    ]


def test_each_module_has_its_tests():
    """By a unit test of its name, or in a row that says where and why."""
    known = modules()
    mirrored = {owner(test, known) for test in unit_tests()}
    packages = {str(path.parent.relative_to(HOUSE)) for path in HOUSE.rglob("__init__.py")}
    left = known - mirrored - packages
    patterns = {pattern: row for row in ELSEWHERE for pattern in row.modules.split()}

    assert not [module for module in left if not any(fnmatch(module, p) for p in patterns)]
    assert not [p for p in patterns if not any(fnmatch(module, p) for module in left)]
    assert not [row.tests for row in ELSEWHERE if not (ROOT / row.tests).exists()]
    assert all(row.why for row in ELSEWHERE)
