"""Addresses, and the check that somebody listens there."""

import json
import os
import socket
import sys
import threading
from io import BytesIO, StringIO, TextIOWrapper

import pytest

from ottla.cli import terminal as terminal_module
from ottla.cli.command_error import CommandError
from ottla.cli.terminal import Terminal, check_reachable, host_and_port, without_servers
from ottla.runtime.free_port import free_port


def test_refused_connection_is_one_clear_line():
    """Each address that was tried is named with the reason."""
    port = free_port("127.0.0.1")

    with pytest.raises(CommandError, match=f"127.0.0.1:{port} .*refused"):
        check_reachable(f"127.0.0.1:{port}")


def test_one_listening_server_is_enough():
    """The first address may be down."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        check_reachable(f"127.0.0.1:{free_port('127.0.0.1')},127.0.0.1:{listener.getsockname()[1]}")


@pytest.mark.parametrize(
    "server",
    [
        "localhost",
        ":9092",
        "localhost:x",
        "localhost:70000",
        "a:\u00b2",
        f"a:{'9' * 5000}",
        "a:1_0",
    ],
)
def test_address_without_host_or_port_is_refused(server):
    """An address is a host and a port."""
    with pytest.raises(CommandError, match="host:port"):
        host_and_port(server)


def test_ipv6_address_stands_in_brackets():
    """The port is behind the last colon."""
    assert host_and_port("[::1]:9092") == ("::1", 9092)


def test_servers_of_a_property_file_do_not_win():
    """Those of the command line do."""
    settings = {"bootstrap.servers": "x:1", "linger.ms": "5"}

    assert without_servers(settings) == {"linger.ms": "5"}


class Screen(StringIO):
    """Standard error on a screen; `written` is set by each line."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.written.set()


def test_person_is_told_what_is_waited_for(monkeypatch):
    """Silence on a terminal looks like a hang."""
    monkeypatch.setattr(terminal_module, "SILENCE_S", 0.0)
    err = Screen()

    with Terminal(err=err).waiting_for("localhost:9092"):
        assert err.written.wait(60)

    assert err.getvalue() == "waiting for localhost:9092 ...\n"


@pytest.mark.parametrize("err", [Screen(), StringIO()])
def test_nothing_is_said_about_a_wait_that_is_over(monkeypatch, err):
    """Nothing is said once something was printed, nor in a script."""
    out = StringIO()
    terminal = Terminal(out=out, err=err)

    with terminal.waiting_for("localhost:9092"):
        silence = terminal._silence
        terminal.print("here")
        assert silence is None or silence.finished.is_set()

    assert (out.getvalue(), err.getvalue()) == ("here\n", "")


def test_pipe_whose_reader_has_gone_is_noticed_without_writing():
    """`| head -1` ends the command even where nothing more comes."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as raw_out:
        terminal = Terminal(raw_out=raw_out)
        terminal.check_reader()
        os.close(reading)

        with pytest.raises(BrokenPipeError):
            terminal.check_reader()


@pytest.fixture
def clock(monkeypatch):
    """The time, which a test moves; a screen has 60 columns."""
    times = {"now": 0}
    monkeypatch.setattr(Terminal, "now_ms", lambda self: times["now"])
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    return times


def test_progress_is_a_line_that_is_drawn_again(clock):
    """The line is not drawn with every record; a result that is printed takes its place."""
    out, err = StringIO(), Screen()
    terminal = Terminal(out=out, err=err)

    with terminal.progress("copying") as progress:
        progress.advance(1, 10)
        assert err.getvalue() == ""
        clock["now"] = 1000
        progress.advance(4, 10)
        progress.advance(1, 10)
        terminal.print("a line")
        clock["now"] = 2000
        progress.advance(0)

    assert err.getvalue().split("\r\x1b[K") == [
        "",
        "copying  ########........  50 %  5 records  5/s  1 s left",
        "",
        "copying  6 records  3/s",
        "",
    ]
    assert out.getvalue() == "a line\n"


def test_progress_of_a_script_is_silent(clock, monkeypatch):
    """Through a pipe, and on a terminal that cannot clear a line."""
    pipe, dumb = StringIO(), Screen()
    with Terminal(err=pipe).progress("copying") as progress:
        clock["now"] = 1000
        progress.advance(5, 10)
    monkeypatch.setenv("TERM", "dumb")
    with Terminal(err=dumb).progress("copying") as progress:
        progress.begin()

    assert (pipe.getvalue(), dumb.getvalue(), progress.is_shown) == ("", "", False)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("app\x1b]0;title\x07", "app\\x1b]0;title\\x07"),
        ("\x1b[2K\x1b[1A\x1b[31mno lag", "\\x1b[2K\\x1b[1A\\x1b[31mno lag"),
        ("a\rb", "a\\x0db"),
        ("\x9b31m", "\\u009b31m"),
        ("safe\u202eexe", "safe\\u202eexe"),
        ("ünïcödé 漢字 🙂", "ünïcödé 漢字 🙂"),
        ("\x1b[1mbold\x1b[0m", "\\x1b[1mbold\\x1b[0m"),
    ],
)
def test_names_of_clients_do_not_act_on_the_terminal(name, shown):
    """Whatever a client calls itself is shown as text, what looks like bold letters as well."""
    out, err = StringIO(), StringIO()
    terminal = Terminal(out=out, err=err)
    terminal.print(f"group {name}")
    terminal.note(f"Error: {name}")

    assert out.getvalue() == f"group {shown}\n"
    assert err.getvalue() == f"Error: {shown}\n"


@pytest.mark.parametrize("errors", ["strict", "surrogateescape"])
@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "iso8859-15", "euc_jp", "utf-8"])
def test_locale_without_the_letters_of_a_record_gets_escapes(monkeypatch, encoding, errors):
    """What standard output cannot encode is escaped as in JSON, whose lines stay JSON."""
    texts = ["ünïcödé €", "漢字 🙂", "\U0010ffff"]
    buffer = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer, encoding=encoding, errors=errors))
    terminal = Terminal()
    terminal.print(json.dumps(texts, ensure_ascii=False))
    terminal.out.flush()

    assert json.loads(buffer.getvalue().decode(encoding)) == texts


def test_choice_of_pythonioencoding_is_kept(monkeypatch):
    """Who asks for question marks gets them."""
    buffer = BytesIO()
    monkeypatch.setattr(sys, "stdout", TextIOWrapper(buffer, encoding="ascii", errors="replace"))
    terminal = Terminal()
    terminal.print("ü")
    terminal.out.flush()

    assert buffer.getvalue() == b"?\n"


@pytest.mark.parametrize("host", ["\xe4..b", "\xe4" * 70, "\udcff"])
def test_server_whose_name_no_host_has_is_one_that_cannot_be_reached(host):
    """Another one of the list may be."""
    with pytest.raises(CommandError, match="cannot connect to a broker at "):
        check_reachable(f"{host}:9092")
