"""What auto.offset.reset stands for; `none` is in no table, as the application decides then."""

from __future__ import annotations

from ottla.clients.topic_offsets import OffsetSpec

RESETS = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}
