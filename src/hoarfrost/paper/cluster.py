"""Runs on a cluster, through Ray. The folder of runs has to be one that all its machines see."""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from hoarfrost.errors import InputError
from hoarfrost.launch import end_with_parent
from hoarfrost.paper.plan import Job, Launch, Planned, log_of
from hoarfrost.reading import open_own


class Cluster:
    """A Ray cluster that runs are sent to; ``jobs`` of them share a GPU, or run at a time where there is none."""

    def __init__(self, address: str, jobs: int) -> None:
        try:
            import ray
        except ImportError:
            raise InputError("--ray needs Ray: pip install 'hoarfrost[ray]'") from None
        self.ray: Any = ray
        check_reachable(address)
        try:
            self.ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = str(error).strip().splitlines()[0]
            hint = "if it asks for a token, set RAY_AUTH_MODE=token"
            raise InputError(f"cannot join a Ray cluster at '{address}': {reason.rstrip('.')}; {hint}") from None
        gpus = self.ray.cluster_resources().get("GPU", 0)
        self.jobs = max(1, int(gpus * jobs)) if gpus else jobs
        """runs at a time, on all machines together"""
        needed = {"num_cpus": 1, "num_gpus": 1 / jobs if gpus else 0, "max_retries": 0}
        self._carried_out = self.ray.remote(**needed)(carried_out)

    def launch(self, folder: Path, data: Path, more: Sequence[str] = ()) -> Launch:
        """Sends runs there, where a machine has room for them."""
        folder, data = folder.absolute(), data.absolute()

        def launch(run: Planned) -> Job:
            return Sent(self.ray, self._carried_out.remote(run.command(folder, data, more), str(log_of(folder, run))))

        return launch

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        """Takes leave of it; the cluster stays."""
        self.ray.shutdown()


def check_reachable(address: str) -> None:
    """Refuses an address where nobody answers: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto", or something that Ray knows better
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise InputError(f"there is no Ray cluster at '{address}': {error}") from None


class Sent:
    """A run that is on its way."""

    def __init__(self, ray: Any, reference: Any) -> None:
        self.ray, self.reference = ray, reference

    def poll(self) -> int | None:
        """Its exit code; 1 where its machine is gone."""
        done, _ = self.ray.wait([self.reference], timeout=0)
        if not done:
            return None
        try:
            code: int = self.ray.get(self.reference)
        except self.ray.exceptions.RayError:
            return 1
        return code

    def terminate(self) -> None:
        """With its process."""
        self.ray.cancel(self.reference, force=True)


def carried_out(command: list[str], log: str) -> int:
    """On a machine of the cluster: the run, with the Python that is there."""
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open_own(Path(log)) as written:
        own = [sys.executable, *command[1:]]
        done = subprocess.run(own, stdout=subprocess.DEVNULL, stderr=written, preexec_fn=end_with_parent, check=False)
    return done.returncode
