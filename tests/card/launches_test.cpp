// How many kernels a layer launches, forward and backward: at batches of a few thousand tokens a small
// model's time on a fast card is that of its launches.
#include <map>
#include <string>
#include <utility>

#include "card/micro_step_report.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

// Of one micro-step.
std::map<std::string, std::int64_t> launches(const std::string& family, int layers) {
  const card::Report report = card::micro_step_report(
      {.family = family, .layers = layers, .heads = 1, .key_value_heads = 1, .head_dim = 64});
  std::map<std::string, std::int64_t> counts = report.kernels;
  for (const auto& [name, count] : report.operators) {
    if (card::launches_kernel(name)) counts[name] += count;
  }
  return counts;
}

}  // namespace

TEST_CASE("launches of a layer with adapters on all its projections, forward and backward") {
  // Qwen 3 norms queries and keys beside what was projected, and once more in backward.
  const std::pair<std::string, std::int64_t> most[] = {{"llama", 37}, {"qwen3", 41}};
  for (const auto& [family, bound] : most) {
    const auto two = launches(family, 2), five = launches(family, 5);
    std::int64_t total = 0;
    std::string list;
    for (const auto& [name, count] : five) {
      const auto before = two.find(name);
      const std::int64_t of_layers = count - (before == two.end() ? 0 : before->second);
      CHECK(of_layers % 3 == 0);
      total += of_layers / 3;
      if (of_layers != 0) list += "\n  " + name + ": " + std::to_string(of_layers / 3);
    }
    INFO(family << ": " << total << " launches a layer" << list);
    CHECK(total <= bound);
    CHECK(total > 27);  // there are as many products
  }
}
