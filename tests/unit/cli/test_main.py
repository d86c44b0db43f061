"""What `ottla` does before and after a command runs."""

import io
import logging
import shlex
import signal
import subprocess
import sys

import pytest

from ottla.cli.command import COMMANDS, load_command
from ottla.cli.command_error import CommandError
from ottla.cli.main import LineFormatter, set_up_logging
from ottla.cli.terminal import Terminal
from ottla.compiled import is_core_compiled
from ottla.errors import ConfigError, ErrorCode, KafkaError
from ottla.version import __version__


def test_help_lists_every_command(ottla):
    """The overview has a row for each command with its line of help."""
    outcome = ottla("--help")

    assert outcome.status == 0
    assert all(f"  {name} " in outcome.out for name in COMMANDS)
    assert all(load_command(name).help in outcome.out for name in COMMANDS)


def test_no_words_show_the_overview_and_fail(ottla):
    """A call without a command shows the overview, and fails as there is nothing to do."""
    assert ottla().status == 1


@pytest.mark.parametrize("words", [("--version",), ("version",), ("topics", "--version")])
def test_version_is_printed(ottla, words):
    """The version is there as an option, as a command, and as an option of commands."""
    kind = ", with a compiled core" if is_core_compiled() else ""
    assert ottla(*words).out == f"ottla {__version__}{kind}\n"


def test_unknown_command_names_those_that_look_like_it(ottla):
    """A typing mistake is answered with what was meant."""
    outcome = ottla("topic")

    assert outcome.status == 1
    assert outcome.err == "ottla: there is no command 'topic'; did you mean topics?\n"


def test_unknown_option_is_one_line(ottla):
    """A wrong option is no usage page, and it points to the help."""
    outcome = ottla("topics", "--lsit")

    assert outcome.status == 1
    assert outcome.err == (
        "ottla topics: unrecognized arguments: --lsit; did you mean --list? "
        "(see 'ottla topics --help')\n"
    )


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("list",), "unrecognized arguments: list; did you mean --list?"),
        (("--create", "--partitions", "three"), "--partitions takes a number, not 'three'"),
        (("--topic",), "--topic needs a value"),
        (("--log-level", "LOUD"), "--log-level may be DEBUG, INFO, WARN, ERROR, not 'LOUD'"),
    ],
)
def test_mistakes_in_options_are_told_in_the_same_words(ottla, words, line):
    """The option, the value and the rule; not the words of the library that reads them."""
    assert ottla("topics", *words).err == f"ottla topics: {line} (see 'ottla topics --help')\n"


def test_options_are_not_abbreviated(ottla):
    """Kafka's tools take whole names only."""
    assert ottla("topics", "--bootstrap", "localhost:9092").status == 1


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_of_a_command_shows_its_options(ottla, capsys, name):
    """--help is there for each command and succeeds."""
    assert ottla(name, "--help").status == 0
    assert f"usage: ottla {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CommandError("what\nwent wrong"), "what went wrong"),
        (KafkaError(ErrorCode.NOT_CONTROLLER, "no"), "no (NOT_CONTROLLER)"),
        (ConfigError("acks=7: must be 1"), "acks=7: must be 1"),
        (OSError(13, "Permission denied"), "Permission denied"),
        (ZeroDivisionError("x"), "ZeroDivisionError: x (--log-level DEBUG shows where)"),
    ],
)
def test_failure_is_one_line(ottla, clients, error, line):
    """Whatever goes wrong, the user sees a line and a status, and no traceback."""
    clients.client = error

    outcome = ottla("topics", "--list", "--bootstrap-server", "localhost:9092")

    assert outcome.status == 1
    assert outcome.err == f"ottla topics: {line}\n"


def test_debug_shows_the_traceback(ottla, clients):
    """--log-level DEBUG says where an error came from."""
    clients.client = ZeroDivisionError("x")

    words = ("--bootstrap-server", "localhost:9092", "--log-level", "debug")

    assert "Traceback" in ottla("topics", "--list", *words).err


def test_interrupt_has_the_status_of_the_signal(ottla, clients, monkeypatch):
    """Ctrl-C ends a command without a word."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(clients, "admin", interrupt)

    outcome = ottla("topics", "--list", "--bootstrap-server", "localhost:9092")

    assert (outcome.status, outcome.err) == (130, "")


INTERRUPTED_AT = """import sys

class Interrupt:
    wanted = sys.argv.pop(1)

    def find_spec(self, name, *_):
        if name == self.wanted:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
from ottla.__main__ import main
sys.exit(main())
"""


@pytest.mark.parametrize("module", ["ottla.cli.main", "ottla.cli.options", "ottla.cli.topics"])
def test_interrupt_while_a_command_is_loaded_is_quiet(module):
    """A cold start takes a while; only a process of its own makes all of its imports."""
    words = [sys.executable, "-c", INTERRUPTED_AT, module, "topics", "--list"]
    done = subprocess.run(words, check=False, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def test_broken_pipe_is_quiet():
    """When the reader of the output has gone, the status says so and nothing else does."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ottla", "version"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()

    _, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("words", "status"), [("version", 0), ("topics --nothing", 1)])
def test_streams_may_be_closed(closed, words, status):
    """As some supervisors start commands; what would be printed there is not."""
    command = f"exec {shlex.quote(sys.executable)} -m ottla {words} {closed}"
    done = subprocess.run(["/bin/sh", "-c", command], check=False, capture_output=True, timeout=60)

    assert done.returncode == status
    assert b"Traceback" not in done.stderr
    assert bool(done.stdout) is (status == 0 and ">&-" not in closed.replace("2>&-", ""))


def test_commands_import_nothing_heavy():
    """`ottla --help` loads every command, and yet no client, protocol or record code."""
    code = (
        "import sys; from ottla.cli.main import overview; overview();"
        "print([m for m in sys.modules if m.split('.')[:2] in "
        "[['ottla', 'protocol'], ['ottla', 'clients'], ['ottla', 'record'], ['ottla', 'server']]"
        " or m in ('asyncio', 'pyarrow', 'pyspark')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert shown.stdout == b"[]\n"


def test_collector_is_paused_while_a_command_is_imported():
    """What a broker imports is looked at by no collection, now or later: a tenth of its start."""
    program = (
        "import gc, sys\n"
        "from ottla.cli.main import main\n"
        "seen = []\n"
        "gc.callbacks.append(lambda phase, info: seen.append(len(sys.modules)))\n"
        "main(['broker', '--version'])\n"
        "broker = list(sys.modules).index('ottla.server.broker')\n"
        "print([count for count in seen if count <= broker], gc.get_freeze_count() > 10_000)\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[1] == "[] True"


def test_names_of_clients_cannot_write_lines_of_the_log(monkeypatch):
    """Control characters of a message are escaped; a traceback keeps its lines."""
    out = io.StringIO()
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.INFO)
    set_up_logging("INFO", Terminal(err=out))
    logger = logging.getLogger("test.lines")
    logger.info("denied: %s", "x\n[2026-11-26] INFO allowed \x1b[2J\x9b1m\u2028\u202e")
    try:
        raise ValueError("bad")
    except ValueError:
        logger.exception("failed")

    first, second, *traceback = out.getvalue().splitlines()
    assert "denied: x\\x0a[2026-11-26] INFO allowed \\x1b[2J\\x9b1m\\u2028\\u202e (test." in first
    assert " ERROR failed (test.lines)" in second
    assert traceback[-1] == "  ValueError: bad"


@pytest.mark.parametrize("level", ["CRITICAL", "DEBUG"])
def test_logging_of_a_command_ends_with_its_test(level):
    """A command that a test runs in this process changes nothing of what later tests log."""
    terminal = Terminal(err=io.StringIO())
    assert logging.root.level == logging.WARNING
    assert not any(isinstance(each.formatter, LineFormatter) for each in logging.root.handlers)

    set_up_logging(level, terminal)

    assert logging.root.level == getattr(logging, level)
    assert any(isinstance(each.formatter, LineFormatter) for each in logging.root.handlers)


@pytest.mark.parametrize(
    "text",
    [
        "\x1b]0;owned\x07",
        "a\rb",
        "\x9b2J",
        "\u202eabc",
        "[2026-01-01 00:00:00,000] INFO All is well",
    ],
)
@pytest.mark.parametrize("place", ["message", "error", "cause"])
def test_text_of_a_client_is_no_event_and_moves_no_cursor(text, place):
    """Neither in a message nor in a traceback, where it may stand in any line."""
    words = {"message": "name", "error": "name", "cause": "name", place: f"name\n{text}"}
    record = logging.LogRecord("a", logging.ERROR, "", 0, words["message"], (), None)
    try:
        raise ValueError(words["error"]) from OSError(words["cause"])
    except ValueError:
        record.exc_info = sys.exc_info()

    lines = LineFormatter("[%(asctime)s] %(message)s").format(record).split("\n")

    assert all(line.startswith("  ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)
