"""What clients may rely on, each rule judged from outside the brokers: by what clients sent and got.

    history      when brokers were down, and when their disks were in trouble
    retained     the last retained message of each topic, for new subscriptions
    wills        messages for clients that are lost
    groups       shared subscriptions: one member gets a message
    keep_alive   connections of silent clients end, and no others

That messages arrive, once and in order, is judged by `whole.judge`, which tells these what it is told.
"""

__all__: list[str] = []
