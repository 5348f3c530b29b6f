"""Takes one feature after the other out of the source, and looks whether a test fails for want of it.

usage: take_out_features.py BUILD_FOLDER [WORD ...]    (only features that have one of the words; not part of ctest)

A feature is a replacement in a file; `families` are those whose golden logits, or tokens of decoding, must fail without it,
every one of them, and no other family's. Features of different families are taken out together, so that one build serves
several. What a backward alone has is looked for in another test program. Prints a Markdown table; exits with 1 if a feature
isn't missed. The files are written back at the end, also after Ctrl-C; the build folder is then behind them.
"""

import pathlib
import re
import subprocess
import sys

from feature_replacements import FEATURES

ROOT = pathlib.Path(__file__).resolve().parents[2]


def rounds(features):
    """Lists of features that are taken out together: no two of one family, and one that a whole program looks for alone."""
    made = []
    for feature in features:
        for those in made:
            alone = not feature.families or not those[0].families
            if not alone and not any(feature.families & other.families for other in those):
                those.append(feature)
                break
        else:
            made.append([feature])
    return made


def replaced(text, feature):
    if text.count(feature.old) != 1:
        raise SystemExit(f"{feature.file}: '{feature.old}' stands there {text.count(feature.old)} times; expected once")
    return text.replace(feature.old, feature.new)


def failures(build, program, tests):
    """(families with a failed check, whether anything failed)."""
    path = next(build.glob(f"tests/*/{program}"))
    done = subprocess.run([path, tests], capture_output=True, text=True, timeout=600, check=False)
    return set(re.findall(r'"families/(\w+)/', done.stdout)), done.returncode != 0


def try_round(build, features):
    """{feature: what failed}."""
    program, tests = features[0].program
    files = {feature.file: (ROOT / feature.file).read_text() for feature in features}
    try:
        changed = dict(files)
        for feature in features:
            changed[feature.file] = replaced(changed[feature.file], feature)
        for file, text in changed.items():
            (ROOT / file).write_text(text)
        built = subprocess.run(["ninja", "-C", build, program], capture_output=True, text=True, check=False)
        if built.returncode != 0:
            raise SystemExit(f"without {', '.join(f.name for f in features)} it doesn't build:\n{built.stdout[-3000:]}")
        failed, any_failed = failures(build, program, tests)
    finally:
        for file, text in files.items():
            (ROOT / file).write_text(text)
    strays = failed - set().union(*(feature.families for feature in features)) if features[0].families else set()
    if strays:
        raise SystemExit(f"without {', '.join(f.name for f in features)} {', '.join(strays)} failed too")
    return {feature: feature.families <= failed if feature.families else any_failed for feature in features}


def main(arguments):
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__.strip())
        return 0 if arguments else 2
    build, words = pathlib.Path(arguments[0]).resolve(), arguments[1:]
    chosen = [f for f in FEATURES if not words or any(w in f"{f.name} {f.file} {' '.join(f.families)}" for w in words)]
    missed = True
    print("| taken out | in | families | a test fails |\n|---|---|---|---|", flush=True)
    for features in rounds(chosen):
        for feature, fails in try_round(build, features).items():
            where = ", ".join(sorted(feature.families)) or feature.program[0]
            print(f"| {feature.name} | `{feature.file}` | {where} | {'yes' if fails else 'NO'} |", flush=True)
            missed = missed and fails
    return 0 if missed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
