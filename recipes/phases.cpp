#include "recipes/phases.h"

#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>

#include "base/strings.h"
#include "train/memory.h"

namespace lorikeet::recipes {
namespace {

// Field 22 of /proc/self/stat: clock ticks from boot to this process's start (proc(5)).
double start_after_boot_seconds() {
  std::ifstream stat("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  const std::size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return -1;
  std::istringstream fields(text.substr(after_name + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double now_after_boot_seconds() {
  timespec time{};
  clock_gettime(CLOCK_BOOTTIME, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

double seconds_since_process_start() {
  static const double start = [] {
    const double s = start_after_boot_seconds();
    return s < 0 ? now_after_boot_seconds() : s;
  }();
  return now_after_boot_seconds() - start;
}

void Phases::finish(const std::string& name) {
  const double now = seconds_since_process_start();
  phases_.push_back({name, now - last_, train::peak_resident_bytes()});
  last_ = now;
}

Json Phases::json() const {
  Json json{Json::Object{}};
  for (const Phase& phase : phases_) json.set(phase.name, phase.seconds);
  return json;
}

Json Phases::peak_memory_json() const {
  Json json{Json::Object{}};
  for (const Phase& phase : phases_) json.set(phase.name, phase.peak_resident_bytes);
  return json;
}

std::string Phases::line() const {
  std::string out;
  for (const Phase& phase : phases_) {
    out += (out.empty() ? "" : ", ") + phase.name + format_number(" %.2f s", phase.seconds);
  }
  return out;
}

}  // namespace lorikeet::recipes
