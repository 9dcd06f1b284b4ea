"""Show alarms and readings as they come, until Ctrl-C or after COUNT messages.

python examples/clients/subscribe.py [ADDRESS [COUNT]]
"""

import asyncio
import sys

from overlane.client import ClientError, connect

FILTERS = "alarms/#", "plant/+/temperature"


async def main(address: str = "127.0.0.1:1883", count: str = "0") -> None:
    shown = 0
    # The deadline can only tighten the one in the brokers' configuration.
    async with connect(address) as client, client.subscribe(*FILTERS, qos=1, deadline="50ms") as messages:
        print("listening", flush=True)
        async for message in messages:
            print(message.topic, message.text, message.properties, flush=True)
            shown += 1
            if shown == int(count):
                break


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        pass
    except ClientError as error:
        sys.exit(str(error))
