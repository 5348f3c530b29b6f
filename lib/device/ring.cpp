#include "device/ring.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

namespace lorikeet::device {

double min_cut(const Matrix& capacity) {
  if (capacity.size() < 2) return 0;
  Matrix weight = capacity;
  std::vector<std::size_t> left(capacity.size());
  std::iota(left.begin(), left.end(), 0);
  double best = std::numeric_limits<double>::infinity();
  while (left.size() > 1) {
    // One phase: nodes in the order of how firmly they hang on those before them; the last one's hold is a
    // cut.
    std::vector<double> hold(left.size(), 0);
    std::vector<std::size_t> order;
    std::vector<bool> taken(left.size(), false);
    while (order.size() < left.size()) {
      std::size_t next = left.size();
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (!taken[i] && (next == left.size() || hold[i] > hold[next])) next = i;
      }
      taken[next] = true;
      order.push_back(next);
      for (std::size_t i = 0; i < left.size(); ++i) {
        if (!taken[i]) hold[i] += weight[left[next]][left[i]];
      }
    }
    const std::size_t last = order.back(), before = order[order.size() - 2];
    best = std::min(best, hold[last]);
    for (const std::size_t node : left) {
      weight[left[before]][node] += weight[left[last]][node];
      weight[node][left[before]] = weight[left[before]][node];
    }
    left.erase(left.begin() + static_cast<std::ptrdiff_t>(last));
  }
  return best;
}

BestRings::BestRings(const Matrix& rate) {
  const std::size_t n = rate.size();
  const std::size_t sets = std::size_t{1} << n;
  // path[set * n + end]: the best path from the set's lowest node through all of it to `end`; 0: there is
  // none.
  std::vector<double> path(sets * n, 0);
  best_.assign(sets, 0);
  for (std::size_t set = 1; set < sets; ++set) {
    const auto first = static_cast<std::size_t>(std::countr_zero(set));
    if (std::has_single_bit(set)) {
      path[set * n + first] = std::numeric_limits<double>::infinity();
      continue;
    }
    for (std::size_t end = first + 1; end < n; ++end) {
      if ((set >> end & 1) == 0) continue;
      const std::size_t rest = set & ~(std::size_t{1} << end);
      double& reached = path[set * n + end];
      for (std::size_t from = first; from < n; ++from) {
        if ((rest >> from & 1) != 0)
          reached = std::max(reached, std::min(path[rest * n + from], rate[from][end]));
      }
      best_[set] = std::max(best_[set], std::min(reached, rate[end][first]));
    }
  }
}

double BestRings::slowest_hop(std::uint32_t set) const { return best_.at(set); }

}  // namespace lorikeet::device
