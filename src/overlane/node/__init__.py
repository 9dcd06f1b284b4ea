"""A broker that runs: event loop, sockets, disk, and administration.

node           one broker, from its start to a clean end; `options` says how to run it
driver         runs the turns of a broker (`overlane.turn`) in an event loop
clock          the time, which never goes back
failures       unexpected exceptions of the broker itself; `suspect_file` remembers messages that ended the process
observing      reports the effects of turns to the log and to observers
telemetry      whether and where a broker records telemetry
reconfiguring  the one way in which the configuration of a running broker changes
reloading      reads the network file again while the broker runs
checking       everything that a start needs, without a start; `open_files` says how many connections are possible

store/         the durable store
links/         links to neighbours
clients/       listeners for clients
web/           HTTP publishing, Server-Sent Events, WebSub; imported only where there is an HTTP listener
admin/         the admin API
otlp/          traces and metrics for OpenTelemetry; imported only with [otlp]
logs/          log lines
security/      certificates, users, proofs of incarnations
recovery/      copies of brokers on other hosts, and brokers that are continued there
coordination/  a broker's part in the coordination through ZooKeeper
supervision/   all brokers of a file on one machine
"""

__all__ = [
    "checking",
    "coordination",
    "end_signals",
    "logs",
    "node",
    "options",
    "recovery",
    "security",
    "supervision",
]
