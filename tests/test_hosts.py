"""Two processes that have their devices in common train as one."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from whyattention import hosts


def test_two_processes_train_as_one_device_does():
    here = hosts.train(jax.devices("cpu")[:1], seed=3, steps=3)
    there = hosts.launch(2, 1, seed=3, steps=3)
    assert [(seen["process"], seen["local_devices"], seen["devices"]) for seen in there] == [(0, 1, 2), (1, 1, 2)]
    for seen in there:
        np.testing.assert_allclose(seen["loss"], here.loss, atol=1e-5)


def test_a_process_that_fails_is_heard():
    with pytest.raises(RuntimeError, match="steps must be a whole number from 1, got 0"):
        hosts.launch(1, 1, seed=0, steps=0)


def test_nobody_waits_for_one_that_failed(monkeypatch, tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nif [ "$5" = 1 ]; then echo "no room" >&2; exit 3; fi\nexec sleep 100\n')
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(RuntimeError, match=r"(?s)ended with 3.*no room"):
        hosts.launch(2, 1, seed=0, steps=1, seconds=50)
    with pytest.raises(subprocess.TimeoutExpired):
        hosts.launch(1, 1, seed=0, steps=1, seconds=0.1)
