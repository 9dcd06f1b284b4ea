"""The commands: the module of each, and the sentence that `overlane --help` shows.

The module of a command has a function of that name, or an `app` with subcommands. It is imported when the command runs:
listing the commands imports none of them.
"""

from typing import NamedTuple


class Command(NamedTuple):
    module: str
    help: str
    """The first sentence of the command's own help."""


COMMANDS = {
    "demo": Command(
        "overlane.cli.simulation.demo",
        "Run five brokers, slow and cut a link, kill a broker, and show what happens to the messages.",
    ),
    "init": Command("overlane.cli.brokers.init", "Write a first network file, with comments."),
    "check": Command(
        "overlane.cli.brokers.check",
        "Check a network file and all requirements of its brokers: files, certificates, users, ports, disk.",
    ),
    "mediate": Command(
        "overlane.cli.brokers.mediate",
        "Show the effect of the rules in [[mediation]]: read messages as JSON lines, print the result of each.",
    ),
    "up": Command("overlane.cli.brokers.up", "Run all brokers of a network file until Ctrl-C, each as a process."),
    "broker": Command("overlane.cli.brokers.broker", "Run one broker of a network file until Ctrl-C or SIGTERM."),
    "gateway": Command(
        "overlane.cli.brokers.gateway",
        "Run one gateway of a network file until Ctrl-C or SIGTERM: messages to and from a foreign broker.",
    ),
    "pub": Command(
        "overlane.cli.client.pub", "Publish one message, lines of text, or generated messages at a given rate."
    ),
    "sub": Command("overlane.cli.client.sub", "Subscribe to topics: print messages, or show their rate or latency."),
    "status": Command(
        "overlane.cli.admin.status",
        "Show the state of brokers: clients, traffic, queues, store, links, dropped and refused messages.",
    ),
    "clients": Command(
        "overlane.cli.admin.clients",
        "Show clients with their queues and traffic, including disconnected clients with a session.",
    ),
    "disconnect": Command(
        "overlane.cli.admin.disconnect",
        "Disconnect a client, which may reconnect; with --session, delete its session too.",
    ),
    "topics": Command(
        "overlane.cli.admin.topics",
        "Show the topics with the most messages published by clients; with --watch, message rates too.",
    ),
    "retained": Command(
        "overlane.cli.admin.retained", "Show retained messages by topic, or remove them at all brokers."
    ),
    "links": Command(
        "overlane.cli.admin.links",
        "Show links and their paths: state, transport, one-way latency, jitter, loss and queue.",
    ),
    "routes": Command(
        "overlane.cli.admin.routes",
        "Show routes: topics, destinations, paths, latency, and the cause of the last change.",
    ),
    "reservations": Command(
        "overlane.cli.admin.reservations",
        "Show reservations: class, traffic, rate, path, share of each link, delay bound and measured delay.",
    ),
    "gateways": Command(
        "overlane.cli.admin.gateways",
        "Show gateways to foreign brokers: state, traffic in both directions, backlog, and the last error.",
    ),
    "join": Command("overlane.cli.brokers.join", "Announce a new broker to its neighbours, and run it."),
    "leave": Command(
        "overlane.cli.brokers.leave",
        "Remove a broker from a running network: the other brokers keep no messages for it, and it shuts down.",
    ),
    "passwd": Command("overlane.cli.brokers.passwd", "Set a password, add a key, remove a user, or list all users."),
    "certs": Command(
        "overlane.cli.brokers.certs",
        "Create and renew certificates of brokers, servers and clients with your own certificate authority.",
    ),
    "zookeeper": Command(
        "overlane.cli.coordination.zookeeper",
        "Run a ZooKeeper ensemble on this machine until Ctrl-C, and print its addresses when it is ready.",
    ),
    "config": Command("overlane.cli.coordination.config", "Keep the configuration of an overlay in ZooKeeper."),
    "brokers": Command(
        "overlane.cli.coordination.overview",
        "Show the brokers that are registered in ZooKeeper: role, domain, addresses, load, and the leader.",
    ),
    "assignments": Command(
        "overlane.cli.coordination.overview",
        "Show the routing broker of each bundle of topics, with the time and the reason, and the edges that use it.",
    ),
    "directory": Command(
        "overlane.cli.admin.directory",
        "Show items with their primary and mirror brokers, or those of one topic, and the risk of each broker.",
    ),
    "drain": Command(
        "overlane.cli.coordination.drain", "Move all items away from a broker, so that it can be stopped."
    ),
    "undrain": Command("overlane.cli.coordination.drain", "Allow items on a drained broker again."),
    "recovery": Command(
        "overlane.cli.coordination.recovery",
        "Show where brokers run, which hosts have copies of them, and move a broker to another host.",
    ),
    "testbed": Command(
        "overlane.cli.simulation.testbed",
        "Run the traffic and events of a network file on real brokers, in an emulated wide area on this machine.",
    ),
    "monitor": Command(
        "overlane.cli.brokers.monitor", "Serve a web page that shows brokers, links and routes live, until Ctrl-C."
    ),
    "simulate": Command(
        "overlane.cli.simulation.simulate", "Simulate a network in virtual time and report delivery per topic."
    ),
    "plan": Command(
        "overlane.cli.plan",
        "Solve planning problems (paths, allocation, mirrors, channels, reservations) and roll out plans to brokers.",
    ),
    "pipeline": Command(
        "overlane.cli.pipeline",
        "Compute load profiles, reliability, compliance and plans from telemetry, on Spark.",
    ),
    "version": Command("overlane.cli.version", "Print the version."),
}
