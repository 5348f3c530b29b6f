#include "hub/progress.h"

#include <algorithm>
#include <cstdio>

#include "base/counted.h"
#include "base/log.h"
#include "base/strings.h"

namespace lorikeet::hub {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval(200);
constexpr std::chrono::seconds kPlainInterval(30);
constexpr double kLeastSecondsForRate = 1;

}  // namespace

Progress::Progress(std::size_t files, std::uint64_t bytes, bool on_terminal)
    : files_(files), bytes_(bytes), on_terminal_(on_terminal) {}

Progress::~Progress() {
  if (on_terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::add(std::int64_t bytes, bool kept) {
  const std::lock_guard lock(mutex_);
  bytes_done_ += bytes;
  if (!kept) bytes_received_ += std::max<std::int64_t>(bytes, 0);
  const Clock::time_point now = Clock::now();
  if (now - shown_ < (on_terminal_ ? kTerminalInterval : std::chrono::milliseconds(kPlainInterval))) return;
  shown_ = now;
  show();
}

void Progress::finished(const std::string& path, std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++files_done_;
  if (on_terminal_) {
    show();
  } else {
    log_info(path + ": " + format_bytes(bytes));
  }
}

void Progress::show() {
  if (on_terminal_) {
    std::fputs(("\r\033[K" + state()).c_str(), stderr);
  } else {
    log_info(state());
  }
}

std::string Progress::state() const {
  const auto done = static_cast<std::uint64_t>(std::max<std::int64_t>(bytes_done_, 0));
  std::string text = std::to_string(files_done_) + " of " + counted(files_, "file") + ", " +
                     format_bytes(done) + " of " + format_bytes(bytes_);
  const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
  if (seconds < kLeastSecondsForRate || bytes_received_ <= 0) return text;
  const double rate = static_cast<double>(bytes_received_) / seconds;
  const double left = static_cast<double>(bytes_ - std::min(bytes_, done)) / rate;
  return text + ", " + format_bytes(static_cast<std::uint64_t>(rate)) + "/s, " + format_seconds(left) +
         " left";
}

}  // namespace lorikeet::hub
