"""Whatever frames come to the listener of the first design, its files hold the valid messages.

The long run is in tests/soak.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator

import pytest
from breadth import examples
from counted_calls import calls
from first_design_fuzzer import SETTINGS, FirstDesignFuzzer, FirstDesignWatch, entry
from request_fuzzer import MEMORY_BYTES, MEMORY_FACTOR, memory_of, steps_measured

from ottla.security.principal import ANONYMOUS
from ottla.testing import InProcessBroker

FRAMES = 400
SIZES = [0, 1, 1, 3, 300]
MOST_CALLS = 150_000
"""Of functions in one step of the loop: some 50 ms, where nothing else runs."""


@pytest.fixture
def watch() -> Iterator[FirstDesignWatch]:
    """The listener of a new broker."""
    logging.disable(logging.CRITICAL)
    with InProcessBroker(**SETTINGS) as broker:
        yield FirstDesignWatch(broker)
    logging.disable(logging.NOTSET)


def test_files_hold_the_valid_message_sets_and_nothing_else(watch):
    """In their order; each request ends once, and the directory stays in service."""
    fuzzer = FirstDesignFuzzer(1, SIZES)
    for _ in range(examples(FRAMES)):
        watch.send(fuzzer.frame(), ANONYMOUS)

    assert len(fuzzer.expected) > 3
    found = {place: watch.contents(*place) for place in fuzzer.expected}
    assert found == fuzzer.expected
    assert not watch.listener._logs.log_dir.is_offline


def large_frames() -> dict[str, bytes]:
    """Requests with as many parts, or as many messages, as they may have."""
    part = b"\0\1t\0\0\0\0"
    tiny = entry(b"") * 30_000
    large = entry(b"x" * 10_000) * 400
    sets = (part + struct.pack(">i", 9) + entry(b"")) * 1000
    places = (part + struct.pack(">qi", 0, 2**31 - 1)) * 1000
    return {
        "tiny messages": b"\0\0" + part + struct.pack(">i", len(tiny)) + tiny,
        "large messages": b"\0\0" + part + struct.pack(">i", len(large)) + large,
        "sets": b"\0\3" + struct.pack(">h", 1000) + sets,
        "places": b"\0\2" + struct.pack(">h", 1000) + places,
        "too many places": b"\0\2" + struct.pack(">h", 32767) + places,
    }


@pytest.mark.parametrize("name", large_frames())
def test_no_frame_holds_the_loop_or_the_memory_for_long(watch, name):
    """The functions that a step calls are counted, as seconds depend on others."""
    frame = large_frames()[name]
    watch.send(b"\0\0" + b"\0\1t\0\0\0\0" + struct.pack(">i", 9) + entry(b""), ANONYMOUS)
    with steps_measured(watch, calls):
        watch.send(frame, ANONYMOUS)
    assert watch.worst < MOST_CALLS
    held = memory_of(lambda: watch.send(frame, ANONYMOUS))
    assert held <= MEMORY_FACTOR * len(frame) + MEMORY_BYTES
