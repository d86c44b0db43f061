"""The process of a broker: its signals, its threads, and how garbage is collected in it."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import Callable, Sequence
from functools import partial

from ottla.config.broker_config import BrokerConfig
from ottla.runtime import FullCollections, real_runtime
from ottla.runtime.serving_loop import ServingLoop, open_poller
from ottla.server.broker import Broker
from ottla.structs import EndPoint
from ottla.version import __version__

logger = logging.getLogger(__name__)


OnReady = Callable[[Sequence[EndPoint]], object]
"""Called with the listeners of a broker that takes requests."""


async def serve(config: BrokerConfig, on_ready: OnReady | None = None) -> int:
    """Run a broker on this loop until SIGTERM or SIGINT; 1 if its log directories failed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runtime = real_runtime(loop)
    began_ms = runtime.clock.monotonic_ms()
    broker = Broker(config, runtime)
    broker.log_dir_failures.on_fatal = stop.set
    starting, stopped = asyncio.create_task(broker.startup()), asyncio.create_task(stop.wait())
    await asyncio.wait((starting, stopped), return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # it may wait for ZooKeeper, or for other brokers
        logger.info("the broker stops before it has started")
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return 1 if broker.log_dir_failures.is_fatal else 0
    await starting
    # Objects made by the start live as long as the process: the collector need not look at them
    # again.
    gc.collect()
    gc.freeze()
    gc.callbacks.append(FullCollections().on_collection)
    took_ms = runtime.clock.monotonic_ms() - began_ms
    listeners = ",".join(map(str, broker.end_points))
    print(
        f"Ottla {__version__}: broker {broker.broker_id} is ready at {listeners} ({took_ms} ms)",
        flush=True,
    )
    if on_ready is not None:
        on_ready(broker.end_points)
    await stopped
    logger.info("broker %d is stopping", broker.broker_id)
    await broker.shutdown()
    return 1 if broker.log_dir_failures.is_fatal else 0


def new_loop(config: BrokerConfig) -> ServingLoop:
    """The loop for a broker of these settings; ConfigError without the poller that they name."""
    return ServingLoop(open_poller(config.ottla_network_poller), config.ottla_network_spin_us)


def run_broker(config: BrokerConfig, on_ready: OnReady | None = None) -> int:
    """Run a broker in this process until a signal stops it; returns the exit status."""
    with asyncio.Runner(loop_factory=partial(new_loop, config)) as runner:
        return runner.run(serve(config, on_ready))
