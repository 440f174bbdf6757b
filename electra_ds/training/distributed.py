"""Who and where this process is, and how the ranks talk.

One program runs under ``deepspeed``, ``torchrun``, ``srun``, ``mpirun`` and alone. All of them come down to
the variables RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, which :func:`set_rank_variables`
fills in where the launcher did not.

Besides DeepSpeed's group for gradients (NCCL on GPUs) there is a control group on the CPUs (gloo) for the
few numbers a step needs to know before it starts: it never touches the device, so it never stalls one.
"""

import datetime
import os
import socket
import warnings
from typing import Any

from electra_ds.config.errors import InputError

_MPI_MARKS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


def set_rank_variables() -> bool:
    """Fill RANK and the rest from Slurm, or for a single process. Returns whether MPI is to be asked."""
    env = os.environ
    if "RANK" in env and "WORLD_SIZE" in env:
        env.setdefault("LOCAL_RANK", "0")
        return False
    if any(int(env.get(mark, "1")) > 1 for mark in _MPI_MARKS):
        return True
    # Inside `srun` only: a batch script has SLURM_NTASKS too, but is not one of the tasks.
    if int(env.get("SLURM_STEP_NUM_TASKS", "1")) > 1 and "SLURM_STEP_ID" in env:
        env["RANK"], env["WORLD_SIZE"] = env["SLURM_PROCID"], env["SLURM_STEP_NUM_TASKS"]
        env["LOCAL_RANK"] = env["SLURM_LOCALID"]
        env.setdefault("MASTER_ADDR", env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"))
        env.setdefault("MASTER_PORT", str(20_000 + int(env["SLURM_JOB_ID"]) % 20_000))
        return False
    env.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    env["MASTER_ADDR"], env["MASTER_PORT"] = "127.0.0.1", str(free_port())
    return False


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def choose_accelerator() -> None:
    """Tell DeepSpeed, before it is imported, that there is no GPU; it would warn about finding none."""
    import torch

    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def prepare_accelerator() -> None:
    """Choose the device, and keep DeepSpeed from compiling anything on CPUs."""
    choose_accelerator()
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    if get_accelerator().device_name() == "cpu":
        # DeepSpeed would build a shared-memory all-reduce at start: most of a minute with a compiler, and a
        # lock file that hangs every later run if it is interrupted. Gloo does the same work.
        vars(deepspeed.ops)["__compatible_ops__"] = {}


class Ranks:
    """The group of all processes of the run, after :func:`connect`."""

    def __init__(self, timeout: datetime.timedelta) -> None:
        import torch
        import torch.distributed as dist

        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self.local_rank = int(os.environ["LOCAL_RANK"])
        from deepspeed.accelerator import get_accelerator

        accelerator = get_accelerator()
        self.on_gpu = accelerator.device_name() != "cpu"
        name = accelerator.device_name(self.local_rank) if self.on_gpu else "cpu"
        self.device = torch.device(name)
        self._control = dist.new_group(backend="gloo", timeout=timeout)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which writes logs and the run folder."""
        return self.rank == 0

    def sum_integers(self, *values: int) -> list[int]:
        """Each value summed over the ranks, through the control group."""
        import torch
        import torch.distributed as dist

        numbers = torch.tensor(values, dtype=torch.int64)
        if self.world_size > 1:
            dist.all_reduce(numbers, group=self._control)
        return numbers.tolist()

    def sum_on_device(self, tensor: Any) -> Any:
        """A tensor of the device summed over the ranks, in place."""
        import torch.distributed as dist

        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, on every rank; small Python values only."""
        import torch.distributed as dist

        if self.world_size == 1:
            return [value]
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def first_decides(self, decide: Any) -> Any:
        """Call ``decide`` on rank 0 and return its value on every rank; its InputError is raised on all."""
        outcome: tuple[Any, str] = (None, "")
        if self.is_first:
            try:
                outcome = (decide(), "")
            except InputError as error:
                outcome = (None, str(error))
        value, message = self.gather(outcome)[0]
        if message:
            raise InputError(message)
        return value

    def barrier(self) -> None:
        """Wait for all ranks."""
        import torch.distributed as dist

        if self.world_size > 1:
            dist.barrier(group=self._control)

    def local_ranks(self) -> int:
        """How many ranks run on this host."""
        hosts = self.gather(socket.gethostname())
        return hosts.count(socket.gethostname())


def connect(timeout_seconds: float) -> Ranks:
    """Start the process groups. A collective that waits longer than the timeout is an error."""
    ask_mpi = set_rank_variables()
    # DeepSpeed calls collectives by names that newer releases of torch call deprecated: nothing for users.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"torch\.distributed")
    prepare_accelerator()
    import deepspeed
    from deepspeed.accelerator import get_accelerator

    timeout = datetime.timedelta(seconds=timeout_seconds)
    accelerator = get_accelerator()
    if accelerator.device_name() != "cpu" and not ask_mpi:
        accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    deepspeed.init_distributed(
        dist_backend=accelerator.communication_backend_name()
        if accelerator.device_name() != "cpu"
        else "gloo",
        auto_mpi_discovery=ask_mpi,
        timeout=timeout,
        verbose=False,
    )
    if ask_mpi and accelerator.device_name() != "cpu":
        accelerator.set_device(int(os.environ["LOCAL_RANK"]))
    return Ranks(timeout)


def disconnect() -> None:
    """Leave the process groups, so that no library complains at exit."""
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        dist.destroy_process_group()
