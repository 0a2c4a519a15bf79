"""Which edge does a channel line add to? A look into two tables, because the pieces of such lines repeat.

``Channel 07/0 : 3[3] -> 8[0] [send] via NET/IB/1/GDRDMA``: the head (left of the colon) holds the channel, the lane
(right of it) is shared by all channels of one edge and device. Every line has its own channel, so that whole lines
hardly ever come twice in a job; heads and lanes do.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from .transports import Channel, channel_of

Lanes = Dict[bytes, Channel]
HEADS: Dict[bytes, Tuple[Lanes, int]] = {}  # head -> lanes that were read behind such a head, and the channel's bit
_LANES: Dict[bytes, Lanes] = {}  # what a head says besides its channel -> lanes
_LIMIT = 8_000
_LONGEST = 200


def lane_of(text: bytes) -> Optional[Tuple[Channel, int]]:
    """Return a channel line's lane and the bit of its channel; None where it is none, or torn."""
    head, _, rest = text.partition(b" : ")
    known = HEADS.get(head)
    if known is not None:
        lane = known[0].get(rest)
        if lane is not None:
            return lane, known[1]
    channel = channel_of(text)
    if channel is None:
        return None
    if len(text) > _LONGEST:  # what stands behind the channel comes once
        return channel, channel.bit
    word, _, number = head.partition(b" ")
    if len(_LANES) >= 64:  # connections are 0 and 1
        _LANES.clear()
        HEADS.clear()
    lanes = _LANES.setdefault(word[:4] + number.partition(b"/")[2], {})
    if len(HEADS) >= _LIMIT:
        HEADS.clear()
    if len(lanes) >= _LIMIT:
        lanes.clear()
    HEADS[head] = (lanes, channel.bit)
    # The first channel stands for its lane; edges are kept by identity of lanes, so one that is known stays.
    return lanes.setdefault(rest, channel), channel.bit
