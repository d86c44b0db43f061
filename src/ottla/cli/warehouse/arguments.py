"""The table, topics and start that the arguments of `ottla warehouse` name."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from ottla.cli.command_error import UsageError
from ottla.cli.options import bootstrap_server, key_values, one_of

if TYPE_CHECKING:
    from ottla.warehouse.table_location import Place


def place_of(arguments: Namespace) -> Place:
    """Where the table is."""
    from ottla.warehouse.table_location import Place

    return Place.of(arguments.table, key_values(arguments.storage_option))


def source_options(arguments: Namespace, start: str, option: str) -> dict[str, str]:
    """Brokers, topics and starting offsets, as options of Spark's source."""
    from ottla.pipelines.execution import Start

    topics = (
        {"subscribe": arguments.topic}
        if one_of(arguments, ("--topic", "--topics")) == "--topic"
        else {"subscribePattern": arguments.topics}
    )
    try:
        begin = Start.parse(start).options
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    return {
        "kafka.bootstrap.servers": bootstrap_server(arguments),
        **topics,
        **begin,
        **key_values(arguments.source_option),
    }
