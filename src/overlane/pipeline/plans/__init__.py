"""Plans for brokers from the results of the analysis: channels, the case base, the plan and its export."""

__all__ = ["peak_forecast"]
