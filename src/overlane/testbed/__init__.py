"""Testbed: real brokers in an emulated wide area on one machine.

trial             runs the traffic and events of a network file on real brokers, and reports as the simulator does
environment       where brokers run: `site_environment` in a wide area, or `loopback` with links emulated by the brokers
processes         the broker processes; `client_processes` and `trial_clients` are publishers and subscribers
delivery_report    the report of deliveries, as seen by the clients; `route_report` that of routes, from telemetry
wide_area          sites in network namespaces, joined by paths that delay, lose, pace and queue packets
emulator          the process that moves those packets: `switch` decides, `direction`, `nat` and `packets` are its parts
certificates      a disposable certificate authority, and certificates for brokers and clients
"""

__all__ = ["client_processes", "environment", "loopback", "processes", "trial", "trial_clients", "wide_area"]
