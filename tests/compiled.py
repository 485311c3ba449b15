"""`jax.jit` for tests: a formula runs a few times, most of its time is the compiler's, which is told to hurry."""

from functools import partial

import jax

compiled = partial(
    jax.jit,
    compiler_options={
        "xla_cpu_use_fusion_emitters": False,
        "xla_llvm_disable_expensive_passes": True,
        "xla_backend_optimization_level": 0,
    },
)
