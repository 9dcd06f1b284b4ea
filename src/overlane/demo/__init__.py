"""The demo: five brokers on this machine, a sequence of faults, and their effects on messages.

It is a trial of the testbed with fixed steps: `steps` defines them, `demorun` runs them on real processes,
`stepresults` and `routemoves` report the effects of each step, `pipelineresults` the results of the data pipeline.
"""
