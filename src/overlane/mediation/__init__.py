"""Mediation: rules that drop, slow down, rename, change and convert messages where they are published. Pure.

rule.py        a rule as the network file has it
draft.py       a message while rules change it: its payload decoded at most once
formats.py     JSON, CBOR and MessagePack
fields.py      fields of a decoded payload, by their paths
renaming.py    a new topic of the levels of an old one
actions.py     what one rule does to a message
mediation.py   all rules of a broker, in their order, and what they remember of topics
border.py      rules for messages that leave or enter a domain
dry_run.py     rules applied to messages in virtual time
functions.py   what a function of the user gets and returns
"""

__all__ = ["actions", "border", "draft", "dry_run", "functions", "mediation", "renaming", "rule"]
