"""A broker as a pure state machine: no sockets, clock, threads, files, nor randomness of its own."""
