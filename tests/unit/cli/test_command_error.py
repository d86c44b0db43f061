"""What is missing, and what Spark says, as one line."""

from __future__ import annotations

import sys

import pytest

from ottla.cli.command_error import CommandError, cause_of, missing_package, require_packages
from ottla.cli.connect import ConnectStandaloneCommand
from ottla.cli.main import failure


def test_missing_java_is_told_in_one_line(monkeypatch):
    """The line names the package to install."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    with pytest.raises(CommandError, match="openjdk-17-jre-headless"):
        require_packages()


def test_missing_packages_are_told(monkeypatch):
    """Where only the core is installed."""
    monkeypatch.setattr(sys, "meta_path", [])
    monkeypatch.setattr(sys, "path_importer_cache", {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(CommandError, match=r"pyspark, pyarrow, pandas, matplotlib, jinja2 missing"):
        require_packages()


@pytest.mark.parametrize(
    ("module", "hint"),
    [
        ("aiohttp", "needs the package aiohttp: pip install 'ottla[connect]'"),
        ("aiohttp.web", "needs the package aiohttp: pip install 'ottla[connect]'"),
        ("prometheus_client", "needs the package prometheus-client: pip install 'ottla[metrics]'"),
        ("jwt", "needs the package pyjwt: pip install 'ottla[oauth]'"),
        ("pyspark", "needs the package pyspark: pip install 'ottla[spark]'"),
        ("of_somebody", "needs the package of-somebody, which is not installed"),
    ],
)
def test_package_of_an_extra_is_told_with_its_extra(module, hint):
    """Where a command has met a module that is not there, of whatever feature."""
    assert missing_package(module) == hint
    error = ModuleNotFoundError(f"No module named {module!r}", name=module)
    assert failure(error, ConnectStandaloneCommand()) == hint


def test_cause_of_a_failed_worker_is_its_last_line():
    """Spark's text begins by saying that there was a worker, and Java's trace stands behind."""
    text = (
        "\n  An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
        '  File "worker.py", line 1, in main\n    process()\n    ~~~~~~~^^\n'
        "OverflowError: date value out of range\n\n\tat org.apache.spark.api.python.x(y.scala:1)\n"
    )

    assert cause_of(Exception(text)) == "OverflowError: date value out of range"


def test_cause_of_a_failure_is_one_sentence():
    """The sentence is Ottla's line of Spark's page of text, or else the first line."""
    assert cause_of(Exception("Job aborted\n  at x\nottla.spark.E: lost\n at y")) == (
        "ottla.spark.E: lost"
    )
    assert cause_of(Exception("first\nsecond")) == "first"
    assert cause_of(ValueError()) == "ValueError"
