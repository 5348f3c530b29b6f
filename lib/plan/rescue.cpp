#include "plan/rescue.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace lorikeet::plan {
namespace {

constexpr std::int64_t kLeastTokens = 64;
constexpr std::int64_t kLeastRank = 4;

// Powers of two below `from`, largest first, down to `least`.
std::vector<std::int64_t> powers_below(std::int64_t from, std::int64_t least) {
  std::vector<std::int64_t> powers;
  std::int64_t power = 1;
  while (2 * power < from) power *= 2;
  for (; power >= least && power < from; power /= 2) powers.push_back(power);
  return powers;
}

std::string micro_tokens(std::int64_t tokens) { return "batch.micro_tokens=" + std::to_string(tokens); }

struct Search {
  const Knobs& now;
  const std::function<std::int64_t(const Knobs&)>& need;
  std::int64_t limit;
  const std::vector<config::Offload>& offload;  // in the order of their cost

  std::optional<Rescue> checked(const Knobs& knobs, std::string overrides, bool same_result = true) const {
    const std::int64_t bytes = need(knobs);
    if (bytes > limit) return std::nullopt;
    return Rescue{std::move(overrides), bytes, same_result};
  }

  static config::MemorySaving full(const config::Offload& offload) {
    return {.checkpointing = config::ActivationCheckpointing::kFull, .offload = offload};
  }

  // Of `knobs`, which may save memory where the run doesn't. A micro-batch holds at least its longest row.
  std::optional<Rescue> smaller_micro_batches(Knobs knobs) const {
    for (const std::int64_t tokens : powers_below(now.micro_tokens, kLeastTokens)) {
      if (tokens < now.longest) break;
      knobs.micro_tokens = tokens;
      std::string overrides = micro_tokens(tokens);
      if (knobs.saving != now.saving)
        overrides.append(" ").append(config::overrides(now.saving, knobs.saving));
      if (auto found = checked(knobs, std::move(overrides))) return found;
    }
    return std::nullopt;
  }

  std::optional<Rescue> saving(const config::MemorySaving& saving) const {
    Knobs knobs = now;
    knobs.saving = saving;
    return checked(knobs, config::overrides(now.saving, saving));
  }

  std::optional<Rescue> recomputed() const {
    using Grade = config::ActivationCheckpointing;
    for (const Grade grade : {Grade::kMlp, Grade::kFull}) {
      if (grade <= now.saving.checkpointing) continue;
      if (auto found = saving({grade, now.saving.offload})) return found;
    }
    return std::nullopt;
  }

  std::optional<Rescue> offloaded() const {
    for (const auto grade : {now.saving.checkpointing, config::ActivationCheckpointing::kFull}) {
      for (const config::Offload& more : offload) {
        if (auto found = saving({grade, more})) return found;
      }
    }
    return std::nullopt;
  }

  // All that saves memory, and smaller micro-batches.
  std::optional<Rescue> saving_and_smaller(const config::MemorySaving& saving) const {
    if (saving == now.saving) return std::nullopt;
    Knobs knobs = now;
    knobs.saving = saving;
    return smaller_micro_batches(knobs);
  }

  std::optional<Rescue> in_parts(int world_size) const {
    if (now.degree >= world_size) return std::nullopt;
    Knobs knobs = now;
    knobs.degree = world_size;
    return checked(knobs, "distributed.strategy=shard");
  }

  // Shorter rows alone make no smaller micro-batch.
  std::optional<Rescue> shorter_rows() const {
    for (const std::int64_t tokens : powers_below(now.longest, kLeastTokens)) {
      Knobs knobs = now;
      knobs.longest = knobs.micro_tokens = tokens;
      if (auto found =
              checked(knobs, "data.max_seq_len=" + std::to_string(tokens) + " " + micro_tokens(tokens),
                      /*same_result=*/false))
        return found;
    }
    return std::nullopt;
  }

  std::optional<Rescue> smaller_rank() const {
    for (const std::int64_t rank : powers_below(now.rank, kLeastRank)) {
      Knobs knobs = now;
      knobs.rank = rank;
      if (auto found = checked(knobs, "lora.rank=" + std::to_string(rank), /*same_result=*/false))
        return found;
    }
    return std::nullopt;
  }
};

}  // namespace

std::vector<Rescue> changes_that_fit(const Knobs& now, int world_size,
                                     const std::function<std::int64_t(const Knobs&)>& need,
                                     std::int64_t limit, const std::vector<config::Offload>& offload,
                                     std::size_t most) {
  std::vector<config::Offload> further;
  for (const config::Offload& one : offload) {
    if (one != now.saving.offload && one.activations >= now.saving.offload.activations &&
        one.weights >= now.saving.offload.weights)
      further.push_back(one);
  }
  const Search search{now, need, limit, further};
  std::vector<Rescue> found;
  for (const auto& look : std::vector<std::function<std::optional<Rescue>()>>{
           [&] { return search.smaller_micro_batches(now); }, [&] { return search.recomputed(); },
           [&] { return search.in_parts(world_size); }, [&] { return search.offloaded(); },
           [&] { return search.saving_and_smaller(Search::full(now.saving.offload)); },
           [&] {
             return further.empty() ? std::nullopt : search.saving_and_smaller(Search::full(further.back()));
           },
           [&] { return search.shorter_rows(); }, [&] { return search.smaller_rank(); }}) {
    if (found.size() == most) break;
    if (auto change = look()) found.push_back(*std::move(change));
  }
  return found;
}

}  // namespace lorikeet::plan
