#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace lorikeet::train {

/// What a line of progress shows of a step.
struct ProgressNumbers {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double tokens_per_second = 0;
  std::optional<double> seconds_left;  ///< nothing after the last step
  double loss = 0;
  double grad_norm = 0;  ///< not finite: the gradients overflowed
  double lr = 0;
};

/// "0:12", "3:20", "1:02:03": hours, minutes and seconds, rounded to seconds.
std::string format_clock(double seconds);

/// "step 12/345  1234 tokens/s  3:20 left  loss 1.2345  grad norm 0.312  lr 2.0e-04" in at most `width`
/// columns: what doesn't fit is left out from the end; the step always stands.
std::string progress_line(const ProgressNumbers& numbers, std::size_t width);

/// The same behind a bar, which takes the columns that are left, up to 20 cells: "[##......] step ...".
std::string progress_bar_line(const ProgressNumbers& numbers, std::size_t width);

/// True for the step in which another tenth of the run is done.
bool ends_tenth(std::int64_t step, std::int64_t total_steps);

}  // namespace lorikeet::train
