"""Who started this process: ``torchrun`` and SLURM start several that work together, and say so in the environment."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass


def end_with_parent() -> None:
    """Has this process asked to end when the one that started it is gone, however that came about; on Linux."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)


PATIENCE = 5.0
"""seconds that a process waits for the first one, before it leaves it to that one to speak"""


@dataclass(frozen=True)
class Launched:
    """What the launcher told this process."""

    rank: int = 0
    """counted over all machines"""
    local: int = 1
    """processes on this machine"""
    machines: int = 1

    @property
    def processes(self) -> int:
        """All of them."""
        return self.local * self.machines

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def first_to_refuse(self) -> bool:
        """Whether no other process has asked this before: of what several refuse, one speaks."""
        refusals = self._refusals(1)
        return self.is_first if refusals is None else refusals == 1

    def is_refused(self) -> bool:
        """Whether another process has refused to go on, and said why."""
        return bool(self._refusals(0))

    def _refusals(self, more: int) -> int | None:
        """How many processes have refused by now, with ``more``; None where they cannot know of each other."""
        if self.processes == 1:
            return None
        try:
            place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            self._await(place)
            from datetime import timedelta

            from torch.distributed import TCPStore  # type: ignore[attr-defined]

            store = TCPStore(*place, is_master=False, timeout=timedelta(seconds=3))
            start = os.environ.get("TORCHELASTIC_RUN_ID"), os.environ.get("TORCHELASTIC_RESTART_COUNT")
            return int(store.add(f"hoarfrost/refusals/{start}", more))
        except Exception:  # nobody is there to ask
            return None

    def _await(self, place: tuple[str, int]) -> None:
        """Until someone listens there; PyTorch would write pages about its waiting.

        Without torchrun that is the first process, once it has got so far: it alone need not wait.
        """
        until = time.monotonic() + (0 if self.is_first else PATIENCE)
        while True:
            try:
                socket.create_connection(place, timeout=3).close()
            except OSError:
                if time.monotonic() >= until:
                    raise
                time.sleep(0.1)
            else:
                return

    @classmethod
    def detect(cls) -> Launched:
        """By ``torchrun``, by SLURM's ``srun``, or as one process."""
        told = os.environ
        if "TORCHELASTIC_RUN_ID" in told:
            local = int(told["LOCAL_WORLD_SIZE"])
            return cls(int(told["RANK"]), local, int(told["WORLD_SIZE"]) // local)
        # A shell that SLURM opened has its variables too, and is one process.
        if "SLURM_NTASKS" in told and told.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
            machines = int(told.get("SLURM_NNODES", "1"))
            return cls(int(told.get("SLURM_PROCID", "0")), int(told["SLURM_NTASKS"]) // machines, machines)
        return cls()
