"""The paper's testbed: 64 peers over real TCP, against a matcher that looks at everything."""

from __future__ import annotations

from pathlib import Path
from random import Random

import trio

from arms.profile import Profile
from meteor.client import Post, Ring, connect
from tests.meteor.rings import ring_of

TYPES = ["temperature", "temperate", "humidity", "light", "sound", "power"]
LOCATIONS = ["kitchen", "kitchenette", "lab", "lab2", "hall", "Roof", "αίθουσα"]


def data_profile(random: Random) -> str:
    parts = [f"type={random.choice(TYPES)}"]
    if random.random() < 0.8:
        parts.append(f'location="{random.choice(LOCATIONS)}"')
    if random.random() < 0.8:
        parts.append(f"degree={random.choice([random.randint(-60, 170), random.random() * 100])}")
    if random.random() < 0.3:
        parts.append(f"error<{random.choice([0.01, 0.1, 1])}")
    if random.random() < 0.2:
        parts.append("calibrated")
    random.shuffle(parts)
    return ", ".join(parts)


def interest_profile(random: Random) -> str:
    def element() -> str:
        low = random.randint(-60, 170)
        return random.choice(
            [
                f"type={random.choice(TYPES)}",
                f"type={random.choice(TYPES)[: random.randint(1, 5)]}*",
                "type=*",
                f'location="{random.choice(LOCATIONS)}"',
                f'location="{random.choice(LOCATIONS)[:2]}"*',
                "location=*",
                f"degree={low}..{low + random.randint(0, 80)}",
                f"degree{random.choice(['<', '<=', '>', '>='])}{low}",
                "degree",
                "error<0.1",
                "calibrated",
            ]
        )

    groups = [
        ", ".join(element() for _ in range(random.randint(1, 3)))
        for _ in range(random.randint(1, 2))
    ]
    return " | ".join(groups)


async def found(client: Ring, interest: str) -> list[str]:
    retrieval = client.retrieve(interest)
    items = await retrieval.all()
    assert retrieval.complete, f"{interest}: not complete"
    return sorted(item.text for item in items)


async def test_64_peers_give_exactly_what_brute_force_gives(tmp_path: Path) -> None:
    random = Random(64)
    async with ring_of(64, tmp_path, stabilise_seconds=1.0, sync="normal") as ring:
        addresses = list(ring.addresses.values())
        stored: dict[str, Profile] = {}
        async with (
            connect(addresses[0], seconds=60) as one,
            connect(addresses[40], seconds=60) as other,
        ):
            profiles = [data_profile(random) for _ in range(600)]
            posts = [Post(profile, str(i)) for i, profile in enumerate(profiles)]
            receipts = await one.post_many(posts)
            assert all(receipt.complete for receipt in receipts)
            stored = {str(i): Profile.parse(profile) for i, profile in enumerate(profiles)}

            for _ in range(60):
                text = interest_profile(random)
                interest = Profile.parse(text)
                expected = sorted(i for i, data in stored.items() if interest.selects(data))
                assert await found(other, text) == expected, text

            # Watchers at several peers are told of each match once, wherever it is posted.
            text = interest_profile(random)
            interest = Profile.parse(text)
            async with other.watch(text) as matches:
                profiles = [data_profile(random) for _ in range(100)]
                posts = [Post(profile, f"w{i}") for i, profile in enumerate(profiles)]
                receipts = await one.post_many(posts)
                expected = [
                    f"w{i}" for i, p in enumerate(profiles) if interest.selects(Profile.parse(p))
                ]
                assert sum(receipt.matches for receipt in receipts) == len(expected)
                heard: list[str] = []
                with trio.fail_after(30):
                    while len(heard) < len(expected):
                        heard.append((await anext(matches)).text)
                assert sorted(heard) == sorted(expected)
