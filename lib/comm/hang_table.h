#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace lorikeet::comm {

/// Where the ranks of all nodes stand when one hangs: gathers what the nodes say, for a moment.
class HangTable {
 public:
  /// `hang` says which rank waits, and for how long.
  HangTable(std::string hang, std::size_t nodes, std::chrono::milliseconds patience);

  const std::string& hang() const { return hang_; }
  /// The rows of a node; those of no node of the run are left out.
  void add(std::size_t node, const std::vector<std::string>& rows);
  /// The whole as a text, once all nodes have answered or the time is up; a node without an answer has a row
  /// that says so.
  std::optional<std::string> text() const;

 private:
  std::string hang_;
  std::vector<std::optional<std::vector<std::string>>> rows_;  // by node
  std::chrono::steady_clock::time_point until_;
};

}  // namespace lorikeet::comm
