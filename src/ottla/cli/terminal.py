"""The outside world of a command: the streams, the clock, and the clients it opens.

Tests hand in their own streams and clients; the real ones are made when first asked for.
"""

from __future__ import annotations

import codecs
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from contextlib import contextmanager
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO

from ottla.cli.command_error import CommandError
from ottla.cli.times import age_text
from ottla.config.whole_number import number_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from ottla import Admin, Consumer, Producer
    from ottla.console.lag_reader import LagReader


CONNECT_TIMEOUT_S = 5.0
SILENCE_S = 1.0
"""How long a person sees nothing before a line on stderr gives the reason for the wait."""
DEFAULT_PORT = 9092
USUAL_WIDTH = 80
BAR_WIDTH = 16
REDRAW_MS = 100
SHORT_MS = 300
"""Work that is done sooner shows no progress: nobody can read a line that flashes up."""
TURNING: Final = "".join(map(chr, (*range(0x2028, 0x202F), *range(0x2066, 0x206A))))
"""The characters beyond control characters that end a line, or turn round the text behind them."""
ACTING: Final = f"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{TURNING}]"
"""Characters on which a terminal acts, that turn text round, or that cannot be written."""
CLEAR_LINE = "\r\x1b[K"
STANDARD_ERRORS: Final = ("strict", "surrogateescape")
"""How Python's own streams take what cannot be encoded, unless PYTHONIOENCODING says otherwise."""


class Clients:
    """Opens the clients that a command asks for; settings have Kafka's dotted keys.

    They are opened only where a broker listens: a wrong address is one clear line at once and not a
    timeout.
    """

    def admin(self, servers: str, settings: Mapping[str, str]) -> Admin:
        from ottla.clients.admin.admin import Admin

        check_reachable(servers, settings)
        return Admin(servers, without_servers(settings))

    def producer(self, servers: str, settings: Mapping[str, str]) -> Producer:
        from ottla.clients.producer.producer import Producer

        check_reachable(servers, settings)
        return Producer(servers, without_servers(settings))

    def consumer(self, servers: str, settings: Mapping[str, str]) -> Consumer:
        from ottla.clients.consumer.consumer import Consumer

        check_reachable(servers, settings)
        return Consumer(servers, without_servers(settings))

    def lag_reader(self, servers: str, settings: Mapping[str, str]) -> LagReader:
        from ottla.console.lag_reader import LagReader

        check_reachable(servers, settings)
        return LagReader(servers, without_servers(settings))


def escape_of(character: str) -> str:
    """`\\x1b` for the character ESC; `\\u202e` for one beyond ASCII, as JSON escapes it too."""
    number = ord(character)
    return f"\\x{number:02x}" if number < 0x80 else f"\\u{number:04x}"


def harmless(text: str) -> str:
    """A text in which names that clients have chosen cannot act on the terminal."""
    if text.isprintable():
        return text
    return re.sub(ACTING, lambda found: escape_of(found[0]), text)


def escaped(error: UnicodeError) -> tuple[str, int]:
    """An error handler of codecs: as JSON escapes it, so that a line of JSON stays one."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex(" ", 2)
    return "".join(f"\\u{unit}" for unit in units.split()), error.end


codecs.register_error("ottla.escaped", escaped)


def standard(name: str) -> TextIO:
    """A standard stream of Python; one to nowhere in place of one that the caller has closed.

    Characters that the locale's encoding does not have are escaped on standard output, as Python
    escapes them on standard error.
    """
    if getattr(sys, name) is None:
        mode = "r" if name == "stdin" else "w"
        nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - until the process ends
        setattr(sys, name, nowhere)
    stream: TextIO = getattr(sys, name)
    if name == "stdout" and isinstance(stream, TextIOWrapper) and stream.errors in STANDARD_ERRORS:
        stream.reconfigure(errors="ottla.escaped")
    return stream


class Terminal:
    """The standard streams of a command, its clock, and its clients.

    Output for a person (questions, escapes, the reason for a wait) depends on which streams
    are a terminal: a script that reads them through a pipe gets results and errors alone.
    """

    def __init__(
        self,
        *,
        source: BinaryIO | None = None,
        out: TextIO | None = None,
        raw_out: BinaryIO | None = None,
        err: TextIO | None = None,
        clients: Clients | None = None,
    ) -> None:
        self.source = source or standard("stdin").buffer
        self.out = out or standard("stdout")
        self.raw_out: BinaryIO = raw_out or standard("stdout").buffer
        self.err = err or standard("stderr")
        self.clients = clients or Clients()
        self._silence: threading.Timer | None = None
        self._progress: Progress | None = None

    @property
    def shows_results(self) -> bool:
        """Whether a person reads standard output as it comes."""
        return self.out.isatty()

    @property
    def shows_notes(self) -> bool:
        """Whether a person reads standard error as it comes."""
        return self.err.isatty()

    @property
    def can_ask(self) -> bool:
        """Whether a person reads questions and types answers."""
        return self.shows_notes and self.source.isatty()

    @contextmanager
    def admin(self, servers: str, settings: Mapping[str, str]) -> Iterator[Admin]:
        """An admin client for the block; a person sees a line if it has to wait."""
        with self.waiting_for(servers), self.clients.admin(servers, settings) as admin:
            yield admin

    @property
    def has_colour(self) -> bool:
        """Whether results may be coloured: on a terminal, unless NO_COLOR is set."""
        return self.shows_results and not os.environ.get("NO_COLOR")

    @property
    def width(self) -> int:
        """The columns of the screen that results go to; 0 where a program reads them."""
        return screen_width(self.out)

    @contextmanager
    def progress(self, what: str, unit: str = "records") -> Iterator[Progress]:
        """Show a person, on one line of standard error, how far the work of the block is."""
        self._progress = Progress(self, what, unit)
        try:
            yield self._progress
        finally:
            self._progress.clear()
            self._progress = None

    def print(self, text: str = "", *, is_styled: bool = False) -> None:
        """A line of the command's result; one that is styled is harmless but for our sequences."""
        self.make_room()
        self.out.write((text if is_styled else harmless(text)) + "\n")

    def note(self, text: str) -> None:
        """A line beside the result: a warning or a count."""
        self.make_room()
        self.err.write(harmless(text) + "\n")

    def remark(self, text: str) -> None:
        """A line on stderr for a person; scripts do not get it."""
        if self.shows_notes:
            self.note(text)

    def ask(self, question: str) -> str:
        """The line that the person types; "" at the end of the input."""
        self.make_room()
        self.out.flush()
        self.err.write(question)
        self.err.flush()
        return self.source.readline().decode("utf-8", "replace").strip()

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Show a person after a second why the command waits, unless it has printed something."""
        if not self.shows_notes:
            yield
            return
        self.end_silence()
        self._silence = threading.Timer(SILENCE_S, self._tell_waiting, [what])
        self._silence.daemon = True
        self._silence.start()
        try:
            yield
        finally:
            self.end_silence()

    def check_reader(self) -> None:
        """Raise BrokenPipeError where the pipe that results go to was closed at its other end.

        Without it a command that waits for more to print would notice at its next line only.
        """
        try:
            fd = self.raw_out.fileno()
        except OSError:  # not a file of the operating system
            return
        pipe = select.poll()
        pipe.register(fd, 0)
        if any(event & (select.POLLERR | select.POLLHUP) for _, event in pipe.poll(0)):
            raise BrokenPipeError

    def end_silence(self) -> None:
        """Cancel the line about a wait, since something has come."""
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def make_room(self) -> None:
        """Take away the line that shows a wait or progress, before something is printed."""
        self.end_silence()
        if self._progress is not None:
            self._progress.clear()

    def _tell_waiting(self, what: str) -> None:
        self.err.write(f"waiting for {what} ...\n")
        self.err.flush()

    def now_ms(self) -> int:
        """The wall clock."""
        return time.time_ns() // 1_000_000


class Progress:
    """The progress of some work: a line on standard error that is drawn again and again.

    Only a person sees it, on a terminal that can clear a line; `is_shown` is true if one does.
    """

    def __init__(self, terminal: Terminal, what: str, unit: str) -> None:
        self.terminal = terminal
        self.what = what
        self.unit = unit
        self.done = 0
        self.is_shown = terminal.shows_notes and os.environ.get("TERM") != "dumb"
        self._begun_ms = terminal.now_ms()
        self._drawn_ms = self._begun_ms + SHORT_MS - REDRAW_MS
        self._is_drawn = False

    def begin(self) -> None:
        """Name the work at once, where nothing will be counted."""
        self._draw(f"{self.what} ...")

    def advance(self, count: int, total: int | None = None) -> None:
        """Count more as done; `total` is the number of all, if it is known."""
        self.show(self.done + count, (self.done + count) / total if total else None)

    def show(self, done: int, share: float | None = None, note: str = "") -> None:
        """Show how many are done, and which share of the work that is (0 to 1), if known."""
        self.done = done
        if not self.is_shown:
            return
        now_ms = self.terminal.now_ms()
        if now_ms - self._drawn_ms >= REDRAW_MS:
            self._drawn_ms = now_ms
            self._draw(self.text(now_ms - self._begun_ms, share) + note)

    def text(self, elapsed_ms: int, share: float | None) -> str:
        """`copying  ━━━━────  50 %  1,000 records  500/s  2 s left`."""
        rate = f"{self.done:,} {self.unit}  {self.done * 1000 / max(1, elapsed_ms):,.0f}/s"
        if share is None or not 0 < share <= 1:
            return f"{self.what}  {rate}"
        left = age_text(round(elapsed_ms * (1 - share) / share))
        return f"{self.what}  {self._bar(share)} {share * 100:3.0f} %  {rate}  {left} left"

    def clear(self) -> None:
        """Take the line away, since something else is printed or the work has ended."""
        if self._is_drawn:
            self._is_drawn = False
            self.terminal.err.write(CLEAR_LINE)
            self.terminal.err.flush()

    def _bar(self, share: float) -> str:
        encoding = getattr(self.terminal.err, "encoding", None) or "ascii"
        full, rest = ("━", "─") if encoding.lower().startswith("utf") else ("#", ".")
        length = int(share * BAR_WIDTH)
        return full * length + rest * (BAR_WIDTH - length)

    def _draw(self, text: str) -> None:
        if not self.is_shown:
            return
        self.terminal.end_silence()
        self._is_drawn = True
        self.terminal.err.write(CLEAR_LINE + text[: screen_width(self.terminal.err) - 1])
        self.terminal.err.flush()


def screen_width(stream: TextIO) -> int:
    """The columns of a screen ($COLUMNS is asked first); 0 for a stream that is none."""
    if not stream.isatty():
        return 0
    named = number_of(os.environ.get("COLUMNS", ""), 0)
    if named is not None:
        return named
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    except OSError:
        return USUAL_WIDTH


def without_servers(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings but for the servers, which the command line names."""
    return {key: value for key, value in settings.items() if key != "bootstrap.servers"}


def check_reachable(servers: str, settings: Mapping[str, str] | None = None) -> None:
    """Raise a CommandError unless one of the brokers accepts a connection, by settings if given."""
    host, port = first_reachable([server.strip() for server in servers.split(",")], "a broker")
    if settings is not None:
        from ottla.cli.first_contact import check_listener

        check_listener(host, port, settings)


def first_reachable(servers: Iterable[str], kind: str) -> tuple[str, int]:
    """Host and port of the first server that accepts a connection; a CommandError if none does."""
    failures = []
    for server in servers:
        host, port = host_and_port(server)
        try:
            # As bytes: Python loads its tables of Unicode for a name that is text.
            name = host.encode() if host.isascii() else host
            address: Any = name, port  # the types of Python know of text only
            socket.create_connection(address, timeout=CONNECT_TIMEOUT_S).close()
            return host, port
        except (OSError, ValueError) as error:  # a name in letters that no host may have
            failures.append(f"{server} ({getattr(error, 'strerror', None) or error})")
    raise CommandError(f"cannot connect to {kind} at {', '.join(failures)}")


def with_port(server: str) -> str:
    """`localhost` as `localhost:9092`; a server that has a port as it is."""
    name = server.strip()
    if not name or (":" in name and not name.endswith("]")):
        return name
    return f"{name}:{DEFAULT_PORT}"


def host_and_port(server: str) -> tuple[str, int]:
    """`host:port` or `[ipv6]:port` in its two parts."""
    host, _, port = server.rpartition(":")
    number = number_of(port, 0, 65535)
    if not host or number is None:
        raise CommandError(f"'{server}' is not an address of the form host:port")
    return host.strip("[]"), number


@contextmanager
def interruptible(is_over: threading.Event) -> Iterator[None]:
    """The first signal sets the event; a second one ends the process at once."""

    def stop(number: int, frame: object) -> None:
        for each, handler in handlers.items():
            signal.signal(each, handler)
        is_over.set()

    handlers = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
