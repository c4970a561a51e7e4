"""From bytes to a handler and back, the same for every transport.

A transport finds the method by its path, hands over what came, and gets bytes or a `TailraceError`. Whatever
else a handler raises is a bug of ours: it is logged under a reference, and the caller gets the reference and
nothing of the text, which may hold what the caller must not see.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import DecodeError

from tailrace.cluster.common.errors import ErrorCode, TailraceError
from tailrace.cluster.rpc.service import CallContext, Codec, Method, Service
from tailrace.cluster.runtime.logs import get_logger

log = get_logger(__name__)

_references = itertools.count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One method of a service that is served."""

    path: str
    method: Method
    max_message_bytes: int

    async def unary(self, data: bytes, context: CallContext) -> bytes:
        handler = self.method.unary
        assert handler is not None
        try:
            request = decode(self.method.request, data, self.path, self.max_message_bytes)
            return self._encode(await handler(request, context))
        except TailraceError:
            raise
        except Exception as error:
            raise self._unexpected(error) from None

    async def stream(
        self, requests: AsyncIterator[bytes], context: CallContext
    ) -> AsyncGenerator[bytes, None]:
        handler = self.method.stream
        assert handler is not None
        try:
            async with aclosing(self._decoded(requests)) as decoded:
                responses = handler(decoded, context)
                try:
                    async for response in responses:
                        yield self._encode(response)
                finally:
                    await _close(responses)
        except TailraceError:
            raise
        except Exception as error:
            raise self._unexpected(error) from None

    async def _decoded(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
        async for data in requests:
            yield decode(self.method.request, data, self.path, self.max_message_bytes)

    def _encode(self, response: Any) -> bytes:
        data = self.method.response.encode(response)
        if len(data) > self.max_message_bytes:
            raise TailraceError(
                ErrorCode.INVALID_REQUEST,
                f"the answer of {self.path} would have {len(data)} bytes, more than the"
                f" {self.max_message_bytes} that are allowed; ask for less at once",
            )
        return data

    def _unexpected(self, error: Exception) -> TailraceError:
        reference = f"{self.path}#{next(_references)}"
        log.error("rpc_handler_failed", path=self.path, reference=reference, exc_info=error)
        return TailraceError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the server failed in a way it did not expect; its log says more at reference {reference}",
        )


def bind(services: Sequence[Service]) -> dict[str, Bound]:
    """Every method by its path."""
    table: dict[str, Bound] = {}
    for service in services:
        for name, method in service.methods.items():
            if (method.unary is None) == (method.stream is None):
                raise ValueError(f"{service.path(name)} needs exactly one handler, unary or stream")
            bound = Bound(path=service.path(name), method=method, max_message_bytes=service.max_message_bytes)
            if table.setdefault(bound.path, bound) is not bound:
                raise ValueError(f"{bound.path} is served twice")
    return table


def decode(codec: Codec, data: bytes, path: str, limit: int) -> Any:
    """A message that came; INVALID_REQUEST if it is too large or cannot be read."""
    if len(data) > limit:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST, f"a message of {len(data)} bytes to {path} is larger than {limit}"
        )
    try:
        return codec.decode(data)
    except (DecodeError, ValueError):
        raise TailraceError(ErrorCode.INVALID_REQUEST, f"a message to {path} cannot be read") from None


def encode(codec: Codec, message: Any, path: str, limit: int) -> bytes:
    """A request that is to be sent; INVALID_REQUEST if it is too large."""
    data = codec.encode(message)
    if len(data) > limit:
        raise TailraceError(
            ErrorCode.INVALID_REQUEST,
            f"a request of {len(data)} bytes to {path} is larger than the allowed {limit}; send less",
        )
    return data


def decode_answer(codec: Codec, data: bytes, path: str) -> Any:
    try:
        return codec.decode(data)
    except (DecodeError, ValueError):
        raise TailraceError(
            ErrorCode.UNSUPPORTED_VERSION, f"the answer of {path} cannot be read; is it of another release?"
        ) from None


async def _close(responses: AsyncIterator[Any]) -> None:
    """A handler is told at once that it is over, and not when its garbage is collected."""
    close: Callable[[], Any] | None = getattr(responses, "aclose", None)
    if close is not None:
        await close()
