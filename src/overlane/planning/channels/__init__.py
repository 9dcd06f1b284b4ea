"""The mapping problem: a few multicast channels for many subscriptions, the rest by unicast."""

from overlane.planning.channels.model import Advertisement, Channel, Cost, check, cost_of
from overlane.planning.channels.plan import ChannelPlan, plan_channels

__all__ = ["Advertisement", "Channel", "ChannelPlan", "Cost", "check", "cost_of", "plan_channels"]
