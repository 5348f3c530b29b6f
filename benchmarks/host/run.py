"""What a micro-step costs the host of a GPU: bench_host of one build or of several in turn, on shapes of peers/sizes.py.

  python3 benchmarks/host/run.py build/release/benchmarks/host/bench_host [OTHER ...] [--model qwen3-0.6b,llama-3.1-8b]
      [--rounds 5]
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "peers"))
import sizes  # noqa: E402
from tables import spread  # noqa: E402


def figures(program, folder):
    """Milliseconds of a micro-step, microseconds and calls of a layer."""
    said = subprocess.run([program, folder], check=True, capture_output=True, text=True).stdout
    step = re.search(r"micro-step: ([\d.]+) ms", said)
    layer = re.search(r"a layer: ([\d.]+) us, (\d+) calls", said)
    return float(step[1]), float(layer[1]), int(layer[2])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", nargs="+")
    parser.add_argument("--model", default="qwen3-0.6b,llama-3.1-8b")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    print("| model | program | micro-step, ms | a layer, us | its calls of libtorch | time, first program / this |")
    print("|---|---|---|---|---|---|")
    for model in args.model.split(","):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(sizes.MODELS[model]))
            rounds = [[figures(program, folder) for program in args.programs] for _ in range(args.rounds)]
        for i, program in enumerate(args.programs):
            steps, layers, calls = zip(*(one[i] for one in rounds))
            ratios = [one[0][0] / one[i][0] for one in rounds]
            print(f"| {model} | {program} | {spread(steps, 2)} | {spread(layers, 2)} | {calls[0]} | {spread(ratios, 2)} |")


if __name__ == "__main__":
    main()
