"""What a browser finds in the shop: records, metrics, and a node of the registry."""

from __future__ import annotations

START = 1_795_878_000_000
SERIES = 'kafka_server_brokertopicmetrics_bytesin_total{topic="orders"}'
METRICS = f"# HELP {SERIES.partition('{')[0]} Bytes in.\n{SERIES} 4096\nkafka_p99 NaN\n"
NODE = {
    "path": "/config/topics",
    "data": '{"version": 1, "config": {"cleanup.policy": "compact"}}',
    "is_hidden": True,
    "version": 2,
    "created_ms": START,
    "modified_ms": START,
    "is_ephemeral": False,
    "data_length": 55,
    "children": ["orders", "<script>document.title = 'run'</script>"],
    "number_of_children": 2,
}
HOSTILE = (
    b"<script>document.title = 'run'</script>",
    b'"><img src=x onerror="document.title = \'run\'">',
    b"{{7*7}} \x1b[2J \xe2\x80\xae",
    bytes(range(64)),
    b"\xff\xfe\x00\x01",
    b"x" * 100_000,
    b'{"id": 9007199254740993, "price": 1.10, "big": 23958446825181076828}',
    None,
    b"",
)
STATEMENT = "SELECT value.user, count(*), sum(value.amount) FROM orders GROUP BY 1 ORDER BY 2"
