"""Every pipeline's functions over its sample files: each table has exactly the expected rows."""

from __future__ import annotations

import pytest
import sampled
from breadth import some
from sampled import expected_rows, folder, input_rows, plain_rows

from ottla.pipelines.pipeline import PIPELINES, load_pipeline
from ottla.pipelines.records import merged

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("name", some(PIPELINES))
def test_tables_are_those_of_the_sample_files(spark, name):
    """The tables of the sample input are those of samples/expected, in their order."""
    pipeline = load_pipeline(name)
    parameters = pipeline.with_parameters(sampled.parameters(name))
    inputs = {each.topic: input_rows(spark, name, each) for each in pipeline.inputs}
    made = pipeline.build(inputs, parameters)
    merges = {
        each.topic: merged(made[each.topic], each) for each in pipeline.outputs if each.is_table
    }
    topics = {**inputs, **made, **merges}

    tables = {each.name: plain_rows(each.table(topics, parameters)) for each in pipeline.sections}

    assert tables == {section: expected_rows(name, section) for section in tables}


@pytest.mark.parametrize("name", PIPELINES)
def test_each_pipeline_is_whole(name):
    """Its parts fit each other, and it says in about ten lines what it is."""
    pipeline = load_pipeline(name)
    readme = (folder(name).parents[1] / f"{name}.md").read_text(encoding="utf-8")

    assert pipeline.name == name
    assert "sample" in pipeline.feeds
    assert 8 <= readme.count("\n") <= 14
    assert f"ottla pipeline run {name}" in readme or "ottla demo" in readme
    assert all(set(output.key) <= set(output.identity or output.key) for output in pipeline.outputs)
    assert all(output.identity for output in pipeline.outputs if output.mode == "update")
