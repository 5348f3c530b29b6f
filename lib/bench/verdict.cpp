#include "bench/verdict.h"

#include "base/strings.h"

namespace lorikeet::bench {
namespace {

std::string ratio_text(double ratio) { return format_number("%.2fx", ratio); }

const Row* base_row(const Evaluation& evaluation) {
  return evaluation.base ? &evaluation.rows[*evaluation.base] : nullptr;
}

bool beats(const Row& row, const Row& other) {
  return apart(*row.tokens_per_second, *other.tokens_per_second) &&
         row.tokens_per_second->median > other.tokens_per_second->median;
}

// The rows that were measured beside the base.
std::vector<const Row*> others(const Evaluation& evaluation) {
  std::vector<const Row*> rows;
  for (std::size_t i = 0; i < evaluation.rows.size(); ++i) {
    if (i != *evaluation.base && evaluation.rows[i].tokens_per_second) rows.push_back(&evaluation.rows[i]);
  }
  return rows;
}

bool is_single(const Row& row, const Row& base) { return row.runs() < 2 || base.runs() < 2; }

// The rows whose measured ratio may be chance.
std::vector<const Row*> doubtful(const std::vector<const Row*>& rows, const Row& base) {
  std::vector<const Row*> found;
  for (const Row* row : rows) {
    if (!apart(*row->tokens_per_second, *base.tokens_per_second)) found.push_back(row);
  }
  return found;
}

// Why that is so.
std::string reason(const std::vector<const Row*>& doubted, const Row& base) {
  bool single = false, overlap = false;
  for (const Row* row : doubted) (is_single(*row, base) ? single : overlap) = true;
  std::vector<std::string> reasons;
  if (single) reasons.emplace_back("of single runs no spread is known");
  if (overlap) reasons.emplace_back("the ranges of tokens/s overlap");
  return join(reasons, "; ");
}

}  // namespace

std::string scaling_verdict(const Evaluation& evaluation, const Commands& commands) {
  const Row* base = base_row(evaluation);
  if (base == nullptr) return "No run ended well: there is nothing to compare.";
  const auto rows = others(evaluation);
  if (rows.empty()) return "Only " + base->name + " could be measured: there is nothing to compare it with.";
  const std::vector<const Row*> doubted = doubtful(rows, *base);
  const std::string verb = doubted.empty() ? " devices are " : " devices measured ";
  const Row* choice = base;
  std::vector<std::string> ratios;
  for (const Row* row : rows) {
    if (beats(*row, *choice)) choice = row;
    ratios.push_back(std::to_string(row->devices) + (ratios.empty() ? verb : " devices ") +
                     ratio_text(row->speed_up->median));
  }
  std::string text = join(ratios, ", ") + " of " + (base->devices == 1 ? "one" : base->name);
  if (doubted.empty()) {
    text += ": ";
  } else {
    std::vector<std::string> names;
    bool overlap = false;
    for (const Row* row : doubted) {
      names.push_back(row->name);
      overlap = overlap || !is_single(*row, *base);
    }
    text += "; these runs don't suffice to tell that" +
            (rows.size() > 1 ? " of " + join(names, " and of ") : std::string()) + " from no difference (" +
            reason(doubted, *base) + "): measure more with `" +
            commands.measure(overlap ? More::kLongerRuns : More::kRepeats) + "`. Until then ";
  }
  return text + "train on " + (choice->devices == 1 ? "one" : std::to_string(choice->devices)) +
         "; the command is `" + commands.train(choice->devices) + "`.";
}

std::string comparison_verdict(const Evaluation& evaluation) {
  const Row* base = base_row(evaluation);
  if (base == nullptr || others(evaluation).empty()) return "There is nothing to compare.";
  const Row& other = *others(evaluation).front();
  const std::vector<const Row*> doubted = doubtful({&other}, *base);
  const std::string ratio = ratio_text(other.speed_up->median) + " as fast as " + base->name;
  if (doubted.empty()) return other.name + " is " + ratio + ".";
  return other.name + " measured " + ratio + "; that doesn't suffice to tell it from no difference (" +
         reason(doubted, *base) + "): compare several pairs of runs.";
}

std::vector<std::string> notes(const Evaluation& evaluation, std::int64_t warmup_steps) {
  std::vector<std::string> out;
  bool threads_differ = false;
  std::optional<int> threads;
  for (const Row& row : evaluation.rows) {
    for (const std::string& failure : row.failures) out.push_back(row.name + ", " + failure);
    if (!row.tokens_per_second) {
      if (row.failures.empty()) out.push_back(row.name + ": not run");
      continue;
    }
    if (row.loss_difference.value_or(0) > kMostLossDifference) {
      out.push_back(row.name + ": the losses differ by more than sums in another order explain (" +
                    std::to_string(kMostLossDifference) +
                    " relative): the runs don't compute the same, and their rates say little");
    }
    threads_differ = threads_differ || (threads && *threads != *row.threads);
    threads = row.threads;
  }
  if (warmup_steps > 0) {
    out.push_back("Rates leave out the first " +
                  (warmup_steps == 1 ? "step" : std::to_string(warmup_steps) + " steps") + " of each run.");
  }
  out.emplace_back("Spreads are over runs: median (least to most).");
  if (threads && !threads_differ) {
    out.push_back("Every process has " + std::to_string(*threads) + (*threads == 1 ? " thread" : " threads") +
                  ", however many there are.");
  } else if (threads_differ) {
    out.emplace_back("Processes have different numbers of threads.");
  }
  return out;
}

}  // namespace lorikeet::bench
