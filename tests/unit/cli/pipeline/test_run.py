"""What the report of a pipeline counts at its top."""

from __future__ import annotations

from ottla.cli.pipeline.run import RunOutcome, cards, unparsed, unparsed_section
from ottla.pipelines.progress import Tally
from ottla.pipelines.registry import load_pipeline
from ottla.pipelines.tables import ResultTable


def test_lines_that_did_not_parse_are_counted_though_they_have_rows():
    """The card said 0 above a table with one of them: only the sources' failures were counted."""
    pipeline = load_pipeline("web_traffic")
    completeness = ResultTable(["malformed"], [{"malformed": 1}])
    tables = dict.fromkeys((section.name for section in pipeline.sections), ResultTable([], []))

    count = unparsed(pipeline, tables | {pipeline.sections[-1].name: completeness})

    shown = {card.label: card for card in cards(Tally(), RunOutcome(), count)}
    assert (shown["did not parse"].value, shown["did not parse"].is_good) == (1, False)
    assert cards(Tally(), RunOutcome(), 0)[1].is_good is None


def test_numbers_lead_to_the_records_that_they_count():
    """Nothing led from "1 did not parse" to the line."""
    pipeline = load_pipeline("web_traffic")
    names = {section.name for section in pipeline.sections}
    section = unparsed_section(pipeline)
    links = {each.label: each.section for each in cards(Tally(), RunOutcome(), 1, section)}

    assert links["did not parse"] == "malformed"
    assert links["waiting"] == "made"
    assert links.keys() >= {"micro-batches", "seconds per batch"}
    assert section in names
