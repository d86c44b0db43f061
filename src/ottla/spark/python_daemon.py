"""Spark's Python daemon, which imports what its workers need before it forks them.

A session whose setting `spark.python.daemon.module` names this module starts it in the place of
`pyspark.daemon`, which imports nothing: each of its workers imports PyArrow and the clients by
itself, and after every task looks for garbage among all that PySpark has imported. Workers that
are forked here have their modules at once, and the collector does not see them. Both know the
worker by its module, the only argument.
"""

from __future__ import annotations

import gc
import os
from importlib import import_module
from typing import Final

IMPORTS: Final = (
    "pyspark.worker",
    "pyarrow",
    "ottla.clients.admin.admin",
    "ottla.clients.partition_reader",
    "ottla.clients.producer.producer",
    "ottla.record.columnar",
    "ottla.spark.exactly_once",
    "ottla.spark.lookup",
    "ottla.spark.readers",
    "ottla.spark.row_writer",
    "ottla.spark.writers",
)
"""What the tasks of the source and of the sink import; nothing here starts a thread of Python."""


def prepare() -> None:
    """Import the modules, and exempt all that is there from the garbage collector."""
    # Its threads would not outlive the fork, and Spark's tasks share the cores anyway.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    for name in IMPORTS:
        import_module(name)
    gc.collect()
    gc.freeze()


def main() -> None:
    """Serve workers until Spark closes the standard input."""
    from pyspark.daemon import manager

    prepare()
    manager()


if __name__ == "__main__":
    main()
