"""A testbed on one machine.

trial         a network file played by brokers that run, in real time, and reported as a simulation is
processes     those brokers, each a process, with links that can be slowed, cut and healed
traffic       the publishers and subscribers of the file as MQTT clients
certificates  a throw-away authority, and certificates for brokers and clients
"""
