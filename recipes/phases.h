#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"

namespace lorikeet::recipes {

/// Seconds since this process was started by the kernel (so that loading the program itself counts).
double seconds_since_process_start();

/// How long each phase of a run took, from process start on, and how much memory it needed.
class Phases {
 public:
  /// Ends the current phase and gives it a name.
  void finish(const std::string& name);

  /// {"start": 0.4, "read model": 0.1, ...}
  Json json() const;
  /// {"start": 120000000, ...}: the process's peak resident memory at the end of each phase.
  Json peak_memory_json() const;
  /// "start 0.41 s, read model 0.10 s, ..."
  std::string line() const;

 private:
  double last_ = 0;
  struct Phase {
    std::string name;
    double seconds;
    std::uint64_t peak_resident_bytes;
  };
  std::vector<Phase> phases_;
};

}  // namespace lorikeet::recipes
