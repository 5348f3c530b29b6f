#include "train/progress_line.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/strings.h"

namespace lorikeet::train {
namespace {

constexpr std::size_t kLeastCells = 4, kMostCells = 20;
constexpr std::size_t kAroundCells = 3;  // the brackets and the space behind them

std::string two_digits(std::int64_t value) { return (value < 10 ? "0" : "") + std::to_string(value); }

std::string bar(const ProgressNumbers& n, std::size_t cells) {
  const double part =
      n.total_steps > 0 ? static_cast<double>(n.step) / static_cast<double>(n.total_steps) : 1;
  const auto filled = std::min(cells, static_cast<std::size_t>(part * static_cast<double>(cells)));
  return "[" + std::string(filled, '#') + std::string(cells - filled, '.') + "] ";
}

}  // namespace

std::string format_clock(double seconds) {
  const auto all = static_cast<std::int64_t>(std::llround(std::max(0.0, seconds)));
  const std::int64_t hours = all / 3600, minutes = all / 60 % 60;
  const std::string end = ":" + two_digits(all % 60);
  return hours > 0 ? std::to_string(hours) + ":" + two_digits(minutes) + end : std::to_string(minutes) + end;
}

std::string progress_line(const ProgressNumbers& n, std::size_t width) {
  // The most telling first.
  std::vector<std::string> parts{format_number("%.0f tokens/s", n.tokens_per_second)};
  if (n.seconds_left) parts.push_back(format_clock(*n.seconds_left) + " left");
  parts.push_back(format_number("loss %.4f", n.loss));
  parts.push_back(std::isfinite(n.grad_norm) ? format_number("grad norm %.3g", n.grad_norm)
                                             : "gradients overflowed");
  parts.push_back(format_number("lr %.1e", n.lr));
  std::string line = "step " + std::to_string(n.step) + "/" + std::to_string(n.total_steps);
  for (const std::string& part : parts) {
    if (line.size() + 2 + part.size() > width) break;
    line += "  " + part;
  }
  return line;
}

std::string progress_bar_line(const ProgressNumbers& n, std::size_t width) {
  const std::string line = progress_line(n, width);
  const std::size_t room = width - std::min(width, line.size());
  if (room < kAroundCells + kLeastCells) return line;
  return bar(n, std::min(kMostCells, room - kAroundCells)) + line;
}

bool ends_tenth(std::int64_t step, std::int64_t total_steps) {
  constexpr std::int64_t kParts = 10;
  return total_steps > 0 && kParts * step / total_steps > kParts * (step - 1) / total_steps;
}

}  // namespace lorikeet::train
