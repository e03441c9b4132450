"""The checks of chapter 11 accept what is right and send back what is wrong with a hint that fits."""

import jax
import jax.numpy as jnp
import numpy as np
from exercise_cases import accepts, refuses

from whyattention.exercises.sharding import check_all_reduce, check_incoming, check_ring_bytes, check_stripes
from whyattention.sequence_parallel import pass_on


def sent(length, features, devices, turns=-1, arrays=2, size=4):
    return arrays * (devices + turns) * (length // devices) * features * size


def all_reduce(x, axis_name, devices, extra=0, start=1):
    total, visitor = start * x, x
    for _ in range(devices - 1 + extra):
        visitor = pass_on(visitor, axis_name)
        total = total + visitor
    return total


def snowball(x, axis_name, devices):
    for _ in range(devices - 1):
        x = x + pass_on(x, axis_name)
    return x


def incoming(decays, finals):
    states = [jnp.zeros_like(finals[0])]
    for decay, final in zip(decays[:-1], finals[:-1], strict=True):
        states.append(decay * states[-1] + final)
    return jnp.stack(states)


def shifted(finals):
    return jnp.concatenate([jnp.zeros((1, 2)), finals[:-1]])


def stripes(length, devices):
    return np.arange(length).reshape(-1, devices).T.ravel()


def zigzag(length, devices):
    """A piece from the front and its mirror image from the back: another layout that is even in every turn."""
    pieces = np.arange(length).reshape(2 * devices, -1)
    return np.concatenate([np.concatenate([pieces[i], pieces[-1 - i]]) for i in range(devices)])


RIGHT = [
    (check_ring_bytes, sent),
    (check_all_reduce, all_reduce),
    (check_incoming, incoming),
    (check_stripes, stripes),
    (check_stripes, zigzag),
]

WRONG = [
    (check_ring_bytes, lambda *a: sent(*a, size=1), "takes 4 bytes"),
    (check_ring_bytes, lambda *a: sent(*a, arrays=1), "values travel"),
    (check_ring_bytes, lambda *a: sent(*a, arrays=3), "queries stay"),
    (check_ring_bytes, lambda *a: sent(*a, turns=0), "get its own back"),
    (check_ring_bytes, lambda n, d, p: sent(n, d, p) * p, "all devices send together"),
    (check_ring_bytes, lambda n, d, p: 8 * (n // p) * d, "one turn"),
    (check_ring_bytes, lambda *a: 7, "not 7"),
    (check_ring_bytes, lambda *a: None, "is the return missing"),
    (check_all_reduce, lambda x, *a: x, "its own numbers only"),
    (check_all_reduce, lambda *a: all_reduce(*a, start=0), "left out its own"),
    (check_all_reduce, lambda *a: all_reduce(*a, extra=1), "one turn too many"),
    (check_all_reduce, lambda x, name, p: x + pass_on(x, name), "go on"),
    (check_all_reduce, snowball, "not the sum so far"),
    (check_all_reduce, lambda x, name, p: jax.lax.psum(x, name), "JAX's own"),
    (check_all_reduce, lambda x, *a: x.sum(), "must end with it"),
    (check_all_reduce, lambda *a: None, "is the return missing"),
    (check_incoming, lambda d, f: incoming(d, f)[1:], "one state for each device"),
    (check_incoming, lambda d, f: d * incoming(d, f) + f, "shift them by one"),
    (check_incoming, lambda d, f: shifted(f), "its own beginning decays"),
    (check_incoming, lambda d, f: jnp.cumsum(shifted(f), axis=0), "decays through the slices"),
    (check_incoming, lambda d, f: incoming(d, f) + 1, "its state is zero"),
    (check_incoming, lambda d, f: 2 * incoming(d, f), "device 2 begins"),
    (check_incoming, lambda *a: None, "is the return missing"),
    (check_stripes, lambda n, p: np.arange(n).reshape(p, -1), "a flat array"),
    (check_stripes, lambda n, p: np.zeros(n, int), "on one device, once"),
    (check_stripes, lambda n, p: np.arange(n), "consecutive slices"),
    (check_stripes, lambda n, p: np.arange(n)[::-1], "like cards"),
    (check_stripes, lambda *a: None, "is the return missing"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
