"""The errors that end a command with one line instead of a traceback.

Failures of Spark, and packages that are missing for it, become such a line too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.errors import KafkaError

if TYPE_CHECKING:
    from pathlib import Path

K = TypeVar("K", bound=Any)
V = TypeVar("V")


class CommandError(Exception):
    """The command cannot do its work; the text is the one line that the user sees."""


class UsageError(CommandError):
    """The options do not fit together; the user is also pointed to --help."""


def answers(
    ask: Callable[[list[K]], Mapping[K, V]], keys: Iterable[K]
) -> tuple[dict[K, V], dict[K, KafkaError]]:
    """What was answered about each of these, in order, and the errors of the others.

    Where nothing was answered, the error of the call is raised.
    """
    found: Mapping[K, V | KafkaError]
    try:
        found = ask(list(keys))
    except KafkaError as error:
        found = getattr(error, "results", {})
        if all(isinstance(each, KafkaError) for each in found.values()):
            raise
    failed = {key: each for key, each in found.items() if isinstance(each, KafkaError)}
    answered = {key: each for key, each in found.items() if not isinstance(each, KafkaError)}
    return dict(sorted(answered.items())), dict(sorted(failed.items()))


def listed(
    ask: Callable[[], Iterable[V]], what: str, note: Callable[[str], object]
) -> tuple[list[V], int]:
    """What the brokers list, and the status: 1 where some do not answer, which a note names."""
    found, silent = answers(lambda _: {0: ask()}, ())
    for broker, error in silent.items():
        note(f"Error: no {what} of broker {broker}: {error}")
    return [each for some in found.values() for each in some], 1 if silent else 0


PACKAGES = {"jwt": "pyjwt", "paho": "paho-mqtt", "puresasl": "pure-sasl"}
"""Packages that have another name than their modules."""
SPARK_PACKAGES = ("pyspark", "pyarrow", "pandas", "matplotlib", "jinja2")


def require_packages(*more: str) -> None:
    """Raise CommandError unless Python and Java packages for Spark are installed."""
    from importlib.util import find_spec

    from ottla.runtime.java import JavaMissingError, require_java

    missing = [name for name in (*SPARK_PACKAGES, *more) if find_spec(name) is None]
    if missing:
        raise CommandError(f"{', '.join(missing)} missing: pip install 'ottla[spark]'")
    try:
        require_java()
    except JavaMissingError as error:
        raise CommandError(str(error)) from None


def missing_package(name: str) -> str:
    """What is missing, and the extra of Ottla that brings it, where one does."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    package = PACKAGES.get(name, name.partition(".")[0].replace("_", "-"))
    try:
        needs = requires("ottla") or []
    except PackageNotFoundError:  # it runs from a folder
        needs = []
    for need in needs:
        found = re.match(rf"{re.escape(package)}\b(?!-).*extra == ['\"]([\w-]+)", need)
        if found:
            return f"needs the package {package}: pip install 'ottla[{found[1]}]'"
    return f"needs the package {package}, which is not installed"


TRACE = "Traceback (most recent call last):"


@contextmanager
def spark_failures(log: Path) -> Iterator[None]:
    """Turn Spark's exceptions into one line that names its log."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise CommandError(f"Spark failed, {log} has all of it: {cause_of(error)}") from error


def cause_of(error: BaseException) -> str:
    """The message of a Python worker in Spark's error text; else its first line.

    A worker's error stands behind its trace, whose lines are indented.
    """
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("ottla.")]
    if own:
        return own[-1]
    _, traced, behind = text.rpartition(TRACE)
    worker = [line.strip() for line in behind.splitlines() if line[:1].strip()] if traced else []
    return next(iter([*worker, *lines]), type(error).__name__)
