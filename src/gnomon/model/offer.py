"""What a worker offers: what it tells the others of what it serves, with every heartbeat."""

from __future__ import annotations

import msgspec


class Offer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which queues, and which of the needs that rows have just now; see `model.need`."""

    only: tuple[str, ...] = ()  # these queues and no others; none named: all
    never: tuple[str, ...] = ()  # not these
    needs: tuple[str, ...] = ()

    @property
    def is_choosy(self) -> bool:
        """Whether there are queues that it does not serve."""
        return bool(self.only or self.never)

    def has_queue(self, queue: str) -> bool:
        """Whether it serves the queue."""
        return queue not in self.never and (not self.only or queue in self.only)


ALL_QUEUES = Offer()
_DECODER = msgspec.json.Decoder(Offer)


def encode_offer(offer: Offer) -> str:
    """As it is stored; nothing at all for a worker with nothing to say."""
    return "" if offer == ALL_QUEUES else msgspec.json.encode(offer).decode()


def read_offer(text: str) -> Offer:
    """The other way. What another version wrote otherwise is no reason to fail: then it is as if
    it had said nothing."""
    if not text:
        return ALL_QUEUES
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError:
        return ALL_QUEUES
