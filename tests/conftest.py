"""How the tests of the module use JAX."""

import jax

# Each of hundreds of small programs runs for microseconds and would be optimised for much of a second. The notebooks,
# which run in processes of their own, use the compiler as it comes.
jax.config.update("jax_disable_most_optimizations", True)
