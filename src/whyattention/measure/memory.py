"""How much memory a JAX program needs besides its arguments, as its compiler planned it."""

from collections.abc import Callable

import jax
from jax.stages import Compiled


def peak_memory(fn: Callable, *args) -> int:
    """Bytes that the compiled `fn(*args)` holds on the device besides `args`.

    The sum of its output buffers and of the one block in which XLA's buffer assignment lays out
    all temporaries (those alive at different times share space). For a gradient this is where the
    activations kept for the backward pass show. It is the compiler's plan, so it is exact and
    needs no run; what a library called from the program allocates for itself is not in it.

    Args:
        fn: a function of arrays (pytrees of them).
        args: arrays, or `jax.ShapeDtypeStruct`s: only shapes and dtypes matter.

    Raises:
        RuntimeError: if the backend does not report its plan.
    """
    plan = _plan(jax.jit(fn).lower(*args).compile())
    return plan.temp_size_in_bytes + plan.output_size_in_bytes


def device_memory(program: Compiled) -> int:
    """Bytes that each device holds for a compiled program: its parts of the arguments, of the results, and temporaries.

    The same plan as that of `peak_memory`, with the arguments, since what a device need not hold of them is half the
    point of splitting a program. Raises RuntimeError if the backend does not report it.
    """
    plan = _plan(program)
    return plan.argument_size_in_bytes + plan.output_size_in_bytes + plan.temp_size_in_bytes


def _plan(program):
    plan = program.memory_analysis()
    if plan is None:
        raise RuntimeError(
            f"the compiler for {jax.default_backend()!r} devices reports no memory analysis, "
            "so the memory of a program cannot be read from it here"
        )
    return plan
