"""The settings of Hypothesis, which only these tests use: it reads all of Ottla for constants."""

from __future__ import annotations

import hypothesis
import pytest

# How long an example takes says how busy the machine is, and nothing about the code.
# A smaller example is worth its time. Which parts of it do not matter is found by hundreds of runs
# more, which on a busy machine end after the process does.
hypothesis.settings.register_profile(
    "untimed",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    phases=[phase for phase in hypothesis.Phase if phase is not hypothesis.Phase.explain],
)
hypothesis.settings.load_profile("untimed")

# A smaller example is looked for during five minutes. The alarm of a time limit would be one more
# error to look into, and the process would end before it has said which test has failed.
LIMIT_S = 900


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of Hypothesis have the time to report what they found."""
    for item in items:
        if item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.timeout(LIMIT_S))
