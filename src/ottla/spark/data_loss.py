"""What is done about records that were gone before they could be read."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)

ADVICE = "set the option failOnDataLoss to false to go on with what is there"


class DataLossError(Exception):
    """Records that the query was to read are no longer there, and failOnDataLoss is true."""


def report_data_loss(what: str, *, fail: bool) -> None:
    """Raise a DataLossError, or warn and let the query continue."""
    if fail:
        raise DataLossError(f"{what}; {ADVICE}")
    logger.warning("%s; going on, as failOnDataLoss is false", what)
