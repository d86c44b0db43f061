"""Records that were gone before they could be read, and logs that were truncated meanwhile.

In the driver, each batch checks that the logs are still those that were read (KIP-320). After an
unclean election the leader may lack records that were read, and have others at their offsets. So
the epochs of the logs are kept with the offsets, and the leaders are asked where they end. Topics
that were deleted and created again are known by their ids, which are kept as well.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.clients.partition_reader import ReadUpTo
from ottla.errors import KafkaError
from ottla.spark import connections
from ottla.spark.lookup import is_gone

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.clients.partition_reader import Truncation
    from ottla.spark.offsets import Offsets, Reach
    from ottla.spark.options import SourceOptions
    from ottla.structs import TopicPartition

logger = logging.getLogger(__name__)


ADVICE = "set the option failOnDataLoss to false to go on with what is there"


class DataLossError(Exception):
    """Records that the query was to read are no longer there, and failOnDataLoss is true."""


def report_data_loss(what: str, *, fail: bool) -> None:
    """Raise a DataLossError, or warn and let the query continue."""
    if fail:
        raise DataLossError(f"{what}; {ADVICE}")
    logger.warning("%s; going on, as failOnDataLoss is false", what)


def report_others(options: SourceOptions, topics: Sequence[str]) -> None:
    """Report the records read, or to be read, of topics that were created again as lost."""
    if topics:
        report_data_loss(
            f"{', '.join(topics)}: was deleted and created again, and its offsets mean other "
            "records than those that were read",
            fail=options.fail_on_data_loss,
        )


def put_back(
    options: SourceOptions, reach: Reach, earliest: Mapping[TopicPartition, int]
) -> Offsets:
    """The offsets; where a log is not the one that was read, the first offset that differs.

    That is reported as lost data. Where it is unknown the first offset of the log is taken: none is
    skipped. Partitions that are not in `earliest` do not exist, and keep their offsets.
    """
    read = {
        each: ReadUpTo(offset, reach.epochs[each])
        for each, offset in reach.offsets.items()
        if each in reach.epochs and each in earliest
    }
    if not read:
        return reach.offsets
    truncations = _truncations(options, read)
    offsets = dict(reach.offsets)
    for each, found in sorted(truncations.items()):
        report_data_loss(sentence_of(each, read[each], found), fail=options.fail_on_data_loss)
        offsets[each] = earliest[each] if found.offset is None else found.offset
    return offsets


def _truncations(
    options: SourceOptions, read: Mapping[TopicPartition, ReadUpTo]
) -> Mapping[TopicPartition, Truncation]:
    """The answers of the leaders; there is none about partitions that were deleted just now."""
    try:
        return connections.partition_reader(options.client).truncations(read)
    except KafkaError as error:
        if not is_gone(error):
            raise
    if len(read) == 1:
        return {}
    asked = (_truncations(options, {each: position}) for each, position in read.items())
    return {where: found for one in asked for where, found in one.items()}


def sentence_of(where: TopicPartition, read: ReadUpTo, found: Truncation) -> str:
    """The sentence for the user."""
    if found.offset is None:
        differs = "knows nothing of that epoch: the topic was made anew, or records were lost"
    else:
        differs = (
            f"has other records, or none, from offset {found.offset} on: they were lost in an "
            "unclean election"
        )
    return (
        f"{where} is no longer the log that was read up to offset {read.offset} in leader epoch "
        f"{read.epoch}; its leader, in epoch {found.leader_epoch}, {differs}"
    )
