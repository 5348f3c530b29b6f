// Where a run writes its adapter and checkpoints.
#include "base/strings.h"
#include "probe/checks.h"

namespace lorikeet::probe {

Findings check_output_folder(const Sources& sources) {
  constexpr const char* kName = "output folder";
  constexpr std::uint64_t kLittle = std::uint64_t{1} << 30;
  const FolderFacts& facts = sources.output;
  const std::string folder = "'" + facts.folder.string() + "'";
  const std::string mend = "set checkpoint.output_dir (doctor: --output-dir) to another folder";
  if (!facts.problem.empty())
    return {{kName, Severity::kUnfit, "nothing can be written to " + folder + ": " + facts.problem, mend}};
  Findings found;
  const std::string free =
      facts.free_bytes ? format_bytes(*facts.free_bytes) + " free" : "free space unknown";
  if (facts.free_bytes && *facts.free_bytes < kLittle) {
    found.emplace_back(
        kName, Severity::kWarning,
        folder + " has only " + free +
            ": a checkpoint holds adapter and optimizer, 12 bytes a parameter, and several are "
            "kept",
        mend);
  }
  using Kind = FolderFacts::Kind;
  switch (facts.kind) {
    case Kind::kLocal: break;
    case Kind::kNetwork:
      found.emplace_back(kName, Severity::kNote,
                         folder + " is on a network file system (" + facts.filesystem +
                             "): a checkpoint takes as long as the server takes to have it on disk");
      break;
    case Kind::kFuse:
      found.emplace_back(kName, Severity::kNote,
                         folder + " is served by a program (FUSE), perhaps over a network");
      break;
    case Kind::kMemory:
      found.emplace_back(kName, Severity::kNote,
                         folder + " lies in main memory (" + facts.filesystem +
                             "): it is gone after a restart, and what it holds is missing to the run");
      break;
    case Kind::kContainerLayer:
      found.emplace_back(kName, Severity::kNote,
                         folder + " lies in the container's own layer (overlay): it goes with the container");
      break;
  }
  if (found.empty()) found.emplace_back(kName, Severity::kOk, folder + ", " + free);
  return found;
}

}  // namespace lorikeet::probe
