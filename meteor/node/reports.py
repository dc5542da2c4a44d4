"""What a peer says of itself: `meteor status`, `meteor ring`, and surveys of the ring."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from arms.message import Kind
from meteor.ring.arcs import RING_SIZE, size
from meteor.transport.frames import Value
from meteor.version import VERSION

if TYPE_CHECKING:
    from meteor.node.node import Node


def report_of(node: Node) -> dict[str, Any]:
    """Say how a peer is."""
    overlay, now_ms = node.overlay, node.now_ms()
    counts = node.store.counts(now_ms, overlay.spans)
    stored = sum(node.store.counts(now_ms).values())
    predecessor, successor = overlay.predecessor, overlay.successor
    return {
        "id": node.me.id,
        "address": node.me.address,
        "version": VERSION,
        "pid": os.getpid() if node.pace is None else 0,
        "space": node.space.name,
        "up_seconds": round((node.now_ms() - node.started_ms) / 1000, 1),
        "low": overlay.low,
        "share": size(overlay.spans) / RING_SIZE,
        "data": counts[Kind.DATA],
        "interests": counts[Kind.INTEREST],
        "advertisements": counts[Kind.ADVERTISEMENT],
        "copies_for_others": stored - sum(counts.values()),
        "copies_at": node.replicas.report(),
        "voters_change": node.voting.renewing,
        "in_doubt": {
            peer.address: size(spans) / RING_SIZE
            for peer, spans in overlay.doubts(overlay.spans).items()
        },
        "clients": len(node.sessions),
        "notifications_lost": node.sessions.lost,
        "predecessor": predecessor.address if predecessor else None,
        "successor": successor.address if successor else None,
        "successors": [peer.address for peer in overlay.successors],
        "known_peers": len(overlay.known()),
        "space_version": node.space.version,
        "serves_clients": node.serves_clients,
        "move": node.move.report(),
        "sample": node.move.sample,
    }


def load_of(node: Node, share: float) -> Value:
    """Say what a joining peer needs to know to choose its place, at a share of the data."""
    overlay, now_ms = node.overlay, node.now_ms()
    data = node.store.counts(now_ms, overlay.spans)[Kind.DATA]
    middle = node.store.quantile(now_ms, overlay.spans, share)
    return [node.me.id, overlay.low, data, size(overlay.spans) / RING_SIZE, middle]
