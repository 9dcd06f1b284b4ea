"""A testbed on one machine.

trial         a network file played by brokers that run, in real time, and reported as a simulation is
ground        where it takes place: `sites` in a wide area, or the `loopback` with emulated links
processes     its brokers; `crew` and `players` are its publishers and subscribers, as MQTT clients
tally         what the players saw, judged; `aftermath` is what the brokers recorded of themselves
widearea      sites in network namespaces, with paths between them that delay, lose, pace and queue packets
emulator      the process that moves those packets: `switch` decides, `direction`, `nat` and `packets` are its parts
certificates  a throw-away authority, and certificates for brokers and clients
"""
