#include "train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "base/log.h"
#include "train/progress_line.h"

namespace lorikeet::train {
namespace {

constexpr std::size_t kWindow = 31;
constexpr std::size_t kUsualWidth = 80;

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
}

}  // namespace

Progress::Progress(std::int64_t total_steps, std::int64_t log_every_steps)
    : total_steps_(total_steps), log_every_steps_(log_every_steps), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() { end_line(); }

void Progress::end_line() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

void Progress::clear() {
  if (!drawn_) return;
  std::fputs("\r\x1b[2K", stderr);
  drawn_ = false;
}

void Progress::message(const std::string& text) {
  clear();
  log_info(text);
}

void Progress::step(const StepMetrics& m) {
  if (latest_seconds_.size() < kWindow) {
    latest_seconds_.push_back(m.step_seconds);
  } else {
    latest_seconds_[next_++ % kWindow] = m.step_seconds;
  }
  std::vector<double> sorted = latest_seconds_;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2),
                   sorted.end());
  const double left = sorted[sorted.size() / 2] * static_cast<double>(total_steps_ - m.step);

  const bool last = m.step == total_steps_;
  if (!terminal_ && !last && m.step != 1 && m.step % log_every_steps_ != 0) return;
  const ProgressNumbers numbers{
      .step = m.step,
      .total_steps = total_steps_,
      .tokens_per_second = m.step_seconds > 0 ? static_cast<double>(m.tokens) / m.step_seconds : 0,
      .seconds_left = last ? std::nullopt : std::optional(left),
      .loss = m.loss,
      .grad_norm = m.grad_norm,
      .lr = m.lr};
  if (!terminal_) {
    log_info(progress_line(numbers, kUsualWidth));
    return;
  }
  clear();
  // The last column stays free: some terminals wrap behind it.
  std::fputs(progress_bar_line(numbers, terminal_width() - 1).c_str(), stderr);
  drawn_ = true;
  if (ends_tenth(m.step, total_steps_)) end_line();
  std::fflush(stderr);
}

}  // namespace lorikeet::train
