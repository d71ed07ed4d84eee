"""Ctrl-C, SIGTERM and SIGHUP end a command in order and with one line; within seconds, whatever it computes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

PATIENCE = 5.0
"""seconds in which a command may end in order; then it ends at once. Files are whole in either case."""


class Ended(KeyboardInterrupt):
    """A signal asked the command to end; whoever waits for Ctrl-C hears of the others too."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def exit_code(number: int) -> int:
    """As shells count it: 130 for Ctrl-C, 143 for SIGTERM."""
    return 128 + number


@contextmanager
def ending(say: Callable[[int], None]) -> Iterator[None]:
    """Within the block a signal that asks to end raises ``Ended``; who is still there after a while is ended at once.

    Python hears of a signal only between two of its own instructions, and one of those can be a minute of arithmetic.
    So a thread hears of it too, and then ``say`` has the last word. What was ignored before, as by nohup, stays so.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    done, (heard, told) = threading.Event(), socket.socketpair()
    told.setblocking(False)
    before = {number: signal.getsignal(number) for number in ENDING}
    answered = [number for number, handler in before.items() if handler != signal.SIG_IGN]
    former = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
    for number in answered:
        signal.signal(number, _raise)
    threading.Thread(target=_watch, args=(heard, done, answered, say), daemon=True).start()
    try:
        yield
    finally:
        done.set()
        for number in answered:
            signal.signal(number, before[number])
        signal.set_wakeup_fd(former)
        told.close()


def _raise(number: int, _frame: FrameType | None) -> NoReturn:
    raise Ended(number)


def _watch(heard: socket.socket, done: threading.Event, answered: list[int], say: Callable[[int], None]) -> None:
    """Waits for a signal, then for the end of the command, and not for ever."""
    with heard:
        while number := int.from_bytes(heard.recv(1)):
            if number in answered and not done.wait(PATIENCE):
                for child in multiprocessing.active_children():  # what reads images
                    child.kill()
                say(number)
                os._exit(exit_code(number))
