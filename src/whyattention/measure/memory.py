"""How much memory a JAX program needs besides its arguments, as its compiler planned it."""

from collections.abc import Callable

import jax


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
    plan = jax.jit(fn).lower(*args).compile().memory_analysis()
    if plan is None:
        raise RuntimeError(
            f"the compiler for {jax.default_backend()!r} devices reports no memory analysis, "
            "so the memory of a program cannot be read from it here"
        )
    return plan.temp_size_in_bytes + plan.output_size_in_bytes
