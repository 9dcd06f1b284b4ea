"""Ask a question and get its answer: MQTT 5's response topic and correlation data.

python examples/clients/request_reply.py [ADDRESS]
"""

import asyncio
import sys

from overlane.client import Client, ClientError, Subscription, connect


async def serve(client: Client, questions: Subscription) -> None:
    """Answers each question on its response topic."""
    async for question in questions:
        if question.response_topic is not None:
            answer = int(question.text) ** 2
            data = question.correlation_data
            await client.publish(question.response_topic, f"{answer}", qos=1, correlation_data=data)


async def ask(client: Client, numbers: list[int]) -> dict[int, int]:
    """Asks all questions at once; the correlation data assigns answers to questions."""
    inbox = f"squares/answers/{client.client_id}"
    answers: dict[int, int] = {}
    async with client.subscribe(inbox, qos=1) as replies:
        for number in numbers:
            question = number.to_bytes(4)
            await client.publish("squares/ask", f"{number}", qos=1, response_topic=inbox, correlation_data=question)
        async for reply in replies:
            answers[int.from_bytes(reply.correlation_data or b"")] = int(reply.text)
            if len(answers) == len(numbers):
                break
    return answers


async def main(address: str = "127.0.0.1:1883") -> None:
    async with connect(address) as client, connect(address) as server, server.subscribe("squares/ask") as questions:
        serving = asyncio.create_task(serve(server, questions))
        print(await ask(client, [3, 5, 12]))
        serving.cancel()


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except ClientError as error:
        sys.exit(str(error))
