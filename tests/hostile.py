"""Files as a stranger or a failing disk would leave them, from a seed, so that any number of cases can be tried."""

from __future__ import annotations

import numpy as np


def mutated(content: bytes, seed: int) -> bytes:
    """The content with one to eight random changes: bytes replaced, removed, repeated, or the end cut off."""
    random, found = np.random.default_rng(seed), bytearray(content)
    for _ in range(int(random.integers(1, 9))):
        place, length = int(random.integers(0, len(found) + 1)), int(random.integers(1, 9))
        part = found[place : place + length]
        match int(random.integers(0, 5)):
            case 0:
                found[place : place + length] = random.bytes(length)
            case 1:
                del found[place : place + length]
            case 2:
                found[place:place] = part
            case 3:
                found[place : place + 1] = bytes([int(random.choice([0, 1, 0x7F, 0x80, 0xFF]))])
            case _:
                if random.random() < 0.2:
                    del found[place:]
    return bytes(found)
