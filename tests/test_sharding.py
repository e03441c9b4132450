"""Programs split over devices give what they give on one; the devices are those of another process."""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from whyattention.sharding import DEVICE_COUNT, mesh_of, rehearsal_devices


def test_on_eight_devices(clean_environment):
    environment = {name: value for name, value in clean_environment.items() if name != "XLA_FLAGS"}
    script = Path(__file__).with_name("eight_devices.py")
    command = [sys.executable, "-W", "error", script]
    run = subprocess.run(command, env=environment | {"JAX_PLATFORMS": "cpu"}, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == "all checks passed on eight devices\n"


@pytest.mark.parametrize("flags", [None, "--xla_cpu_enable_fast_math=false", f"{DEVICE_COUNT}=8"])
def test_once_jax_runs_its_devices_stay_and_the_environment_is_left_as_it_was(monkeypatch, flags):
    there = jax.devices("cpu")
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    if flags is not None:
        monkeypatch.setenv("XLA_FLAGS", flags)
    assert rehearsal_devices(1) == there[:1] or jax.default_backend() != "cpu"
    assert os.environ.get("XLA_FLAGS") == flags


def test_a_mesh_takes_the_devices_it_needs():
    mesh = mesh_of(jax.devices("cpu"), batch=1, heads=1)
    assert dict(mesh.shape) == {"batch": 1, "heads": 1}
    with pytest.raises(ValueError, match="needs 64 devices, there are 1"):
        mesh_of(jax.devices("cpu")[:1], batch=8, heads=8)
    with pytest.raises(ValueError, match="at least one device is needed, got 0"):
        rehearsal_devices(0)
