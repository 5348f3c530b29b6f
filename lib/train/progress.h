#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/metrics.h"

namespace lorikeet::train {

/// Shows how a run goes, on stderr: on a terminal one redrawn line, of which each tenth of the run stays, so
/// that scrolling back shows its course; elsewhere a plain line every so many steps.
/// The time left is estimated from the median of the latest steps, so that a slow first step or a pause for a
/// checkpoint doesn't spoil it.
class Progress {
 public:
  Progress(std::int64_t total_steps, std::int64_t log_every_steps);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepMetrics& metrics);
  /// A line of its own, above the bar.
  void message(const std::string& text);

 private:
  void clear();
  void end_line();

  std::int64_t total_steps_;
  std::int64_t log_every_steps_;
  bool terminal_;
  bool drawn_ = false;
  std::vector<double> latest_seconds_;  // ring of the latest steps
  std::size_t next_ = 0;
};

}  // namespace lorikeet::train
