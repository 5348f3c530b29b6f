#include "train/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/log.h"
#include "base/strings.h"

namespace lorikeet::train {
namespace {

constexpr std::size_t kWindow = 31;

std::size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

std::string bar(std::int64_t done, std::int64_t total) {
  constexpr std::int64_t kCells = 20;
  const std::int64_t filled = total > 0 ? kCells * done / total : kCells;
  return "[" + std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(kCells - filled), '.') + "]";
}

}  // namespace

Progress::Progress(std::int64_t total_steps, std::int64_t log_every_steps)
    : total_steps_(total_steps), log_every_steps_(log_every_steps), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
  if (drawn_) std::fputc('\n', stderr);
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
  const double rate = m.step_seconds > 0 ? static_cast<double>(m.tokens) / m.step_seconds : 0;
  const std::string numbers = "step " + std::to_string(m.step) + "/" + std::to_string(total_steps_) +
                              format_number("  loss %.4f", m.loss) +
                              (std::isfinite(m.grad_norm) ? format_number("  grad norm %.3f", m.grad_norm)
                                                          : "  gradients overflowed") +
                              format_number("  lr %.2e", m.lr) + format_number("  %.0f tokens/s", rate) +
                              (last ? "" : "  " + format_seconds(left) + " left");
  if (!terminal_) {
    log_info(numbers);
    return;
  }
  clear();
  const std::string line = bar(m.step, total_steps_) + " " + numbers;
  std::fputs(line.substr(0, terminal_width() - 1).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace lorikeet::train
