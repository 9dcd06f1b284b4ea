"""A broker's part in the coordination through ZooKeeper. Imported only where there is `[coordination]`.

options     what a broker is told about it, without importing any of it
own_network the network of a broker without a file: the configuration in ZooKeeper, and its own addresses
overlay_cache what is known of the overlay, on disk, for a start without ZooKeeper
load        how loaded this broker is
launcher    routing brokers are started and ended, as the leader wants them
starting    the configuration that a broker without a file starts with
joining     what of the broker the coordination is shown, and what it gives back
driver      the participant in the event loop: ZooKeeper's events in, configuration of the broker out
"""

__all__ = ["options", "starting"]
