#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lorikeet::device {

using Matrix = std::vector<std::vector<double>>;

/// The smallest sum of capacities that has to be cut to split the nodes of an undirected graph in two; 0 for
/// fewer than two nodes. `capacity` is symmetric and not negative; its diagonal isn't looked at. Stoer and
/// Wagner, "A simple min-cut algorithm", J. ACM 44 (1997).
double min_cut(const Matrix& capacity);

/// For every subset of up to 16 nodes the ring through all of it whose slowest hop is fastest; exact, by
/// dynamic programming over subsets: 2^n n^2 / 4 steps and 2^n n / 2 numbers, once for all of them.
class BestRings {
 public:
  /// rate[i][j]: of the hop from i to j. At most kMostNodes nodes.
  explicit BestRings(const Matrix& rate);

  /// The rate of the slowest hop of the best ring over the nodes of `set` (bit i: node i), which has at least
  /// two.
  double slowest_hop(std::uint32_t set) const;

  static constexpr std::size_t kMostNodes = 16;

 private:
  std::vector<double> best_;  // by set
};

}  // namespace lorikeet::device
