#include "card/report.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <string>

namespace lorikeet::card {
namespace {

void write(std::ostream& out, const char* name, const std::map<std::string, std::int64_t>& counts) {
  out << std::quoted(name) << ": {";
  const char* separator = "";
  for (const auto& [key, count] : counts) {
    out << separator << std::quoted(key) << ": " << count;
    separator = ", ";
  }
  out << "}, ";
}

// Static, so that its destructor runs when the process ends.
struct Writer {
  ~Writer() {
    const char* folder = std::getenv("FAKE_CARD_REPORTS");
    if (folder == nullptr) return;
    std::ofstream(std::string(folder) + "/" + std::to_string(getpid()) + ".json")
        << to_json(report()) << '\n';
  }
};

}  // namespace

Report& report() {
  static Report counters;
  static const Writer writer;  // destroyed before the counters, which it reads
  return counters;
}

void reset_report() {
  const Lock lock(mutex());
  report() = {};
}

std::string to_json(const Report& report) {
  std::ostringstream out;
  out << '{';
  write(out, "operators", report.operators);
  write(out, "kernels", report.kernels);
  write(out, "waits", report.waits);
  write(out, "hazards", report.hazards);
  out << "\"uploads\": " << report.uploads << ", \"pinned_uploads\": " << report.pinned_uploads
      << ", \"downloads\": " << report.downloads << ", \"pinned_downloads\": " << report.pinned_downloads
      << ", \"allocations\": " << report.allocations << '}';
  return out.str();
}

std::recursive_mutex& mutex() {
  static std::recursive_mutex one;
  return one;
}

void count_wait(const std::string& cause) {
  const Lock lock(mutex());
  ++report().waits[cause];
}

void count_hazard(const std::string& what) {
  const Lock lock(mutex());
  ++report().hazards[what];
}

}  // namespace lorikeet::card
