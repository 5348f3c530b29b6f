#include "comm/hang_table.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"

namespace lorikeet::comm {

using Clock = std::chrono::steady_clock;

HangTable::HangTable(std::string hang, std::size_t nodes, std::chrono::milliseconds patience)
    : hang_(std::move(hang)), rows_(nodes), until_(Clock::now() + patience) {}

void HangTable::add(std::size_t node, const std::vector<std::string>& rows) {
  if (node < rows_.size()) rows_[node] = rows;
}

std::optional<std::string> HangTable::text() const {
  const bool complete =
      std::all_of(rows_.begin(), rows_.end(), [](const auto& rows) { return rows.has_value(); });
  if (!complete && Clock::now() < until_) return std::nullopt;
  std::string text = hang_ + "; the ranks stand here:\n";
  for (std::size_t node = 0; node < rows_.size(); ++node) {
    const std::vector<std::string> silent{"node " + std::to_string(node) + ": no answer"};
    for (const std::string& row : rows_[node].value_or(silent)) text += "  " + escape_control(row) + "\n";
  }
  return text;
}

}  // namespace lorikeet::comm
