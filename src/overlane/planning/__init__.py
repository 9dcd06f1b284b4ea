"""Pure solvers: paths, allocation, mirrors, case base, channels, reservations. Data in, plans out, no I/O."""
