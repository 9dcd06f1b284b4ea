"""A testbed on one machine.

trial         a network file played by brokers that run, in real time, and reported as a simulation is
processes     those brokers, each a process, with links that can be slowed, cut and healed
traffic       the publishers and subscribers of the file as MQTT clients
widearea      sites in network namespaces, with paths between them that delay, lose, pace and queue packets
emulator      the process that moves those packets: `switch` decides, `direction`, `nat` and `packets` are its parts
certificates  a throw-away authority, and certificates for brokers and clients
"""
