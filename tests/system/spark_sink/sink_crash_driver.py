"""One run of a streaming query's sink without Spark: a process that may be made to die in it.

    python sink_crash_driver.py SERVERS TOPIC RUN CRASH BATCH TASKS ...

TASKS are the rows of a batch, shared out to tasks: `1,2/3` is two rows in task 0 and one in task 1.
The topic's name is the id of the query as well. CRASH is the moment at which the process kills
itself, in the last batch that is named.
"""

from __future__ import annotations

import functools
import os
import signal
import sys

import pyarrow as pa

from ottla.clients.producer.prepared_transactions import TransactionCompleter
from ottla.clients.producer.producer import Producer
from ottla.spark import connections, exactly_once
from ottla.spark.decisions import DecisionLog
from ottla.spark.sink_options import SinkOptions
from ottla.spark.task_attempt import TaskAttempt

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


def run_batch(options, run, batch_id, tasks):
    messages = []
    for task, rows in enumerate(tasks.split("/")):
        values = pa.array([row.encode() for row in rows.split(",") if row], pa.binary())
        attempt = TaskAttempt(options.topic, run, batch_id, task, 0)
        batches = iter([pa.record_batch([values], ["value"])])
        messages.append(exactly_once.write_prepared(options, attempt, batches))
    committer = connections.batch_committer(messages[0].sink_id, options.client)
    committer.commit(batch_id, messages)


def main(servers, topic, run, crash, *batches):
    options = SinkOptions.for_stream({"kafka.bootstrap.servers": servers, "topic": topic})
    pairs = list(zip(batches[::2], batches[1::2], strict=True))
    for number, (batch_id, tasks) in enumerate(pairs, 1):
        if crash in MOMENTS and number == len(pairs):
            arm(crash)
        run_batch(options, run, int(batch_id), tasks)


if __name__ == "__main__":
    main(*sys.argv[1:])
