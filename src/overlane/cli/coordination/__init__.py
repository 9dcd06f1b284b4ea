"""Commands around ZooKeeper: an ensemble on this machine."""
