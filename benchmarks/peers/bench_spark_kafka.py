"""Ottla's Spark source and sink beside Spark's own for Kafka: the same topic of the same broker.

Both run in one session on local[2], in turns; the broker shares the cores.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.bench_spark import (
    PARTITIONS,
    RECORDS,
    VALUE_SIZE,
    fill,
    into_noop,
    measured,
    spark_alone,
    write,
)
from benchmarks.peers.downloads import jar_settings
from ottla import Admin, NewTopic
from ottla.pipelines.runner import spark_session
from ottla.testing.processes import BrokerProcess

FORMATS = ("kafka", "ottla")


def report(what: str, rates: dict[str, float]) -> None:
    ratio = rates["ottla"] / rates["kafka"]
    print(
        f"{what:<28} Spark's own {rates['kafka']:>11,.0f} rows/s   "
        f"ottla {rates['ottla']:>11,.0f} rows/s   x {ratio:.1f}",
        flush=True,
    )


def main() -> None:
    print(f"{RECORDS:,} records of {VALUE_SIZE} B in {PARTITIONS} partitions, local[2]")
    with tempfile.TemporaryDirectory() as folder:
        broker = BrokerProcess(Path(folder) / "data").start()
        log = Path(folder) / "spark.log"
        spark = spark_session("bench", settings=jar_settings("spark-kafka"), log_path=log)
        servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        try:
            fill(broker.bootstrap_servers, "bench", "none")
            rates = {}
            for name in FORMATS:
                batch = spark.read.format(name).options(**servers, subscribe="bench").load()
                rates[name] = measured(lambda batch=batch: into_noop(batch))
            report("read into noop", rates)
            with Admin(broker.bootstrap_servers) as admin:
                admin.create_topics([NewTopic("written", PARTITIONS)])
            options = {**servers, "topic": "written"}
            for name in FORMATS:
                alone = spark_alone(spark)
                rates[name] = measured(lambda name=name, rows=alone: write(rows, name, options))
            report("write JVM rows", rates)
        finally:
            spark.stop()
            broker.stop()


if __name__ == "__main__":
    main()
