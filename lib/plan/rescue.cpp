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

constexpr const char* kCheckpointing = "training.activation_checkpointing=full";

struct Search {
  const Knobs& now;
  const std::function<std::int64_t(const Knobs&)>& need;
  std::int64_t limit;

  std::optional<Rescue> checked(const Knobs& knobs, std::string overrides, bool same_result = true) const {
    const std::int64_t bytes = need(knobs);
    if (bytes > limit) return std::nullopt;
    return Rescue{std::move(overrides), bytes, same_result};
  }

  // Of `knobs`, which may recompute where the run doesn't. A micro-batch holds at least its longest row.
  std::optional<Rescue> smaller_micro_batches(Knobs knobs) const {
    for (const std::int64_t tokens : powers_below(now.micro_tokens, kLeastTokens)) {
      if (tokens < now.longest) break;
      knobs.micro_tokens = tokens;
      std::string overrides = micro_tokens(tokens);
      if (knobs.checkpointing != now.checkpointing) overrides.append(" ").append(kCheckpointing);
      if (auto found = checked(knobs, std::move(overrides))) return found;
    }
    return std::nullopt;
  }

  std::optional<Rescue> recomputed(bool smaller_too) const {
    if (now.checkpointing) return std::nullopt;
    Knobs knobs = now;
    knobs.checkpointing = true;
    return smaller_too ? smaller_micro_batches(knobs) : checked(knobs, kCheckpointing);
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
                                     std::int64_t limit, std::size_t most) {
  const Search search{now, need, limit};
  std::vector<Rescue> found;
  for (auto& change :
       {search.smaller_micro_batches(now), search.recomputed(false), search.in_parts(world_size),
        search.recomputed(true), search.shorter_rows(), search.smaller_rank()}) {
    if (change && found.size() < most) found.push_back(*change);
  }
  return found;
}

}  // namespace lorikeet::plan
