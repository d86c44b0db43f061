"""Each module of the broker is on the page that lists the core, or in the table of the others."""

from __future__ import annotations

import re
from fnmatch import fnmatch

from sources import ROOT, Source, house

PAGE = ROOT / "docs" / "internals" / "reading.md"
ROOMS = {
    "runtime",
    "network",
    "security",
    "record",
    "log",
    "registry",
    "replication",
    "coordinator",
    "controller",
    "server",
    "metrics",
}
CORE_LINES = 36_000
OTHERS = {
    "coordinator/group/consumer/*": "groups of the newer protocol (KIP-848)",
    "coordinator/group/member_answers": "answers to very many members, a slice at a time",
    "coordinator/group/registry_offsets": "offsets of clients of before 0.8.1, in the registry",
    "coordinator/transaction/transaction_partitions": "a set, encoded as it grows",
    "coordinator/transaction/transaction_records": "the bytes of ids, which are Kafka's",
    "coordinator/group/topic_drops": "what is forgotten of deleted topics, a slice at a time",
    "log/loading_progress": "how far a long start is, for those who read the log of the broker",
    "log/throttler": "the speed of cleaners and of moves, which extensions have",
    "log/producer_snapshot": "the bytes of a file, which Kafka has made too",
    "metrics/*": "sensors and their forms, for measures of a broker and for clients",
    "runtime/http_calls": "calls over HTTP of tools, and for the keys of tokens",
    "network/descriptors": "how many files a process may open, and which are not for clients",
    "network/held_bytes": "limits of what clients hold that stop in the middle",
    "network/refusal_log": "fewer lines about clients that do not get in",
    "network/sasl_login": "the client's side of a login, where settings have one",
    "network/traffic": "connections and bytes of listeners, for measures",
    "network/broker_tls": "TLS of the listeners of a broker, where it has some",
    "network/tls_context": "what OpenSSL gets, of settings and files that change",
    "network/tls_transport": "TLS on a socket, where a listener has it",
    "network/tls_input": "records of TLS on their way to OpenSSL, some at a time",
    "network/tls_stores": "the formats of keys and certificates, for looking up",
    "record/col*": "records as columns, for Spark",
    "record/consumer_record": "records with their place, for consumers",
    "record/conversion": "formats of before 0.11, for clients that are as old",
    "record/legacy_*": "message sets of before 0.11: as batches, their compression and layout",
    "record/murmur": "the hash of the producer's partitioner",
    "record/native_*": "the compiled twins of the kernel, of columns, rows and compaction",
    "record/plain_compaction": "the loop of compaction, for the cleaner",
    "record/rows": "rows of Spark as records",
    "registry/acl_store": "ACLs as nodes, for rights and for tools",
    "registry/node_watch": "watches of nodes in ZooKeeper",
    "registry/shown_node": "what people see of a node, for measures and for the console",
    "registry/znodes": "the texts of nodes, which are Kafka's, for looking up",
    "registry/tree_snapshot": "the bytes of a file, encoded as the tree changes",
    "registry/zookeeper*": "the tree in ZooKeeper, where a cluster has one",
    "replication/absences": "answers of a broker that did not run for a while",
    "runtime/app_loop": "the loop of a program, which its clients share",
    "runtime/busy_time": "for how long a thread is busy, for measures",
    "runtime/child_process": "children that end with their parents, for commands",
    "runtime/free_port": "a port for servers that choose one",
    "runtime/io_thread": "the thread of a client's loop",
    "runtime/java": "the program of Spark and ZooKeeper",
    "runtime/log_levels": "levels of loggers, which operators change",
    "runtime/own_folder": "temporary folders of commands",
    "runtime/own_thread": "a thread for one call that may hang",
    "runtime/portable_pollers": "the pollers of systems without epoll",
    "runtime/regular_file": "files that settings name, read whole, for keys and for connectors",
    "runtime/served_sockets": "a broker on the loop of another program",
    "server/broker_settings": "the parts that follow a setting which changes, for looking up",
    "server/slice_context": "how handlers see a slice of a large request",
    "server/config_entries": "settings as DescribeConfigs shows them",
    "server/lost_logs": "partitions whose logs a disk has lost, which others lead first",
    "server/logins": "frames before the first request, where a listener has SASL",
    "server/order_messages": "the orders of a controller as messages, for looking up",
    "security/*": "words of certificates, rights, tokens and logins, which clients and tools share",
}
"""By the place of the module, what it is for, for those who look it up."""


def core() -> set[str]:
    """The modules that the page names; handlers are for looking up."""
    _, _, days = PAGE.read_text(encoding="utf-8").partition("## Two days: a record's way")
    links = re.findall(r"\]\(\.\./\.\./(src/ottla/[\w/]+\.py)\)", days)
    return {link for link in links if "/handlers/" not in link}


def modules() -> list[Source]:
    """The modules of the broker; handlers, messages and settings are for looking up."""
    return [
        source
        for source in house()
        if source.room in ROOMS
        and source.path.name != "__init__.py"
        and source.path.parent.name != "handlers"
    ]


def others() -> set[str]:
    """The modules that the page does not name."""
    left = {source.name for source in modules()} - core()
    return {name.removeprefix("src/ottla/").removesuffix(".py") for name in left}


def test_core_is_bounded():
    """A reader has been promised so many lines; a file for each noun makes them no more."""
    assert sum(len((ROOT / name).read_text().splitlines()) for name in core()) <= CORE_LINES


def test_every_module_of_the_broker_is_core_or_has_a_reason_not_to_be():
    """Handlers, messages and settings are for looking up: each family has a file."""
    assert not [name for name in others() if not any(fnmatch(name, each) for each in OTHERS)]
    assert not [each for each in OTHERS if not any(fnmatch(name, each) for name in others())]
