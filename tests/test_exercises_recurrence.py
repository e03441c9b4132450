"""The checks of chapter 1 accept what is right and send back what is wrong with a hint that fits."""

import jax
import jax.numpy as jnp
from exercise_cases import accepts, refuses

from whyattention.exercises.recurrence import check_backwards, check_bits, check_leaky, check_lift
from whyattention.recurrent import unroll


def leaky(xs, state, rate, output=lambda old, new: new):
    def step(state, x):
        new = (1 - rate) * state + rate * x
        return new, output(state, new)

    return jax.lax.scan(step, state, xs)


def nats(logits, targets):
    return -jax.nn.log_softmax(logits)[jnp.arange(len(targets)), targets]


def without_bias(cell, xs):
    state, states = cell.initial_state(), []
    for x in xs[::-1]:
        state = jnp.tanh(x @ cell.kernel[...] + state @ cell.recurrent_kernel[...])
        states.append(state)
    return jnp.stack(states[::-1])


RIGHT = [
    (check_leaky, lambda *a: leaky(*a)[1]),
    (check_backwards, lambda cell, xs: unroll(cell, xs[::-1])[1][::-1]),
    (check_bits, lambda *a: jnp.mean(nats(*a)) / jnp.log(2)),
    (check_lift, lambda f: jax.vmap(jax.vmap(f, in_axes=(None, 0)), in_axes=(0, None))),
]

WRONG = [
    (check_leaky, leaky, "which of the two"),
    (check_leaky, lambda *a: leaky(*a)[0], "last state alone"),
    (check_leaky, lambda *a: leaky(*a, output=lambda old, new: old)[1], "one step late"),
    (check_leaky, lambda xs, state, rate: leaky(xs, state, 1 - rate)[1], "1 - rate to the past"),
    (check_leaky, lambda xs, state, rate: xs, "write the step"),
    (check_backwards, lambda cell, xs: unroll(cell, xs[::-1]), "without the final state"),
    (check_backwards, lambda cell, xs: unroll(cell, xs[::-1])[1], "turn the outputs round"),
    (check_backwards, lambda cell, xs: unroll(cell, xs)[1], "from the first"),
    (check_backwards, lambda cell, xs: unroll(cell, xs)[1][::-1], "only the outputs"),
    (check_backwards, lambda cell, xs: unroll(cell, xs[:, ::-1])[1], "from the end"),
    (check_bits, lambda *a: jnp.mean(nats(*a)), "nats"),
    (check_bits, lambda *a: jnp.sum(nats(*a)) / jnp.log(2), "the mean"),
    (check_bits, lambda *a: jnp.exp(jnp.mean(nats(*a))), "perplexity"),
    (check_bits, lambda x, t: -jnp.mean(x[jnp.arange(7), t]) / jnp.log(2), "no log-probabilities"),
    (check_bits, lambda *a: 0.0, "were expected"),
    (check_leaky, lambda *a: None, "is the return missing"),
    (check_backwards, lambda *a: None, "is the return missing"),
    (check_backwards, without_bias, "from the end"),
    (check_bits, lambda *a: None, "is the return missing"),
    (check_lift, lambda f: None, "is the return missing"),
    (check_lift, lambda f: lambda *a: None, "is the return missing"),
    (check_lift, lambda f: jax.vmap(f), "model i met sequence i"),
    (check_lift, lambda f: jax.vmap(jax.vmap(f, in_axes=(0, None)), in_axes=(None, 0)), "outermost axis"),
    (check_lift, lambda f: jax.vmap(f, in_axes=(0, None)), "one model and one sequence"),
    (check_lift, lambda f: lambda p, b: jnp.zeros((1, 1, 4, 2)), "expected shape"),
]


test_right_answers_pass = accepts(RIGHT)
test_wrong_answers_get_a_hint = refuses(WRONG)
