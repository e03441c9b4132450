"""Checks for the exercises of chapter 11. They need one device only: `jax.vmap` with an axis name poses as several."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from whyattention.exercises.answers import given


def check_ring_bytes(ring_bytes: Callable) -> None:
    """`ring_bytes(length, features, devices)`: bytes each device sends in one forward pass of ring attention, float32.

    One head, queries, keys and values of `features` each. Raises AssertionError with a hint if it is not.
    """
    for length, features, devices in ((1024, 64, 8), (4096, 128, 4)):
        answer = float(given(ring_bytes(length, features, devices)))
        block = length // devices * features * 4
        expected = 2 * (devices - 1) * block
        assert answer != expected / 4, "that counts numbers; one of float32 takes 4 bytes"
        assert answer != expected / 2, "keys travel, and values travel with them"
        assert answer != expected / 2 * 3, "the queries stay where they are"
        assert answer != 2 * devices * block, (
            "after devices - 1 turns everyone has seen every block; nobody has to get its own back"
        )
        assert answer != expected * devices, "that is what all devices send together, or blocks of the whole length"
        assert answer != 2 * block, "that is one turn; how many does it take until everyone has seen every block?"
        assert answer == expected, (
            f"length {length}, {features} features, {devices} devices: a block of keys is {block} bytes, and each "
            f"device sends {expected} in all, not {answer:.0f}"
        )
    print("Correct: nearly twice the keys of the whole sequence, however many devices share it.")


def check_all_reduce(all_reduce: Callable) -> None:
    """`all_reduce(x, axis_name, devices)`: the sum of every device's x, on every device, by `pass_on` alone.

    Raises AssertionError with a hint if it is not.
    """
    for devices in (2, 5):
        xs = jnp.asarray(10.0 ** np.arange(devices))[:, None] * jnp.array([1.0, 2.0])

        def run(xs, devices=devices):
            return jax.vmap(lambda x: given(all_reduce(x, "ring", devices)), axis_name="ring")(xs)

        answer, expected = np.asarray(run(xs)), np.asarray(xs.sum(axis=0))
        assert answer.shape == xs.shape, f"each device starts with shape {xs.shape[1:]} and must end with it"
        assert not np.allclose(answer, xs), "every device still has its own numbers only"
        assert not np.allclose(answer, expected - xs), "each device has left out its own numbers"
        assert not np.allclose(answer, expected + xs), "one turn too many: each device has counted its own twice"
        neighbour = np.roll(xs, 1, axis=0)
        assert devices == 2 or not np.allclose(answer, xs + neighbour), "only the neighbour's numbers came; go on"
        assert np.allclose(answer, expected), (
            f"the sum is {expected} on every device, and device 0 ended with {answer[0]}: pass on what came in the "
            "turn before, not the sum so far"
        )
        text = str(jax.make_jaxpr(lambda x: all_reduce(x, "ring", 5), axis_env=[("ring", 5)])(xs[0]))
        assert "psum" not in text and "all_gather" not in text, "the right sum, but JAX's own did it; use pass_on alone"
    print("Correct: that is how devices in a ring add up. With the array in pieces each would send less, and no more.")


def check_incoming(incoming: Callable) -> None:
    """`incoming(decays, finals)`: the state in which each device's slice of a linear recurrence begins.

    Both are `[devices, features]`: the product of a slice's decays, and its last state if it began at zero. The first
    slice does begin at zero. Raises AssertionError with a hint if it is not.
    """
    decays = jnp.array([[0.5, 1.0], [0.25, -1.0], [2.0, 1.0], [0.1, 0.5]])
    finals = jnp.array([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0], [-2.0, 1.0]])
    state, before = np.zeros(2), []
    for decay, final in zip(np.asarray(decays), np.asarray(finals), strict=True):
        before.append(state)
        state = decay * state + final
    expected, inclusive = np.array(before), np.array([*before[1:], state])
    answer = np.asarray(given(incoming(decays, finals)))
    assert answer.shape == expected.shape, f"one state for each device, {expected.shape}; got {answer.shape}"
    assert not np.allclose(answer, inclusive), "those are the states in which the slices end; shift them by one device"
    shifted = np.concatenate([np.zeros((1, 2)), np.asarray(finals)[:-1]])
    assert not np.allclose(answer, shifted), "what the slice before found is not all: its own beginning decays into it"
    assert not np.allclose(answer, np.cumsum(shifted, axis=0)), (
        "the finals add up, but each decays through the slices on its way"
    )
    assert np.allclose(answer[0], 0), "nothing is before the first device: its state is zero"
    assert np.allclose(answer, expected), (
        f"device 2 begins with decay 1 * final 0 + final 1 = {expected[2]}, not {answer[2]}; go on like that"
    )
    print("Correct: two numbers per feature and device are all that has to be exchanged.")


def check_stripes(stripes: Callable) -> None:
    """`stripes(length, devices)`: the positions of a sequence in the order in which the devices shall hold them.

    The first length / devices are those of device 0, and so on. Under a causal mask every device must have as much to
    do as every other, in every turn of the ring, up to one key per query. Raises AssertionError with a hint if not.
    """
    for length, devices in ((24, 4), (64, 8)):
        order = np.asarray(given(stripes(length, devices)))
        assert order.shape == (length,), f"a flat array of {length} positions is asked for, got shape {order.shape}"
        assert sorted(order.tolist()) == list(range(length)), "every position must be on one device, once"
        assert not np.array_equal(order, np.arange(length)), (
            "those are the consecutive slices: the last device looks at everything, the first at one block only"
        )
        places = order.reshape(devices, -1)
        pairs = (places[None, :, None, :] <= places[:, None, :, None]).sum(axis=(2, 3))  # [queries of, keys of]
        assert pairs.max() - pairs.min() <= length // devices, (
            f"between {pairs.min()} and {pairs.max()} pairs of a device's queries and another's keys are allowed; deal "
            "the positions out like cards, one to each device in turn"
        )
    print("Correct: every device looks at about half of every block that visits it, so none waits for another.")
