#include "card/report.h"

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <set>
#include <sstream>
#include <string>

#include "card/graph.h"

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
  out << "\"contexts\": [";
  for (const int card : report.contexts) out << (card == *report.contexts.begin() ? "" : ", ") << card;
  out << "], ";
  out << "\"uploads\": " << report.uploads << ", \"pinned_uploads\": " << report.pinned_uploads
      << ", \"downloads\": " << report.downloads << ", \"pinned_downloads\": " << report.pinned_downloads
      << ", \"allocations\": " << report.allocations << ", \"idle_waits\": " << report.idle_waits
      << ", \"launches\": " << report.launches << ", \"graph_launches\": " << report.graph_launches << '}';
  return out.str();
}

std::recursive_mutex& mutex() {
  static std::recursive_mutex one;
  return one;
}

bool launches_kernel(const std::string& name) {
  static const std::set<std::string> none = {
      "aten::as_strided",     "aten::view",
      "aten::_reshape_alias", "aten::set_.source_Storage_storage_offset",
      "aten::slice.Tensor",   "aten::empty.memory_format",
      "aten::empty_strided"};
  return !none.contains(name);
}

void count_operator(const std::string& name) {
  const Lock lock(mutex());
  if (replays()) return;
  ++report().operators[name];
  if (launches_kernel(name)) ++report().launches;
}

void count_wait(const std::string& cause) { count_wait(cause, report().launches); }

void count_wait(const std::string& cause, std::int64_t up_to_launch) {
  const Lock lock(mutex());
  refuse_in_recording(cause.c_str());
  ++report().waits[cause];
  if (up_to_launch == report().launches) ++report().idle_waits;
}

void count_hazard(const std::string& what) {
  const Lock lock(mutex());
  ++report().hazards[what];
}

}  // namespace lorikeet::card
