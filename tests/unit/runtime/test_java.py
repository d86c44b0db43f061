"""Java is found, or what to install is said."""

from __future__ import annotations

import pytest

from ottla.runtime.java import PACKAGE, JavaMissingError, java_version, require_java


@pytest.fixture
def fake_java(tmp_path):
    """A folder with bin/java that prints a version as Java does."""

    def make(text):
        program = tmp_path / "bin" / "java"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
        program.chmod(0o755)
        return tmp_path

    return make


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_452"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ("no such thing", 0),
    ],
)
def test_version_is_read(fake_java, text, version):
    """Old and new ways to write a version."""
    assert java_version(fake_java(text) / "bin" / "java") == version


def test_java_is_found_through_its_home_and_the_path(fake_java, tmp_path):
    """JAVA_HOME counts first, then PATH."""
    home = fake_java('openjdk version "21.0.1"')

    assert require_java({"JAVA_HOME": str(home)}) == home / "bin" / "java"
    assert require_java({"PATH": str(home / "bin")}) == home / "bin" / "java"


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PATH": ""}, "Java is missing"),
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME=/nowhere has no bin/java"),
    ],
)
def test_missing_java_is_told_with_the_package(environment, said):
    """One line, with what to install."""
    with pytest.raises(JavaMissingError, match=said) as error:
        require_java(environment)

    assert PACKAGE in str(error.value)
    assert "\n" not in str(error.value)


def test_old_java_is_told(fake_java):
    """A version that Spark cannot run on is named."""
    with pytest.raises(JavaMissingError, match=r"is Java 11, which is too old.*17 or newer"):
        require_java({"JAVA_HOME": str(fake_java('openjdk version "11.0.2"'))})
