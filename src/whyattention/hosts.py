"""One training in several processes, on one host or on many, that have their devices in common.

    python -m whyattention.hosts ADDRESS PROCESSES PROCESS

is one of the processes; all are given the same address, one on the host of process 0. `launch` starts them here.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

import jax
import optax
from flax import nnx

from whyattention.sharding import DEVICE_COUNT, SplitBatches, mesh_of
from whyattention.tasks.recall import DelayedRecall
from whyattention.training import History, fit
from whyattention.transformer import TransformerLM

TASK = DelayedRecall(lag=7, batch_size=32)
OPTIMIZER = optax.adam(3e-3)


def small_model(seed: int) -> TransformerLM:
    """A model of one layer for `TASK`."""
    return TransformerLM(TASK.vocabulary_size, 32, num_heads=8, num_layers=1, rngs=nnx.Rngs(seed))


def train(devices: Sequence[jax.Device], *, seed: int, steps: int) -> History:
    """`small_model` trained on `TASK`, each device with its share of every batch.

    Not a word in it is about processes. `devices` are those of all processes, and every process must call it.
    """
    task = SplitBatches(TASK, mesh_of(devices, batch=len(devices)))
    key = jax.random.key(seed)
    return fit(small_model(seed), task, steps=steps, chunk=steps, optimizer=OPTIMIZER, key=key)[1]


def main(arguments: Sequence[str] | None = None) -> None:
    """Joins the other processes, trains, and prints what this one saw, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m whyattention.hosts", description=__doc__.splitlines()[0])
    parser.add_argument("address", help="host:port of process 0")
    parser.add_argument("processes", type=int, help="how many there are")
    parser.add_argument("process", type=int, help="which of them this is, from 0")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args(arguments)
    # On a TPU slice, or under Slurm, it finds out the three by itself.
    jax.distributed.initialize(options.address, options.processes, options.process)
    history = train(jax.devices(), seed=options.seed, steps=options.steps)
    seen = {"process": jax.process_index(), "local_devices": jax.local_device_count(), "devices": jax.device_count()}
    print(json.dumps(seen | {"loss": history.loss.tolist()}), flush=True)
    jax.distributed.shutdown()


def launch(processes: int, devices: int, *, seed: int, steps: int, seconds: float = 120) -> list[dict]:
    """What each of `processes` on this machine saw, each with `devices` that its CPU poses as.

    A dict has "process", "local_devices", "devices" (of all) and "loss" `[steps]`. As soon as one fails the others,
    which may be waiting for it, are ended. Raises RuntimeError with the words of the one that failed, and
    subprocess.TimeoutExpired if one takes longer than `seconds`.
    """
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    command = [sys.executable, "-m", "whyattention.hosts", address, str(processes)]
    environment = os.environ | {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": f"{DEVICE_COUNT}={devices}",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # to make this program faster takes longer than to run it
    }
    started = [
        subprocess.Popen(
            [*command, str(process), "--seed", str(seed), "--steps", str(steps)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(processes)
    ]
    with ThreadPoolExecutor(processes) as listeners:
        heard = [listeners.submit(_hear, process, seconds) for process in started]
        try:
            done, _ = wait(heard, return_when=FIRST_EXCEPTION)
            failed = [future.exception() for future in done if future.exception()]
        finally:
            for process in started:
                process.kill()
    if failed:
        raise failed[0]
    return [future.result() for future in heard]


def _hear(process: subprocess.Popen, seconds: float) -> dict:
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()  # which closes the pipes
        raise
    if process.returncode:
        raise RuntimeError(f"a process ended with {process.returncode}:\n{error}")
    # The library that carries the messages may have a word to say before.
    return json.loads(next(line for line in out.splitlines() if line.startswith("{")))


if __name__ == "__main__":
    main()
