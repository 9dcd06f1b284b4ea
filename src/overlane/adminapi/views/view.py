"""The base of all bodies of the admin API, and the error of a failed request."""

import msgspec


class View(msgspec.Struct, frozen=True, kw_only=True):
    """A response body, or a part of one."""


class ErrorView(View, frozen=True, kw_only=True):
    """Why a request failed."""

    error: str
