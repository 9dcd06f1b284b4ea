"""Publish readings, and an alarm that must arrive within 60 ms.

python examples/clients/publish.py [ADDRESS]
"""

import asyncio
import sys

from overlane.client import ClientError, TopicQos, connect

READINGS = TopicQos(deadline="400ms")
ALARMS = TopicQos(deadline="60ms", reliability="reliable")  # reliable: acknowledged by the broker, too


async def main(address: str = "127.0.0.1:1883") -> None:
    async with connect(address) as client:
        for celsius in (21, 22, 90):
            await client.publish("plant/7/temperature", f"{celsius}", qos=READINGS, retain=True)
            if celsius > 80:
                await client.publish("alarms/7", "overheating", qos=ALARMS, properties={"celsius": f"{celsius}"})
        print("published")


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except ClientError as error:
        sys.exit(str(error))
