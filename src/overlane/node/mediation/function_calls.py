"""Calls of functions of the user: one after the other, in the order of the messages, each with its time limit.

There is one process for all functions of a broker, started by the first call. A function that takes longer than it may,
or whose process ends, has failed for that message; the next call starts a new process. What a module does when it is
imported has a limit of its own, and is not counted as a call.
"""

import asyncio
import logging
import os
import sys
from collections import deque
from contextlib import suppress

import msgspec

from overlane.core.units import SECOND
from overlane.mediation.functions import FunctionMessage
from overlane.node.driver import Driver
from overlane.node.mediation.worker import Answer
from overlane.pubsub.contract.questions import CallFunction

LOAD_WITHIN_S = 30.0

log = logging.getLogger("overlane.mediation")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Answer).decode


class FunctionCalls:
    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._calls: deque[CallFunction] = deque()
        self._task: asyncio.Task[None] | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._loaded: set[str] = set()
        """Functions that the process has imported."""

    def call(self, question: CallFunction) -> None:
        self._calls.append(question)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        self._calls.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._end_process()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        self._driver.failures.look_at(task, "a function of mediation")

    async def _run(self) -> None:
        while self._calls:
            question = self._calls.popleft()
            message, failure = await self._answer(question)
            self._driver.server.pubsub.mediating.returned(question.number, message, failure, self._driver.clock.now())
            self._driver.end_turn_soon()

    async def _answer(self, question: CallFunction) -> tuple[FunctionMessage | None, str]:
        within_s = question.within_ns / SECOND
        if question.function not in self._loaded:
            _, failure = await self._exchange(question, None, LOAD_WITHIN_S)
            if failure:
                return None, failure
            self._loaded.add(question.function)
        return await self._exchange(question, question.message, within_s)

    async def _exchange(
        self, question: CallFunction, message: FunctionMessage | None, within_s: float
    ) -> tuple[FunctionMessage | None, str]:
        written = _encode((question.number, question.function, within_s, message))
        try:
            process = await self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(len(written).to_bytes(4) + written)
            async with asyncio.timeout(within_s):
                length = int.from_bytes(await process.stdout.readexactly(4))
                _, returned, failure = _decode(await process.stdout.readexactly(length))
        except TimeoutError:
            await self._end_process()
            return None, f"{question.function} has not returned within {within_s:g} s"
        except (OSError, asyncio.IncompleteReadError) as error:
            await self._end_process()
            log.warning("mediation: the process of %s has ended: %s", question.function, error)
            return None, f"the process of {question.function} has ended"
        except BaseException:
            await self._end_process()  # or the next answer would be that of this call
            raise
        return returned, failure

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", "overlane.node.mediation.worker"),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
                start_new_session=True,
            )
        return self._process

    async def _end_process(self) -> None:
        process, self._process = self._process, None
        self._loaded.clear()
        if process is not None and process.returncode is None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
