"""The best rate of a large matrix product on this machine, in bf16 and fp32. Prints {"bf16": FLOP/s, "fp32": FLOP/s}.

    ceiling.py [cpu|cuda]
"""

import json
import sys
import time

import torch

SMALL = 256
HOPELESS = 16


def best_rate(dtype, device, size, repeats):
    a, b = (torch.randn(size, size, dtype=dtype, device=device) for _ in range(2))
    out = torch.empty_like(a)
    best = float("inf")
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        torch.mm(a, b, out=out)
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    return 2 * size**3 / best


def main():
    device = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    torch.manual_seed(0)
    size, repeats = (8192, 20) if device == "cuda" else (3072, 6)
    rates = {"fp32": best_rate(torch.float32, device, size, repeats)}
    # A CPU without bf16 arithmetic multiplies by plain loops, and would take an hour. A small product says nothing of a card.
    small = best_rate(torch.bfloat16, device, SMALL, 2) if device == "cpu" else float("inf")
    rates["bf16"] = small if small < rates["fp32"] / HOPELESS else best_rate(torch.bfloat16, device, size, repeats)
    print(json.dumps(rates))


if __name__ == "__main__":
    main()
