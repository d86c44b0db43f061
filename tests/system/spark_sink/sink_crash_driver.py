"""One run of a streaming query's sink without Spark: a process that may be made to die in it.

    python sink_crash_driver.py WAY SERVERS TOPIC RUN CRASH BATCH TASKS ...

WAY is "sink" for the sink of streams, or "foreachBatch" for what queries in mode update use. TASKS
are the rows of a batch, shared out to tasks: `1,2/3` is two rows in task 0 and one in task 1. The
topic's name is the id of the query as well. CRASH is the moment at which the process kills itself,
in the last batch that is named.

    python sink_crash_driver.py serve

reads such arguments as lines of JSON, has a fork of itself do what each says, and prints with which
status the fork has ended: what all of them import is imported once.
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import traceback
from unittest import mock

import pyarrow as pa
from pyspark.sql.types import BinaryType, StructField, StructType

from ottla.clients.producer.producer import Producer
from ottla.clients.producer.transactions import TransactionCompleter
from ottla.spark import exactly_once
from ottla.spark.decision_log import DecisionLog
from ottla.spark.exactly_once import ExactlyOnceBatches, TaskAttempt
from ottla.spark.sink_options import SinkOptions
from ottla.spark.writers import OttlaStreamWriter

# Readers wait for a decision that a dead driver has left half made: not so long here.
exactly_once.DECISION_TIMEOUT_MS = 500


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def dying(call, *, first):
    """A call that is the last thing of the process, before it is made or after."""

    @functools.wraps(call)
    def instead(*arguments, **keywords):
        if not first:
            call(*arguments, **keywords)
        die()

    return instead


def complete_one_and_die(completer, prepared, *, commit=True):
    whole_call(completer, list(prepared)[:1], commit=commit)
    die()


whole_call = TransactionCompleter.complete
MOMENTS = {
    "task has written": (Producer, "prepare_transaction", True),
    "task is prepared": (Producer, "prepare_transaction", False),
    "driver has all tasks": (exactly_once.BatchCommitter, "commit", True),
    "driver is deciding": (Producer, "commit_transaction", True),
    "driver has decided": (DecisionLog, "record", False),
    "some are committed": (TransactionCompleter, "complete", None),
    "all are committed": (TransactionCompleter, "complete", False),
    "Spark has not noted it": (exactly_once.BatchCommitter, "commit", False),
}


def arm(moment):
    owner, name, first = MOMENTS[moment]
    call = complete_one_and_die if first is None else dying(getattr(owner, name), first=first)
    setattr(owner, name, call)


class Batch:
    """What `foreachBatch` is given, as far as it is used; its tasks run one after the other."""

    schema = StructType([StructField("value", BinaryType())])

    def __init__(self, query_id, run, batch_id, tasks):
        self.attempts = [
            TaskAttempt(query_id, run, batch_id, task, 0) for task in range(len(tasks.split("/")))
        ]
        self.rows = tasks.split("/")

    def mapInArrow(self, function, schema):
        self.results = []
        for attempt, rows in zip(self.attempts, self.rows, strict=True):
            values = pa.array([row.encode() for row in rows.split(",") if row], pa.binary())
            with mock.patch.object(TaskAttempt, "current", lambda attempt=attempt: attempt):
                batches = function(iter([pa.record_batch([values], ["value"])]))
                self.results += [(each.column(0)[0].as_py(),) for each in batches]
        return self

    def collect(self):
        return self.results


def run_sink(options, batch, batch_id):
    """What Spark does with the sink: its writers write and its committer commits."""
    writer = OttlaStreamWriter(options)
    messages = []
    batch.mapInArrow(lambda rows: messages.append(writer.write(rows)) or [], "")
    writer.commit(messages, batch_id)


def main(way, servers, topic, run, crash, *batches):
    options = SinkOptions.for_stream({"kafka.bootstrap.servers": servers, "topic": topic})
    pairs = list(zip(batches[::2], batches[1::2], strict=True))
    for number, (batch_id, tasks) in enumerate(pairs, 1):
        if crash in MOMENTS and number == len(pairs):
            arm(crash)
        batch = Batch(topic, run, int(batch_id), tasks)
        if way == "foreachBatch":
            ExactlyOnceBatches(options).write(batch, int(batch_id))
        else:
            run_sink(options, batch, int(batch_id))


def run_fork(arguments):
    """Never returns: a fork must not go on as if it were the server."""
    try:
        main(*arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def serve():
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run_fork(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve() if sys.argv[1:] == ["serve"] else main(*sys.argv[1:])
