"""`ottla dump-log`: the options, and which dump a file gets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli import index_dump, state_dump
from ottla.cli.command import Command
from ottla.cli.command_error import CommandError
from ottla.cli.log_dump import LogDump, decoding_parser, parse_offsets
from ottla.cli.options import add_flag, add_integer, require
from ottla.cli.positional_dump import PositionalDump
from ottla.cli.segment_conversion import SegmentConversion

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Callable

    from ottla.cli.log_dump import RecordParser
    from ottla.cli.terminal import Terminal

    Dump = Callable[[Path, Namespace, Terminal], bool]

KAFKA_0_7: Final = "0.7"
DECODER_HELP: Final = (
    "string (default), bytes (in hexadecimal), short, integer, long, float, double"
)


class DumpLogCommand(Command):
    """Shows segments, indexes, snapshots and checkpoints of a partition, file by file."""

    name = "dump-log"
    examples = (
        "ottla dump-log --files /tmp/ottla-logs/test-0/00000000000000000000.log --print-data-log",
        "ottla dump-log --files 00000000000000000000.index --index-sanity-check",
        "ottla dump-log --files 00000000000.kafka --format 0.7 --convert-to /tmp/ottla-logs/test-0",
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--files",
            metavar="FILE,FILE",
            help="Required. Files that end in .log, .index, .timeindex, .txnindex or .snapshot, "
            "or are called leader-epoch-checkpoint; .kafka with --format 0.7.",
        )
        add_flag(
            parser,
            "--print-data-log",
            "Show keys and values of the records of a .log file; any decoder implies it.",
        )
        add_flag(
            parser,
            "--deep-iteration",
            "Show the records of each batch; --print-data-log implies it.",
        )
        add_flag(
            parser,
            "--index-sanity-check",
            "Only say whether an index would pass the check that the broker makes at start.",
        )
        add_flag(
            parser,
            "--verify-index-only",
            "Compare an index with its .log file without showing its entries.",
        )
        add_integer(
            parser,
            "--max-message-size",
            "BYTES",
            "The most bytes that a batch may have once it is decompressed.",
            least=1,
        )
        parser.add_argument(
            "--format",
            metavar="VERSION",
            choices=(KAFKA_0_7,),
            help="0.7: the files are segments of Kafka 0.7, whose messages have positions in place "
            "of offsets. Messages since 0.8 name their format themselves.",
        )
        parser.add_argument(
            "--convert-to",
            metavar="DIR",
            help="Also write the messages of old segments, in today's format, as a segment in this "
            "directory. Those of 0.7 are numbered from 0 over all the files. A broker takes over "
            "a directory of log.dirs that was filled so when it is started with `ottla broker "
            "--adopt-log-dirs`.",
        )
        _add_decoders(parser)

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        require(arguments, "--files")
        sound = True
        arguments.conversion = segment_conversion(arguments)
        for name in arguments.files.split(","):
            path = Path(name.strip())
            if not path.exists():
                raise CommandError(f"cannot read {path}: No such file or directory")
            terminal.print(f"Dumping {path}")
            dump = dump_for(path, is_positional=arguments.format == KAFKA_0_7)
            if dump is None:
                terminal.note(f"Ignoring unknown file {path}")
                continue
            try:
                sound &= dump(path, arguments, terminal)
            except OSError as error:
                raise CommandError(f"cannot read {path}: {error.strerror}") from error
        return 0 if sound else 1


def _add_decoders(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--key-decoder-class",
        metavar="NAME",
        nargs="?",
        const="string",
        help=f"How keys are shown: {DECODER_HELP}.",
    )
    parser.add_argument(
        "--value-decoder-class",
        metavar="NAME",
        nargs="?",
        const="string",
        help=f"How values are shown: {DECODER_HELP}.",
    )
    add_flag(parser, "--offsets-decoder", "Show the records as those of __consumer_offsets.")


def record_parser(arguments: Namespace) -> RecordParser | None:
    """The parser of keys and values; None where neither is asked for."""
    if arguments.offsets_decoder:
        return parse_offsets
    key, value = arguments.key_decoder_class, arguments.value_decoder_class
    if arguments.print_data_log or key or value:
        return decoding_parser(key or "string", value or "string")
    return None


def segment_conversion(arguments: Namespace) -> SegmentConversion | None:
    """The conversion that --convert-to asks for; None without it."""
    return SegmentConversion(Path(arguments.convert_to)) if arguments.convert_to else None


def dump_for(path: Path, *, is_positional: bool) -> Dump | None:
    """The dump for a file of this name; it returns whether all was sound."""
    if is_positional:
        return _dump_positional if path.suffix == ".kafka" else None
    if path.name == "leader-epoch-checkpoint":
        return state_dump.dump_leader_epochs
    dumps: dict[str, Dump] = {
        ".log": _dump_log,
        ".index": index_dump.dump_offset_index,
        ".timeindex": index_dump.dump_time_index,
        ".txnindex": state_dump.dump_transaction_index,
        ".snapshot": state_dump.dump_producer_snapshot,
    }
    return dumps.get(path.suffix)


def _dump_log(path: Path, arguments: Namespace, terminal: Terminal) -> bool:
    parser = record_parser(arguments)
    deep = arguments.deep_iteration or parser is not None
    dump = LogDump(path, parser, arguments.max_message_size, terminal, arguments.conversion)
    return dump.run(deep=deep)


def _dump_positional(path: Path, arguments: Namespace, terminal: Terminal) -> bool:
    return PositionalDump(path, record_parser(arguments), arguments.conversion, terminal).run()
