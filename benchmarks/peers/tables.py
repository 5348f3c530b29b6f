"""Tables of the runs: medians and spreads, ratios of each round, shares of the machine's product rate."""

import statistics

# Of the first loss, relative. fp32 programs differ by 1e-7; bf16 rounds each value to 4e-3, their mean over the labels to
# 2e-4. Attention across packed rows, or rows' means averaged, would show as 2e-3, prompts in the loss as 1e-2.
TOLERANCES = {"fp32": 1e-5, "bf16": 1e-3}
HEADER = ("| program | setting | real tokens/s | of the best product rate | end of first step | peak memory | first loss |"
          " Lorikeet's best / this |\n|---|---|---|---|---|---|---|---|")


def spread(values, digits=0):
    """The median and, of several values, the least and the largest."""
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def name_setting(setting):
    return ", ".join(key if value is True else str(value) if key in ("dtype", "precision") else f"{key} {value}"
                     for key, value in setting.items() if value is not False)


def by_setting(runs, trials=False):
    """{(program, setting's name): runs} of those that worked; with the trials, which have no round, if `trials`."""
    found = {}
    for run in runs:
        if "error" not in run and (trials or run["round"] is not None):
            found.setdefault((run["program"], name_setting(run["setting"])), []).append(run)
    return found


def best(runs, program):
    """The name of a program's setting with the best median rate of the rounds; None if none worked."""
    rates = {setting: statistics.median(run["tokens_per_second"] for run in each)
             for (name, setting), each in by_setting(runs).items() if name == program}
    return max(rates, key=rates.get, default=None)


def rate_ratios(runs, ours, theirs):
    """Lorikeet's rate over another's, of each round that has both."""
    rates = [{run["round"]: run["tokens_per_second"] for run in by_setting(runs).get(key, [])} for key in (ours, theirs)]
    return [rate / rates[1][number] for number, rate in rates[0].items() if number in rates[1]]


def exact(setting):
    """Is a setting's arithmetic fp32?"""
    return setting.startswith(("fp32", "32-true"))


def problem(runs):
    """Why the runs compare nothing, or None. The first losses must all be the median of the fp32 ones (of all, where none
    ran in fp32) within TOLERANCES."""
    losses = {key: each[0]["first_loss"] for key, each in by_setting(runs, trials=True).items()}
    if best(runs, "Lorikeet") is None:
        return "Lorikeet did not run"
    middle = statistics.median([loss for (_, setting), loss in losses.items() if exact(setting)] or losses.values())
    wrong = [f"{program} ({setting}) {loss:.5f}" for (program, setting), loss in losses.items()
             if not abs(loss - middle) <= TOLERANCES["fp32" if exact(setting) else "bf16"] * middle]
    return f"first losses differ: {', '.join(wrong)}; expected {middle:.5f}" if wrong else None


def row(program, setting, each, ratios, ceiling):
    share = 100 * statistics.median(run["flops_per_second"] for run in each) / ceiling
    return (f"| {program} | {setting} | {spread([run['tokens_per_second'] for run in each])} | {share:.0f}% |"
            f" {spread([run['first_step_seconds'] for run in each], 1)} s |"
            f" {spread([run['peak_bytes'] / 1e9 for run in each], 2)} GB | {each[0]['first_loss']:.4f} |"
            f" {spread(ratios, 2) if ratios else '-'} |")


def table(runs, ceiling):
    """Markdown of one layout's runs. Peers' settings that are not their best are named below it with their rates."""
    ours, rounds = ("Lorikeet", best(runs, "Lorikeet")), by_setting(runs)
    lines, others = [HEADER], []
    every = by_setting(runs, trials=True)
    for key, each in sorted(every.items(), key=lambda one: one[0][0] != "Lorikeet"):
        if key[0] == "Lorikeet" or key[1] == best(runs, key[0]):
            lines.append(row(*key, rounds[key], [] if key == ours else rate_ratios(runs, ours, key), ceiling))
        else:
            others.append(f"{' '.join(key)} {spread([run['tokens_per_second'] for run in rounds.get(key, each)])}")
    lines.append("")
    if others:
        lines.append(f"Peers' other settings, tokens/s, one value a trial: {'; '.join(others)}.")
    failed = {(run["program"], name_setting(run["setting"])): run["error"] for run in runs if "error" in run}
    lines += [f"{program} ({setting}) failed: {error}" for (program, setting), error in failed.items()]
    wrong = problem(runs)
    lines.append(f"**Compares nothing: {wrong}.**" if wrong else "First losses agree: fp32 within 1e-5, bf16 within 1e-3 of it.")
    return "\n".join(lines)


def verdict(runs):
    """One line: Lorikeet's best setting over the fastest peer's, or None where no peer ran."""
    peers = {key[0] for key in by_setting(runs)} - {"Lorikeet"}
    if not peers or best(runs, "Lorikeet") is None:
        return None

    def median(program):
        return statistics.median(run["tokens_per_second"] for run in by_setting(runs)[program, best(runs, program)])

    peer = max(peers, key=median)
    ratios = rate_ratios(runs, ("Lorikeet", best(runs, "Lorikeet")), (peer, best(runs, peer)))
    return f"Lorikeet's best / the fastest peer ({peer}): {spread(ratios, 2)}" if ratios else None
