"""What several tests of records share: hand-made batches, and both kernels."""

from types import SimpleNamespace

import pytest

from ottla.record import columns, kernel, plain_decoding, plain_encoding, plain_survey

PLAIN = SimpleNamespace(
    encode_records=plain_encoding.encode_records,
    encode_values=plain_encoding.encode_values,
    decode_records=plain_decoding.decode_records,
    decode_consumer_records=plain_decoding.decode_consumer_records,
    survey_records=plain_survey.survey_records,
    ColumnBuilder=columns.ColumnBuilder,
)


@pytest.fixture(params=["plain", "compiled"] if kernel.COMPILED else ["plain"])
def loops(request):
    """The plain loops, and the compiled ones where they have been built."""
    return kernel if request.param == "compiled" else PLAIN


@pytest.fixture
def column_builder(loops):
    """The column builder that goes with the loops."""
    return loops.ColumnBuilder
