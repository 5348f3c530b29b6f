"""Where the card's time goes in a traced step: its kernels by kind and by name, and how long it had none.

    trace.py trace_step_6.json [--kernels 30]
"""

import argparse
import json
import re

# The first kind whose pattern a kernel's name has. cuBLAS calls its products nvjet_*, *gemm* or cutlass*.
KINDS = [("attention", r"flash|fmha|^(void )?cudnn"), ("products", r"gemm|nvjet|cutlass|splitK|cublas|gemv"), ("ours", r"lorikeet"),
         ("copies", r"^Mem(cpy|set)"), ("other", r"")]
ON_CARD = ("kernel", "gpu_memcpy", "gpu_memset")


def events(path):
    with open(path, encoding="utf-8") as file:
        return [event for event in json.load(file)["traceEvents"] if event.get("ph") == "X"]


def kind_of(name):
    return next(kind for kind, pattern in KINDS if re.search(pattern, name))


def short(name):
    """A kernel's name without return type, arguments and namespaces, with its template's first words."""
    name = re.sub(r"^void ", "", re.sub(r"\(anonymous namespace\)::", "", name))
    depth, end = 0, len(name)
    for i, letter in enumerate(name):
        depth += (letter == "<") - (letter == ">")
        if letter == "(" and depth == 0:
            end = i
            break
    return name[:end][:90]


def busy(spans):
    """Microseconds in which at least one of the (begin, end) runs."""
    total, until = 0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def by(key, found):
    """{key(name): [launches, microseconds]}, the longest first."""
    sums = {}
    for event in found:
        one = sums.setdefault(key(event["name"]), [0, 0])
        one[0] += 1
        one[1] += event["dur"]
    return dict(sorted(sums.items(), key=lambda item: -item[1][1]))


def summary(path, kernels):
    """Markdown of one trace."""
    every = events(path)
    card = [event for event in every if event.get("cat") in ON_CARD]
    if not card:
        return "The trace has no kernels: a CPU's, or libtorch's profiler could not see the card."
    begin, end = min(event["ts"] for event in card), max(event["ts"] + event["dur"] for event in card)
    all_busy = busy([(event["ts"], event["ts"] + event["dur"]) for event in card])
    calls = [event for event in every if event.get("cat") in ("cuda_runtime", "cuda_driver")
             and "Synchronize" not in event["name"]]  # in which the host waits for the card
    lines = [f"From the first kernel to the last {(end - begin) / 1e3:.1f} ms, of which the card works {all_busy / 1e3:.1f} ms;"
             f" {len(card)} launches, {sum(call['dur'] for call in calls) / 1e3:.1f} ms of the host in {len(calls)} calls of CUDA.",
             "", "| kind | launches | ms | of the card's time |", "|---|---|---|---|"]
    total = sum(event["dur"] for event in card)
    rows = lambda sums: [f"| {name} | {count} | {us / 1e3:.2f} | {100 * us / total:.1f}% |"  # noqa: E731
                         for name, (count, us) in sums.items()]
    lines += rows(by(kind_of, card))
    lines += ["", "| kernel | launches | ms | of the card's time |", "|---|---|---|---|"]
    lines += rows(by(lambda name: f"`{short(name)}`", card))[:kernels]
    longest = by(lambda name: name, calls)
    lines += ["", "Host: " + "; ".join(f"{name} {count} x {us / count:.1f} us" for name, (count, us) in list(longest.items())[:6])]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="+")
    parser.add_argument("--kernels", type=int, default=30, help="rows of the table by name")
    args = parser.parse_args()
    for path in args.traces:
        print(f"## {path}\n\n{summary(path, args.kernels)}\n")


if __name__ == "__main__":
    main()
