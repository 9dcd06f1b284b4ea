"""Testbed: real brokers in an emulated wide area on one machine.

trial             runs the traffic and events of a network file on real brokers, and reports as the simulator does
environment       where brokers run: `siteenvironment` in a wide area, or `loopback` with links emulated by the brokers
processes         the broker processes; `clientprocesses` and `trialclients` are publishers and subscribers
deliveryreport    the report of deliveries, as seen by the clients; `routereport` that of routes, from telemetry
widearea          sites in network namespaces, joined by paths that delay, lose, pace and queue packets
emulator          the process that moves those packets: `switch` decides, `direction`, `nat` and `packets` are its parts
certificates      a disposable certificate authority, and certificates for brokers and clients
"""
