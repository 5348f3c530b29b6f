// How many kernels a layer launches, forward and backward: at batches of a few thousand tokens a small
// model's time on a fast card is that of its launches.
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "card/micro_step_report.h"
#include "support/catch.h"

using namespace lorikeet;

namespace {

// Of one micro-step.
std::map<std::string, std::int64_t> launches(const std::string& family, int layers,
                                             const std::string& keys = {}) {
  const card::Report report = card::micro_step_report(
      {.family = family, .layers = layers, .heads = 1, .key_value_heads = 1, .head_dim = 64, .keys = keys});
  std::map<std::string, std::int64_t> counts = report.kernels;
  for (const auto& [name, count] : report.operators) {
    if (card::launches_kernel(name)) counts[name] += count;
  }
  return counts;
}

// Of one layer, by name.
std::map<std::string, std::int64_t> launches_of_layer(const std::string& family,
                                                      const std::string& keys = {}) {
  const auto two = launches(family, 2, keys);
  std::map<std::string, std::int64_t> of_layer;
  for (const auto& [name, count] : launches(family, 5, keys)) {
    const auto before = two.find(name);
    const std::int64_t of_layers = count - (before == two.end() ? 0 : before->second);
    CHECK(of_layers % 3 == 0);
    if (of_layers != 0) of_layer[name] = of_layers / 3;
  }
  return of_layer;
}

std::int64_t sum(const std::map<std::string, std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0},
                         [](std::int64_t total, const auto& of_name) { return total + of_name.second; });
}

std::string list(const std::map<std::string, std::int64_t>& counts) {
  std::string lines;
  for (const auto& [name, count] : counts) lines += "\n  " + name + ": " + std::to_string(count);
  return lines;
}

}  // namespace

TEST_CASE("launches of a layer with adapters on all its projections, forward and backward") {
  // Qwen 3 norms queries and keys beside what was projected, and once more in backward.
  const std::pair<std::string, std::int64_t> most[] = {{"llama", 37}, {"qwen3", 41}};
  for (const auto& [family, bound] : most) {
    const auto of_layer = launches_of_layer(family);
    INFO(family << ": " << sum(of_layer) << " launches a layer" << list(of_layer));
    CHECK(sum(of_layer) <= bound);
    CHECK(sum(of_layer) > 27);  // there are as many products
  }
}

TEST_CASE("launches of a layer with experts, however many there are") {
  const auto of_layer = [](int experts) {
    return launches_of_layer("qwen3_moe", "\"num_experts\": " + std::to_string(experts) +
                                              ", \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 64, "
                                              "\"norm_topk_prob\": true, ");
  };
  const auto eight = of_layer(8);
  INFO(sum(eight) << " launches a layer" << list(eight));
  CHECK(eight == of_layer(64));
  CHECK(eight.at("grouped_products_cuda.cu") == 4);
  CHECK(sum(eight) <= 58);
}
