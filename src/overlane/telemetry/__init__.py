"""Telemetry: what brokers record of themselves, in a lake of Parquet files that a pipeline reads.

rows        one class per table: what a row says
schema      the tables as Arrow and Parquet know them, made from the rows
arrow       what makes the columns, without what it would load for nothing
recorder    bounded buffers between the broker's loop and the thread that writes
sampler     counters, looked at once a second, become rows
watching    what the broker does, as it does it, becomes rows: a sample of the deliveries, every event
journal     rows that are in no file yet, on disk all the same
lake        finished files: their names, their limit
writer      the thread: rows into journals, journals into files
recording   all of it together, for one broker
"""
