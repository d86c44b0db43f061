"""Pipelines that are none of Ottla's own: in files and in packages, and the one that is written."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from sys import path as folders_of_python

import pytest
from pyspark import cloudpickle

from ottla.pipelines import pipeline as pipelines
from ottla.pipelines.pipeline import (
    PIPELINES,
    PipelineError,
    load_installed,
    load_pipeline,
    write_pipeline,
)

ONE = """
from ottla.pipelines import Input, Output, Pipeline

{0} = Pipeline(
    name="{1}",
    summary="Nothing.",
    inputs=(Input("in"),),
    outputs=(Output("out"),),
    build=lambda topics, parameters: {{"out": topics["in"]}},
)
"""


@pytest.fixture(autouse=True)
def known_folders(monkeypatch):
    """Where modules are imported from, which is as it was when the test is over."""
    folders = [*folders_of_python]
    monkeypatch.setattr("sys.path", folders)
    return folders


@pytest.fixture
def write(tmp_path):
    """Writes a file of a user's, and says where it is."""

    def put(text, name="mine.py"):
        (tmp_path / name).write_text(text)
        return tmp_path / name

    return put


def refusal(word):
    with pytest.raises(PipelineError) as error:
        load_pipeline(word)
    return error.value


def test_pipeline_is_found_in_a_file(write):
    """By the file alone, and where it was found is known."""
    path = write(ONE.format("PIPELINE", "mine"))

    found = load_pipeline(path)

    assert (found.name, found.file) == ("mine", path)
    assert load_pipeline("word_count").file is None


@pytest.mark.parametrize("name", ["SECOND", "two"])
def test_one_of_several_pipelines_is_chosen(write, name):
    """By its variable or by its own name; without a choice they are named."""
    path = write(ONE.format("FIRST", "one") + ONE.format("SECOND", "two") + "ALIAS = FIRST\n")

    assert load_pipeline(f"{path}:{name}").name == "two"
    assert str(refusal(path)) == (
        f"{path}: has several pipelines (there is: FIRST, SECOND, ALIAS); choose one: {path}:FIRST"
    )
    assert "has no pipeline THIRD (there is: FIRST" in str(refusal(f"{path}:THIRD"))


def test_pipeline_under_two_names_is_one(write):
    """A second variable for it is no second pipeline."""
    assert load_pipeline(write(ONE.format("FIRST", "one") + "SAME = FIRST\n")).name == "one"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no pipeline in it, such as PIPELINE = Pipeline(name=..., ...)"),
        ("import no_such_package", "cannot be imported: ModuleNotFoundError: No module named 'no_"),
        ("import sys; sys.exit('bye')", "cannot be imported: SystemExit: bye"),
        ("def (", "cannot be imported: SyntaxError: invalid syntax"),
        (ONE.format("P", "ranking"), "ranking is the name of one of Ottla's own pipelines"),
        (ONE.format("P", "../up"), "'../up' is no name for a pipeline"),
        (ONE.replace("outputs", "output").format("P", "x"), "cannot be imported: TypeError: "),
        (
            ONE.format("P", "x").replace('Input("in"', 'Input("in", "n int", needed=("n", "m")'),
            "its input in needs 'm', which is no column of it",
        ),
        (
            ONE.format("P", "x").replace("name=", "samples={'other': 'f'}, name="),
            "a sample is for 'other', no input (there is: in)",
        ),
        (
            ONE.format("P", "x").replace("name=", "samples={'in': '/no/such'}, name="),
            "its sample /no/such is missing",
        ),
    ],
)
def test_file_without_a_pipeline_is_refused(write, text, said):
    """With the reason, whatever its code does."""
    path = write(text)

    assert str(refusal(path)).startswith(f"{path}: {said}")


@pytest.mark.parametrize("name", ["broker", "checkpoints", "a/b", ".."])
def test_section_does_not_take_the_place_of_other_things(write, name):
    """Its table is a folder, in which the broker keeps its data as well."""
    section = f"Section({name!r}, '', '', None)"
    text = ONE.format("P", "x").replace("Pipeline\n", "Pipeline, Section\n", 1)
    path = write(text.replace("name=", f"sections=({section},), name="))

    assert f"a section cannot be named '{name}'" in str(refusal(path))


def test_error_shows_the_lines_of_the_users_own_file(write):
    """The trace begins where the file does, and ends with the error."""
    path = write("import json\n\ndef read():\n    return json.loads('?')\n\nread()\n")

    trace = refusal(path).trace.splitlines()
    places = [line for line in trace if line.startswith("  File ")]  # Python 3.13 marks more

    assert trace[0] == places[0] == f'  File "{path}", line 6, in <module>'
    assert places[1] == f'  File "{path}", line 4, in read'
    assert trace[-1].startswith("json.decoder.JSONDecodeError: ")


def test_word_that_is_no_pipeline_has_a_hint(tmp_path, monkeypatch):
    """A file that is not there, a folder that has one, a name that looks like one."""
    monkeypatch.chdir(tmp_path)
    write_pipeline("orders", Path("orders"))

    assert str(refusal("no/such.py")) == "no/such.py: there is no such file"
    assert str(refusal("orders")).endswith("; did you mean orders/pipeline.py?")
    assert str(refusal("rankin")).endswith("; did you mean ranking?")


def test_functions_of_a_file_go_to_workers_themselves(write, known_folders):
    """A worker cannot import the module, whose name nobody knows; modules beside it it can."""
    write("FACTOR = 3\n", "beside_mine.py")
    times = "def times(n):\n    return beside_mine.FACTOR * n + MORE\n"
    path = write(f"import beside_mine\n\n{times}\nMORE = 1\n" + ONE.format("PIPELINE", "mine"))
    times = sys.modules[load_pipeline(path).build.__module__].times
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(4))"

    done = subprocess.run(
        [sys.executable, "-c", code],
        input=cloudpickle.dumps(times),
        env={"PYTHONPATH": str(path.parent)},
        capture_output=True,
        check=True,
    )

    assert done.stdout == b"13\n"
    assert known_folders[-1] == str(path.parent)


def points(name, *values):
    return [EntryPoint(name, value, pipelines.ENTRY_POINTS) for value in values]


def test_installed_pipeline_is_found_by_its_name(write, monkeypatch):
    """Its entry point names the module and the variable."""
    path = write(ONE.format("PIPELINE", "mine"), "shop_a.py")
    monkeypatch.syspath_prepend(path.parent)
    found = points("mine", "shop_a:PIPELINE")
    monkeypatch.setattr(pipelines.metadata, "entry_points", lambda group: found)

    assert (load_pipeline("mine").name, load_pipeline("mine").file) == ("mine", path)
    assert str(refusal("mime")).endswith("; did you mean mine?")


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("ranking", ["shop_b:PIPELINE"], "ranking is the name of one of Ottla's own pipelines"),
        ("mine", ["shop_b:A", "shop_c:A"], "several packages have a pipeline mine: shop_b:A, shop"),
        ("mine", ["shop_b:NOTHING"], "shop_b:NOTHING: cannot be imported: AttributeError: "),
        ("mine", ["no_such_shop:A"], "no_such_shop:A: cannot be imported: ModuleNotFoundError: "),
        ("mine", ["shop_b:Pipeline"], "shop_b:Pipeline: must be a Pipeline, not type"),
        ("other", ["shop_b:A"], "shop_b:A: the entry point is named other, and its pipeline mine;"),
    ],
)
def test_entry_point_that_is_no_pipeline_is_refused(write, monkeypatch, name, values, said):
    """It never takes the place of another pipeline."""
    monkeypatch.syspath_prepend(write(ONE.format("A", "mine"), "shop_b.py").parent)

    with pytest.raises(PipelineError, match=re.escape(said)):
        load_installed(name, points(name, *values))


def test_missing_output_is_named():
    """A pipeline whose `build` forgets one ended with a KeyError."""
    found = load_pipeline("word_count")
    for made, there in (({}, "nothing"), (None, "nothing"), ({"a": 1, "b": 2}, "a, b")):
        less = pipelines.replace(found, build=lambda frames, given, made=made: made)

        with pytest.raises(PipelineError) as error:
            less.built({}, {})
        assert str(error.value) == (
            "word_count: build has to return a DataFrame for the output "
            f"'streams-wordcount-output' (it returns: {there})"
        )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *((name, "is no name") for name in ("my-pipe", "1st", "class", "", "a b", "_x", "größe")),
        *((name, "is the name of one of Ottla's own") for name in PIPELINES),
    ],
)
def test_names_that_are_none_are_refused(tmp_path, name, said):
    """A new pipeline has a name that Python takes, and one of its own."""
    with pytest.raises(PipelineError, match=said):
        write_pipeline(name, tmp_path / "new")

    assert not (tmp_path / "new").exists()


def test_written_pipeline_is_whole(tmp_path):
    """Nothing is left of the name of the example, and what is there is not touched."""
    files = write_pipeline("parcels", tmp_path / "parcels")

    assert [path.name for path in files] == ["pipeline.py", "sample.csv", "test_parcels.py"]
    assert not [path for path in files if "orders" in path.read_text()]
    found = load_pipeline(files[0])
    assert (found.name, *found.samples) == ("parcels", "parcels")
    files[0].write_text("mine")
    with pytest.raises(PipelineError, match="is there already; nothing was written"):
        write_pipeline("parcels", tmp_path / "parcels")
    assert files[0].read_text() == "mine"


def test_written_pipeline_is_tidy(tmp_path):
    """A newcomer's linter has nothing to say about it."""
    write_pipeline("orders", tmp_path / "orders")
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["check", "--select", "E,F,I,UP,B"], ["format", "--check"]):
        done = subprocess.run(
            [*ruff, *words, "--isolated", "--line-length", "100", "--no-cache", tmp_path],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout
