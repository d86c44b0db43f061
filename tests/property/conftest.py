"""The settings of Hypothesis, which only these tests use: it reads all of Ottla for constants."""

from __future__ import annotations

import hypothesis

# How long an example takes says how busy the machine is, and nothing about the code.
hypothesis.settings.register_profile(
    "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("untimed")
