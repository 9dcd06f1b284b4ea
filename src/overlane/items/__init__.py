"""Items: groups of topics with a primary broker and a mirror, and the management agents that place them. Pure.

    directory   which brokers carry a topic: entries, lookup, and the JSON that clients and people read
    policy      a placement of all items at one moment; what to do before a better one has been computed
    rates       measured rates: mean, covariance, the risk of an overload, and the bottleneck detector
    votes       which brokers have failed, by what the others report of them
    plans       the plan of a domain with its case base, and the policies of states that it lacks
    records     what agents write into znodes
    master      what the master decides
    mastership  which agent is the master
    switching_off   which brokers are not needed at a low load
    agent       the management agent of one broker: all of the above put together
    switching   a client's part: which of the two brokers it publishes an item to

Time, events and measurements are arguments. `node/items/` drives an agent in a broker, `client/items/` the client's
part, `sim/items/` both of them in virtual time.
"""

__all__ = [
    "agent",
    "directory",
    "master",
    "mastership",
    "plans",
    "policy",
    "rates",
    "records",
    "switching",
    "switching_off",
    "votes",
]
