"""Orders that survive crashes: QoS 1 and a persistent session.

The worker crashes during its work. Its next run gets unfinished orders, and those that arrived meanwhile.

python examples/clients/reliable_orders.py [ADDRESS]
"""

import asyncio
import sys

from overlane.client import Client, connect


def worker(address: str) -> Client:
    # The client id identifies the session; the broker keeps orders for an hour.
    return connect(address, client_id="order-worker", session_expiry="1h")


async def work(address: str, die_at: str) -> None:
    async with worker(address) as client:
        async for order in client.subscribe("orders/#", qos=1):
            if order.text == die_at:
                raise RuntimeError(f"crashed while working on {order.text}")
            print("done:", order.text)  # asking for the next order acknowledges this one
            if order.text == "order 4":
                return


async def sell(address: str, *orders: str) -> None:
    async with connect(address) as client:
        for order in orders:
            await client.publish("orders/web", order, qos=1)  # returns when the broker has it


async def main(address: str = "127.0.0.1:1883") -> None:
    async with worker(address) as client:
        await client.subscribe("orders/#", qos=1).ready()  # from now on the broker keeps orders for it
    await sell(address, "order 1", "order 2")
    try:
        await work(address, die_at="order 2")
    except RuntimeError as error:
        print(error)
    await sell(address, "order 3", "order 4")
    await work(address, die_at="never")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
