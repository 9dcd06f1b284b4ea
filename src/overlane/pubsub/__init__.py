"""What clients of every protocol share: sessions, subscriptions, retained messages, delivery, wills, access, streams.

State machines without I/O: messages, requests and the time go in, records and messages for consumers come out.
"""
