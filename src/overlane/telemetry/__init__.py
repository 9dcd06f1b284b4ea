"""Telemetry: what brokers record about themselves, as Parquet files in a lake that the pipeline reads.

rows          one class per table: the fields of a row
schema        the Arrow and Parquet schemas, derived from the rows
arrow         Arrow without pandas
recorder      bounded buffers between the event loop and the writer thread
sampler       counters, sampled once per second
deliveries    a sample of deliveries
journal       rows on disk that are not in a file of the lake yet
publishing    jobs for the process that makes files of journals
publisher     that process, which alone loads Arrow: with journal_reader, schema, arrow and lake
journal_reader  journals as Arrow tables
file_rotation  rows into journals, journals to the publisher
lake          the finished files, and their size limit
lake_history  what brokers recorded in a period, summed up in steps
writer        the thread that writes
recording     all parts together, for one broker
"""

__all__ = ["lake_history", "recording", "rows", "schema"]
