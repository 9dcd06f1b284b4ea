"""The management agent in a running broker; imported only where there are [items].

agent_driver  feeds the agent with events of ZooKeeper, links and rates, and publishes the directory
solver        a process of its own that solves states: it may take seconds, and the event loop has none to spare
"""

__all__ = ["agent_driver"]
