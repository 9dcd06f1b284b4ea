"""A broker that runs: event loop, sockets, disk, and what operators see of it.

node           one broker, from its start to a clean end
driver         runs the turns of a broker (`overlane.turn`) in an event loop
clock          the time, which never goes back
failures       unexpected exceptions of the broker itself; `suspect_file` remembers what ended the process
observing      what turns have brought about, told to the log and to observers
telemetry      whether and where a broker records what it does
reconfiguring  the one way in which the configuration of a running broker changes
reloading      the network file, read again while the broker runs

store/         the durable store
links/         links to neighbours
clients/       where clients connect
admin/         the admin API
logs/          log lines
security/      certificates, users, proofs of incarnations
supervision/   all brokers of a file on one machine
"""
