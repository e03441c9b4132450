"""Two processes that have their devices in common train as one."""

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
