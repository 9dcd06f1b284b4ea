"""The demo: five cities as real brokers on this machine, troubles one after the other, and what became of messages.

It is a trial of the testbed with a story: `steps` says what happens, `stage` makes it happen to real processes,
`judging` and `moves` say what came of each step, `lessons` what the data pipeline learns from it.
"""
