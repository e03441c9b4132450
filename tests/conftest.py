"""How the tests of the module use JAX."""

import hypothesis
import jax
import pytest

# Each of hundreds of small programs runs for microseconds and would be optimised for much of a second. The notebooks,
# which run in processes of their own, use the compiler as it comes.
jax.config.update("jax_disable_most_optimizations", True)

# An example that meets a new shape waits for the compiler, and any may wait for a busy machine.
hypothesis.settings.register_profile("course", deadline=None)
hypothesis.settings.load_profile("course")


@pytest.fixture(scope="module", autouse=True)
def _forget_compiled_programs():
    """A program holds more than a megabyte, and few are asked for again by the tests of another file."""
    yield
    jax.clear_caches()
