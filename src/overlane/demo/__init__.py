"""The demo: five brokers on this machine, a sequence of faults, and their effects on messages.

It is a trial of the testbed with fixed steps: `steps` defines them, `demo_run` runs them on real processes,
`step_results` and `route_moves` report the effects of each step, `pipeline_results` the results of the data pipeline.
`lost_host` is a step with brokers of its own (`mirrored_domain`), since it needs a coordination service.
"""

__all__ = ["demo_run", "lost_host", "pipeline_results", "step_results", "steps"]
