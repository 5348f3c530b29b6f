#pragma once

#include <string>

// How much card memory each launch reads and writes. While a launch runs, its memory is protected: the first
// access to a page ends in a signal, which notes the page and lets the access through. A page counts once as
// read and once as written, however often the launch comes back to it, as if caches held it meanwhile.
namespace lorikeet::card {

/// Whether this machine's signals tell reading from writing.
bool traffic_is_countable();

/// Counts the traffic of launches from now on in report().traffic, or stops to.
void count_traffic(bool on);

/// A launch, which lives as long as the object. One inside another is a part of it. Hold the lock of
/// report.h.
class LaunchTraffic {
 public:
  explicit LaunchTraffic(std::string name);
  ~LaunchTraffic();
  LaunchTraffic(const LaunchTraffic&) = delete;
  LaunchTraffic& operator=(const LaunchTraffic&) = delete;

 private:
  std::string name_;
  bool tracks_ = false;
};

/// For the handler of SIGSEGV: notes an access of a launch whose traffic is counted and lets it through.
/// False: the address isn't such a launch's.
bool note_fault(void* address, const void* signal_context);

}  // namespace lorikeet::card
