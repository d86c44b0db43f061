"""The tests keep rules of their own: a sentence each, nothing that sleeps or skips silently."""

from __future__ import annotations

import ast
import re
import tomllib

from sources import ROOT, Source, sources

CLOCKS = {"time.time", "time.monotonic", "time.perf_counter"}
RUNS_FOR_A_TIME = {"tests/chaos/mixed_faults.py", "tests/soak/test_random_kills.py"}
"""A load or faults that last as long as they are told to."""

SLEEPS_ON_VIRTUAL_TIME = {
    "tests/simulation/apps.py",
    "tests/simulation/processing_app.py",
    "tests/unit/testing/simulation/test_app_process.py",
    "tests/unit/testing/test_scenario.py",
}
"""Apps that run in a simulated world, where an hour is nothing."""


def every_test():
    """Every test function with its source."""
    return [
        (source, node)
        for source in sources("tests")
        if source.path.name.startswith("test_")
        for node in source.functions
        if node.name.startswith("test_")
    ]


def sleeps(source: Source) -> bool:
    """Whether something in the file sleeps; `asyncio.sleep(0)` only lets others run."""
    return any(
        isinstance(call, ast.Call)
        and ast.unparse(call.func) in {"time.sleep", "sleep", "asyncio.sleep"}
        and [ast.unparse(argument) for argument in call.args] != ["0"]
        for call in source.nodes
    )


def test_each_test_has_its_sentence():
    """A test says in one docstring what it shows."""
    assert not [
        f"{source.name}:{node.lineno} {node.name}"
        for source, node in every_test()
        if not ast.get_docstring(node)
    ]


def test_sentences_of_tests_name_no_numbers_of_lists():
    """A reader of a failure cannot look up what a letter with two digits stands for."""
    number = r"[A-Z]{1,5}\d\d"
    cited = re.compile(rf"\({number}(, |-| to |\))|^{number}(, | to |-|[:.])")
    assert not [
        f"{source.name}:{node.lineno} {node.name}"
        for source, node in every_test()
        if cited.search(ast.get_docstring(node) or "")
    ]


def test_nothing_sleeps():
    """Tests and what they share wait on conditions, by `ottla.testing.wait_until`."""
    sleeping = {source.name for source in sources("tests") if sleeps(source)}
    assert sleeping <= SLEEPS_ON_VIRTUAL_TIME


def test_nothing_waits_in_a_way_of_its_own():
    """A loop that looks at the clock is `wait_until`, which says what it has seen."""
    assert {
        source.name
        for source in sources("tests")
        for node in source.nodes
        if isinstance(node, ast.While | ast.Assert)
        if any(
            isinstance(call, ast.Call) and ast.unparse(call.func) in CLOCKS
            for call in ast.walk(node.test)
        )
    } <= RUNS_FOR_A_TIME


def test_every_skip_names_what_is_missing():
    """A skip has a reason."""
    assert not [
        f"{source.name}:{call.lineno}"
        for source in sources("tests")
        for call in source.nodes
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) in {"pytest.skip", "pytest.mark.skip", "pytest.mark.skipif"}
        and not (call.args or call.keywords)
    ]


def test_shared_modules_of_tests_have_names_of_their_own():
    """Folders of tests share the path, so no two of them have a helper of the same name."""
    shared = [
        source.path.name
        for source in sources("tests")
        if not source.path.name.startswith("test_") and source.path.name != "conftest.py"
    ]

    assert not {name for name in shared if shared.count(name) > 1} - {"__init__.py"}


def test_hypothesis_stays_among_its_own():
    """A session with one test of it reads and parses all of Ottla: `make property` alone does."""
    users = {
        source.name
        for source in sources("tests")
        for node in source.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        and "hypothesis" in {getattr(node, "module", ""), *(name.name for name in node.names)}
    }

    assert users
    assert not [name for name in users if not name.startswith("tests/property/")]


def test_modules_are_found_without_tricks():
    """What tests share is found by the settings of pytest; nothing changes Python's path."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shared = {
        str(source.path.parent.relative_to(ROOT))
        for source in sources("tests")
        if not source.path.name.startswith("test_") and source.path.name != "conftest.py"
    }

    assert shared | {"."} == set(settings["tool"]["pytest"]["ini_options"]["pythonpath"])
    assert not [
        f"{source.name}:{node.lineno}"
        for source in sources("tests", "benchmarks", "docs", "examples")
        for node in source.nodes
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.path"
    ]
