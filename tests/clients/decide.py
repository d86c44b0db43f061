"""Writes into the log of a broker that is down that its one open transaction has been decided.

This is what a coordinator leaves that dies between the two phases of a commit or an abort.
"""

import asyncio
import sys

from ottla.config.broker_config import BrokerConfig
from ottla.config.topic_config import TopicConfig
from ottla.coordinator.transaction.transaction_loader import TransactionLoader
from ottla.coordinator.transaction.transaction_records import transaction_batch
from ottla.log.log_manager import LogManager
from ottla.runtime import real_runtime
from ottla.runtime.scheduler import at_once
from ottla.structs import TopicPartition


async def decide(data_dir, outcome):
    runtime = real_runtime(asyncio.get_running_loop())
    config = BrokerConfig.parse({"log.dirs": data_dir})
    manager = LogManager(runtime, config, lambda topic: TopicConfig.of(config, {}))
    manager.acquire()
    await manager.startup()
    log = manager.get_log(TopicPartition("__transaction_state", 0))
    data = log.read(0, 1 << 20, max_offset=log.log_end_offset, min_one_message=True)
    loader = TransactionLoader(0, iter([memoryview(data.records.read())]))
    loader.step()
    ((transactional_id, ongoing),) = at_once(loader.transactions()).items()
    now_ms = runtime.clock.now_ms()
    ended = ongoing.ended(commit=outcome == "commit", now_ms=now_ms)
    batch = bytearray(transaction_batch(transactional_id, ended, now_ms))
    log.append_as_leader(memoryview(batch), log.leader_epoch_cache.latest_epoch, now_ms=now_ms)
    await manager.shutdown()
    await runtime.close()


if __name__ == "__main__":
    asyncio.run(decide(*sys.argv[1:]))
