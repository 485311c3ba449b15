"""Float64, shapes checked at run time (jaxtyping + beartype), reproducible Hypothesis runs, a compiler in a hurry."""

import os

# Nearly all of a test is compilation. What users get (no flags) is checked too: `softmaxdyn verify` in test_cli.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false",
)

from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings
from jaxtyping import install_import_hook

import tests.typechecker  # noqa: F401  (the hook finds it by its name)

jax.config.update("jax_enable_x64", True)
install_import_hook("softmaxdyn", "tests.typechecker.checked")  # before any test imports softmaxdyn

# `pytest --hypothesis-profile=thorough` looks at new examples each time.
slow_first_call = [HealthCheck.too_slow]  # the first example compiles
settings.register_profile(
    "ci",
    max_examples=20,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=slow_first_call,
)
settings.register_profile(
    "thorough",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=slow_first_call,
)
settings.load_profile("ci")


@pytest.fixture(scope="module", autouse=True)
def _room_for_programs():
    """Every compiled program takes memory maps, and a process has 65,530 of them: with none left LLVM crashes."""
    yield
    maps = Path("/proc/self/maps")
    if maps.exists() and maps.read_text().count("\n") > 40_000:
        jax.clear_caches()
