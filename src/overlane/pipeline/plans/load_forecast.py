"""The load that is expected in the week to come: the rate of all topics together, by the hour.

It is the expected rate of `peak_forecast`, not the peak: from the cycles of the week where there are weeks of
telemetry, from those of the day where there are days.
"""

import numpy as np

from overlane.network.plan import LoadForecast
from overlane.pipeline.output_directory import Run
from overlane.pipeline.plans.peak_forecast import HISTORY_WEEKS, WEEK_H, hourly_rates, week_ahead
from overlane.pipeline.units import HOUR_S

HOURS_MIN = 48
"""With less than two days nothing is known of any cycle."""


def load_forecast(run: Run) -> LoadForecast | None:
    """From `load_hours`; None if there is too little of it."""
    first_s, rates = hourly_rates(run, 0)
    known = rates.get("", np.zeros(0))
    if len(known) < HOURS_MIN:
        return None
    weeks = min(-(-len(known) // WEEK_H), HISTORY_WEEKS)
    # Weeks end with the last hour; what is missing of the first one is not known.
    history = np.full(weeks * WEEK_H, np.nan)
    recent = known[-len(history) :]
    history[len(history) - len(recent) :] = recent
    expected = week_ahead(history.reshape(weeks, WEEK_H))
    start_s = first_s + len(known) * HOUR_S
    return LoadForecast(start_s, tuple(round(rate, 3) for rate in expected.tolist()))
