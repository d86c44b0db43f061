"""JMX_PORT and KAFKA_JMX_OPTS, the variables by which Kafka's start scripts open JMX.

Python has no JMX: metrics are served over HTTP. A port that is asked for becomes that of
`metrics.listener`, on the loopback interface. What asks for protection that would not be there
stops the start. Java's programs get the variables as Kafka's scripts would hand them on.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from ottla.cli.command_error import CommandError
from ottla.config.whole_number import number_of

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

PORT_VARIABLE: Final = "JMX_PORT"
OPTIONS_VARIABLE: Final = "KAFKA_JMX_OPTS"
REMOTE: Final = "com.sun.management.jmxremote"
PORT: Final = f"{REMOTE}.port"
WITHOUT_PROTECTION: Final = ("authenticate", "ssl", "registry.ssl", "ssl.need.client.auth")
"""What may be switched off: it is off."""
OF_ADDRESSES: Final = (
    REMOTE,
    PORT,
    f"{REMOTE}.host",
    f"{REMOTE}.local.only",
    f"{REMOTE}.rmi.port",
    "java.rmi.server.hostname",
)
"""Where JMX would be; metrics are on the loopback interface, at the port alone."""


def metrics_listener(settings: Mapping[str, str]) -> dict[str, str]:
    """The setting by which metrics are at the port that the variables ask for; the log says so.

    Nothing where they ask for none, or where the settings say themselves where metrics are.

    Raises:
        CommandError: an option cannot be followed.
    """
    asked, port = asked_port()
    if not asked:
        return {}
    own = settings.get("metrics.listener", "").strip()
    if own:
        logger.warning("%s is passed over, as metrics.listener=%s is set", asked, own)
        return {}
    url = f"http://127.0.0.1:{port}"
    logger.info(
        "%s: there is no JMX in Python; metrics of the same names are served over HTTP at %s, to "
        "this machine alone, as by metrics.listener=%s",
        asked,
        url,
        url,
    )
    return {"metrics.listener": url}


def note_metrics_at(url: str) -> None:
    """Say where metrics are, if the variables ask for a port: at that of REST, in a worker."""
    asked, _ = asked_port()
    if asked:
        logger.warning("%s is passed over: the worker's metrics are at %s/metrics", asked, url)


def asked_port() -> tuple[str, int]:
    """The words that ask for a port, and the port; empty and 0 where none is asked for."""
    options = java_properties(words_of_options())
    for name, value in options.items():
        check(name, value)
    for asked, text in (
        (PORT_VARIABLE, os.environ.get(PORT_VARIABLE, "").strip()),
        (f"{OPTIONS_VARIABLE}: {PORT}", options.get(PORT, "")),
    ):
        if text:
            if number_of(text, 0, 65535) is None:
                raise CommandError(f"{asked}={text}: must be a port")
            return f"{asked}={text}", int(text)
    return "", 0


def java_properties(words: list[str]) -> dict[str, str]:
    """The options of Java, as `-Dname=value`; of others the word itself."""
    pairs = (word.removeprefix("-D").partition("=") for word in words)
    return {name: value for name, _, value in pairs}


def words_of_options() -> list[str]:
    """The words in KAFKA_JMX_OPTS."""
    try:
        import shlex  # most starts do without

        return shlex.split(os.environ.get(OPTIONS_VARIABLE, ""))
    except ValueError as error:
        raise CommandError(f"{OPTIONS_VARIABLE}: cannot be read: {error}") from error


def check(name: str, value: str) -> None:
    """CommandError for an option that would not be followed, and is not about where JMX is."""
    if name in OF_ADDRESSES:
        return
    if name.removeprefix(f"{REMOTE}.") in WITHOUT_PROTECTION and value.lower() == "false":
        return
    raise CommandError(
        f"{OPTIONS_VARIABLE}: {name} cannot be followed, as there is no JMX in Python; take it "
        "out, and set metrics.listener=https://..., metrics.listener.username and "
        "metrics.listener.password where metrics are not for everybody"
    )


def java_options() -> list[str]:
    """What Kafka's scripts give Java for the variables; without options only this machine gets in.

    Kafka's own scripts would open the port to all machines, and ask for no password.
    """
    port = os.environ.get(PORT_VARIABLE, "").strip()
    options = words_of_options()
    if not options and port:
        options = [
            f"-D{REMOTE}",
            f"-D{REMOTE}.host=127.0.0.1",
            "-Djava.rmi.server.hostname=127.0.0.1",
        ]
        options += [f"-D{REMOTE}.{name}=false" for name in ("authenticate", "ssl")]
    return options + [f"-D{PORT}={port}"] * bool(port)


def given() -> list[str]:
    """The variables that are set."""
    return [name for name in (PORT_VARIABLE, OPTIONS_VARIABLE) if os.environ.get(name)]


def without_jmx() -> dict[str, str]:
    """The environment of one of several servers, which cannot all have the same port."""
    ours = (PORT_VARIABLE, OPTIONS_VARIABLE)
    return {name: value for name, value in os.environ.items() if name not in ours}
