"""Functions of the user that rules of mediation call, in a process of their own.

function_calls   the calls of a broker, one after the other, each with its time limit
worker           the process in which the functions run
"""

__all__: list[str] = []
