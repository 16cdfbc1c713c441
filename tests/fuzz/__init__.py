"""Random programs: each must behave under `srcjit.jit` as it does without it."""
