"""`ottla`: finds the command, reads its options, runs it, and turns failures into one line."""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from types import FrameType

from ottla.cli.command import COMMAND_GROUPS, COMMANDS, Command, load_command
from ottla.cli.command_error import CommandError, UsageError, missing_package
from ottla.cli.kafka_scripts import without_script_name
from ottla.cli.options import did_you_mean, option_parser
from ottla.cli.terminal import TURNING, Terminal
from ottla.compiled import is_core_compiled
from ottla.errors import ConfigError, KafkaError
from ottla.version import __version__

logger = logging.getLogger(__name__)

EXIT_FAILED = 1
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_BROKEN_PIPE = 128 + signal.SIGPIPE
LOG_FORMAT = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"


CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    code: f"\\u{code:04x}" for code in map(ord, TURNING)
}
CONTROLS_IN_TRACE = {code: escape for code, escape in CONTROLS.items() if code != ord("\n")}


class LineFormatter(logging.Formatter):
    """Keeps a message in one line, and the name of a client from acting on a terminal.

    Control characters, and those that turn text round, are escaped. The lines of a traceback are
    indented: the text of an error cannot pass for an event of its own.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        record.message = record.message.translate(CONTROLS)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return super().format(record).translate(CONTROLS_IN_TRACE).replace("\n", "\n  ")


def main(argv: Sequence[str] | None = None, terminal: Terminal | None = None) -> int:
    """Run `ottla` with these arguments and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    loading = collector_paused() if terminal is None else nullcontext()
    if terminal is None:
        terminal = Terminal()
        signal.signal(signal.SIGTERM, _stop)
    if not words or words[0] in ("-h", "--help", "help"):
        terminal.out.write(overview())
        return 0 if words else EXIT_FAILED
    given, words = words, without_script_name(words)
    is_help_unasked = len(given) == 1 and words[-1] == "--help"
    if words[0] == "--version":
        words[0] = "version"
    if words[0] not in COMMANDS:
        terminal.note(unknown_command(words[0]))
        return EXIT_FAILED
    try:
        with loading:
            command = load_command(words[0])
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    status = run_command(command, words[1:], terminal)
    return EXIT_FAILED if is_help_unasked else status


@contextmanager
def collector_paused() -> Iterator[None]:
    """Import without the collector: a tenth of a start, and it finds nothing, as all stays."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


def run_command(command: Command, words: Sequence[str], terminal: Terminal) -> int:
    """Run one command; every failure becomes one line on stderr and a status."""
    try:
        status = _run(command, words, terminal)
        terminal.out.flush()
        return status
    except BrokenPipeError:
        # The reader of our output has closed the pipe. Nothing may be written to it again, not
        # even by the interpreter's flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE


def _run(command: Command, words: Sequence[str], terminal: Terminal) -> int:
    log_level = command.default_log_level
    try:
        arguments = option_parser(command).parse_args(words)
        if arguments.version:
            terminal.print(version_line())
            return 0
        log_level = arguments.log_level
        set_up_logging(log_level, terminal)
        return command.run(arguments, terminal)
    except BrokenPipeError:
        raise
    except SystemExit as stop:  # --help, and SIGTERM
        return stop.code if isinstance(stop.code, int) else EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        if log_level == "DEBUG":
            logger.debug("ottla %s failed", command.name, exc_info=error)
        terminal.note(f"ottla {command.name}: {failure(error, command)}")
        return EXIT_FAILED


def failure(error: Exception, command: Command) -> str:
    """The error as one line for a user."""
    if isinstance(error, UsageError):
        text = f"{error} (see 'ottla {command.name} --help')"
    elif isinstance(error, CommandError):
        text = str(error)
    elif isinstance(error, ConfigError):
        text = error.message
    elif isinstance(error, KafkaError):
        text = f"{error.message} ({error.error.name})"
    elif isinstance(error, ModuleNotFoundError) and error.name:
        text = missing_package(error.name)
    elif isinstance(error, OSError):
        # Python's number of the error says nothing to a user.
        place = f"{error.filename}: " if error.filename else ""
        text = f"{place}{error.strerror or error}"
    else:
        text = f"{type(error).__name__}: {error} (--log-level DEBUG shows where)"
    return " ".join(text.split())


def overview() -> str:
    """The list of commands that `ottla --help` prints."""
    width = max(map(len, COMMANDS)) + 2
    parts = [
        f"{title}:\n" + "".join(f"  {name:<{width}}{entry.help}\n" for name, entry in group.items())
        for title, group in COMMAND_GROUPS.items()
    ]
    return (
        "usage: ottla <command> [options]\n\n" + "\n".join(parts) + "\n"
        "'ottla <command> --help' lists the options of a command; 'ottla --version' the version.\n"
    )


def unknown_command(word: str) -> str:
    """The line for a command that does not exist, with those that look like it."""
    hint = did_you_mean(word, COMMANDS) or "; 'ottla --help' lists them all."
    return f"ottla: there is no command '{word}'{hint}"


def set_up_logging(level: str, terminal: Terminal) -> None:
    """Log to stderr, a line per event, as Kafka's log4j set-up writes it."""
    logging.addLevelName(logging.WARNING, "WARN")
    handler = logging.StreamHandler(terminal.err)
    handler.setFormatter(LineFormatter(LOG_FORMAT))
    logging.basicConfig(level=level, handlers=[handler], force=True)


def _stop(signum: int, _frame: FrameType | None) -> None:
    """SIGTERM ends a command the way Ctrl-C does: through its `finally` clauses."""
    raise SystemExit(128 + signum)


def version_line() -> str:
    """The version of Ottla, and whether its core is compiled."""
    return f"ottla {__version__}{', with a compiled core' if is_core_compiled() else ''}"


class VersionCommand(Command):
    """Prints the version of Ottla."""

    name = "version"

    def add_arguments(self, parser: ArgumentParser) -> None:
        pass

    def run(self, arguments: Namespace, terminal: Terminal) -> int:
        terminal.print(version_line())
        return 0


if __name__ == "__main__":
    sys.exit(main())
