"""Who started this process: ``torchrun`` and SLURM start several that work together, and say so in the environment."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from dataclasses import dataclass


def end_with_parent() -> None:
    """Has this process asked to end when the one that started it is gone, however that came about; on Linux."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGTERM)


PATIENCE = 3.0
"""seconds in which the first process says what all of them refuse"""


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

    def leave_it_to_the_first(self) -> None:
        """Of what all processes refuse the first one speaks: torchrun would end it as soon as another one is gone."""
        if not self.is_first:
            time.sleep(PATIENCE)

    @classmethod
    def detect(cls) -> Launched:
        """By ``torchrun``, by SLURM's ``srun``, or as one process."""
        told = os.environ
        if "TORCHELASTIC_RUN_ID" in told:
            local = int(told["LOCAL_WORLD_SIZE"])
            return cls(int(told["RANK"]), local, int(told["WORLD_SIZE"]) // local)
        # Only srun starts several, as a step of a job. A shell that SLURM opened or a script of sbatch knows the job's
        # number of tasks too, and is one process.
        if "SLURM_STEP_ID" in told and told.get("SLURM_JOB_NAME") not in ("bash", "interactive"):
            tasks = int(told.get("SLURM_STEP_NUM_TASKS", told.get("SLURM_NTASKS", "1")))
            machines = int(told.get("SLURM_STEP_NUM_NODES", told.get("SLURM_NNODES", "1")))
            return cls(int(told.get("SLURM_PROCID", "0")), tasks // machines, machines)
        return cls()
