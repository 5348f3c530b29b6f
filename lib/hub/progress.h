#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>

namespace lorikeet::hub {

/// Says on stderr how far a download is: on a terminal one line that is rewritten, elsewhere a line a
/// finished file and one every half minute. For several threads.
class Progress {
 public:
  Progress(std::size_t files, std::uint64_t bytes, bool on_terminal);
  /// Leaves the terminal's line.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `bytes` more are there, from the network or, with `kept`, of an earlier attempt. Less than 0: they were
  /// of no use.
  void add(std::int64_t bytes, bool kept = false);
  void finished(const std::string& path, std::uint64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void show();
  std::string state() const;

  std::mutex mutex_;
  std::size_t files_, files_done_ = 0;
  std::uint64_t bytes_;
  std::int64_t bytes_done_ = 0, bytes_received_ = 0;
  bool on_terminal_;
  Clock::time_point start_ = Clock::now(), shown_ = start_;
};

}  // namespace lorikeet::hub
