"""Addresses of clusters where nobody answers."""

from __future__ import annotations

import socket

import pytest

from hoarfrost.errors import InputError
from hoarfrost.paper.cluster import check_reachable


@pytest.mark.parametrize("form", ["{}:{}", "ray://{}:{}"])
def test_an_address_is_tried_before_ray_is(form: str) -> None:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        port = listening.getsockname()[1]
        check_reachable(form.format("127.0.0.1", port))
    with pytest.raises(InputError, match=f"no Ray cluster at '{form.format('127.0.0.1', port)}'"):
        check_reachable(form.format("127.0.0.1", port))


def test_what_is_no_address_is_left_to_ray() -> None:
    check_reachable("auto")
