"""All brokers of a network file on one machine: processes that are started again, and their control."""
