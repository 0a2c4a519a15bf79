"""A matrix product that must repeat bitwise: a different result is silent data corruption.

The same library gives the same bits at every run on GPUs of one architecture and number of multiprocessors
(docs.nvidia.com/cuda/cublas, "Results Reproducibility"). Products of the same matrices are therefore compared with the
first one on the same GPU here. Their digest is compared across GPUs once all are known.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List

SEED = 1
LEAST_PRODUCTS = 20
DIGEST_PRIME = 65521


def kinds(*, cuda: bool) -> List[str]:
    """Return the number formats to test: those of training on GPUs, and those of a CPU."""
    return ["bf16", "fp16", "fp8"] if cuda else ["fp32", "bf16"]


def repeated(torch: Any, device: Any, kind: str, side: int, seconds: float) -> Dict[str, Any]:
    """Multiply the same two matrices repeatedly; return the number of products, and how many differed.

    The matrices are drawn on the CPU from SEED, so that every GPU multiplies the same bits. `why` is the reason why
    this device or this torch has no such product; `made` is then 0.
    """
    result: Dict[str, Any] = {"kind": kind, "seed": SEED, "side": side, "made": 0, "differs": 0, "digest": None}
    generator = torch.Generator()
    generator.manual_seed(SEED)
    one, other = (torch.randn(side, side, generator=generator, dtype=torch.float32).to(device) for _ in range(2))
    try:
        multiply = _multiplier(torch, kind, one, other)
        first = multiply()
    except (RuntimeError, TypeError, AttributeError, ValueError) as error:
        # A GPU or a torch without this format fails here; a broken GPU fails all later products, too.
        return dict(result, why=("%s: %s" % (type(error).__name__, error)).splitlines()[0][:200])
    until = time.perf_counter() + seconds
    while result["made"] < LEAST_PRODUCTS or time.perf_counter() < until:
        result["differs"] += int(not torch.equal(multiply(), first))
        result["made"] += 1
    return dict(result, digest=_digest(torch, first))


def _multiplier(torch: Any, kind: str, one: Any, other: Any) -> Callable[[], Any]:
    if kind == "fp8":
        small = torch.float8_e4m3fn
        left, right = one.to(small), other.to(small).t()  # cuBLAS requires the second one in column-major order
        multiply = getattr(torch, "_scaled_mm")  # noqa: B009  (torch has no public one)
        scale = torch.ones((), device=one.device, dtype=torch.float32)

        def scaled() -> Any:
            made = multiply(left, right, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
            return made[0] if isinstance(made, tuple) else made  # torch before 2.5 returns the largest value, too

        return scaled
    wide = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[kind]
    first, second = one.to(wide), other.to(wide)
    return lambda: first @ second


def _digest(torch: Any, matrix: Any) -> str:
    """Return a sum over the bits, each element with a different weight.

    An integer sum is the same in any order.
    """
    whole = torch.int32 if matrix.element_size() == 4 else torch.int16
    bits = matrix.contiguous().view(whole).flatten().to(torch.int64)
    weights = torch.arange(bits.numel(), device=bits.device, dtype=torch.int64) % DIGEST_PRIME + 1
    return "%016x" % (int((bits * weights).sum().item()) & (2**64 - 1))
