#include "nn/row_order.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::nn {
namespace {

std::int64_t sum(const std::vector<std::int64_t>& parts) {
  return std::accumulate(parts.begin(), parts.end(), std::int64_t{0});
}

std::string formula(const RowOrder& order) {
  std::vector<std::string> counts;
  counts.reserve(order.parts.size());
  for (const std::int64_t count : order.parts) counts.push_back(std::to_string(count));
  return std::to_string(order.groups) + " * (" + join(counts, " + ") + ") * " + std::to_string(order.unit);
}

}  // namespace

std::int64_t RowOrder::rows() const { return groups * sum(parts) * unit; }

std::vector<RowRun> row_runs(const RowOrder& order, std::int64_t rows) {
  if (rows == 0) return {};
  if (order.is_identity()) return {{0, 0, rows}};
  std::vector<RowRun> runs;
  std::int64_t module_row = 0;
  for (std::int64_t group = 0; group < order.groups; ++group) {
    std::int64_t before = 0;  // rows of all repetitions of the earlier parts
    for (const std::int64_t part : order.parts) {
      const std::int64_t count = part * order.unit;
      runs.push_back({module_row, before + group * count, count});
      module_row += count;
      before += order.groups * count;
    }
  }
  return runs;
}

std::string ExpertSlice::name() const {
  const std::size_t dot = parameter.rfind('.');
  return parameter.substr(0, dot + 1) + std::to_string(expert) + parameter.substr(dot);
}

void require_valid_order(const Module& module) {
  const RowOrder& order = module.order;
  if (order == RowOrder{}) return;
  const auto positive = [](std::int64_t count) { return count > 0; };
  if (positive(order.groups) && positive(order.unit) &&
      std::all_of(order.parts.begin(), order.parts.end(), positive) && order.rows() == module.out_features)
    return;
  throw Error("[model] the row order of '" + escape_control(module.name) + "' has " + formula(order) + " = " +
              std::to_string(order.rows()) + " rows; expected positive counts that make " +
              std::to_string(module.out_features) +
              " rows: check the numbers of heads and the sizes in the model's config.json");
}

}  // namespace lorikeet::nn
