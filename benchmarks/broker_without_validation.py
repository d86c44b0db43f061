"""`ottla`, with a broker that does not look at the records of a client's batch."""

from __future__ import annotations

import sys

from ottla.cli.main import main
from ottla.log import log_validator
from ottla.record.record import RecordSurvey
from ottla.record.record_batch import RecordBatch


def believe(batch: RecordBatch, **_: object) -> RecordSurvey:
    """What the header says of the records."""
    return RecordSurvey(batch.base_timestamp, batch.max_timestamp, 0, 0)


if __name__ == "__main__":
    log_validator.validate_records = believe  # type: ignore[attr-defined]
    log_validator.INLINE_BYTES = 1 << 30
    log_validator.INLINE_RECORDS = 1 << 30
    sys.exit(main())
