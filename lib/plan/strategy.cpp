#include "plan/strategy.h"

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::plan {
namespace {

std::string bytes(std::int64_t count) { return format_bytes(static_cast<std::uint64_t>(count)); }

// Copies of the weights are shared inside nodes.
void require_whole_groups(const StrategyInput& in, std::int64_t degree) {
  if (degree == in.world_size || (in.local_size % degree == 0 && in.world_size % degree == 0)) return;
  throw Error(
      std::string(in.settings.shard_degree ? "[distributed.shard_degree] " : "[distributed.strategy] ") +
      "a copy of the weights can't be shared by " + std::to_string(degree) +
      " ranks: " + std::to_string(degree) + " doesn't divide the " + std::to_string(in.local_size) +
      " ranks of this node" +
      (in.world_size > in.local_size ? " (of " + std::to_string(in.world_size) + " in all)" : "") +
      "; choose a distributed.shard_degree that divides every node's ranks, or distributed.strategy=shard");
}

Strategy wanted(const StrategyInput& in) {
  const auto as_asked = [&](int degree) {
    return Strategy{degree, strategy_name(degree, in.world_size), "as distributed.strategy says"};
  };
  switch (in.settings.strategy) {
    case config::Strategy::kReplicate: return as_asked(1);
    case config::Strategy::kShard: return as_asked(in.world_size);
    case config::Strategy::kHybrid: {
      if (!in.settings.shard_degree && in.least_local_size != in.most_local_size) {
        throw Error("[distributed.shard_degree] auto means the ranks of a node, but nodes have from " +
                    std::to_string(in.least_local_size) + " to " + std::to_string(in.most_local_size) +
                    " of them; set it to a number that divides each, or use distributed.strategy=shard");
      }
      const std::int64_t degree = in.settings.shard_degree.value_or(in.least_local_size);
      require_whole_groups(in, degree);
      Strategy found = as_asked(static_cast<int>(degree));
      if (found.name != "hybrid") found.reason = "which hybrid is with these ranks and this degree";
      return found;
    }
    case config::Strategy::kAuto: break;
  }
  if (in.world_size == 1) return {1, "replicate", "on one device"};
  const MemoryEstimate whole = in.need(1);
  if (!in.available || whole.total() <= *in.available) {
    return {1, "replicate",
            in.available ? "since " + bytes(whole.total()) + " of " + bytes(*in.available) + " are needed"
                         : "since the device doesn't tell its memory"};
  }
  require_whole_groups(in, in.least_local_size);
  return {in.least_local_size, strategy_name(in.least_local_size, in.world_size),
          "since a whole copy would need " + bytes(whole.total()) + " of " + bytes(*in.available)};
}

}  // namespace

std::string strategy_name(int degree, int world_size) {
  if (degree == 1) return "replicate";
  return degree == world_size ? "shard" : "hybrid";
}

Strategy choose_strategy(const StrategyInput& in) {
  const config::DistributedSettings& settings = in.settings;
  if (settings.shard_degree && settings.strategy != config::Strategy::kHybrid) {
    throw Error(
        "[distributed.shard_degree] is for distributed.strategy=hybrid alone; expected auto with any other");
  }
  Strategy chosen = wanted(in);
  if (!in.available) return chosen;
  const std::int64_t held = in.need(chosen.degree).held();
  if (held > *in.available) {
    std::string options = "use more devices or a smaller base";
    if (chosen.degree < in.world_size)
      options = "distributed.strategy=shard would need " + bytes(in.need(in.world_size).held());
    throw Error("[distributed.strategy] " + chosen.name + " doesn't fit: weights and adapter need " +
                    bytes(held) + " on every device, there are " + bytes(*in.available) + "; " + options,
                ErrorKind::kEnvironment);
  }
  return chosen;
}

}  // namespace lorikeet::plan
