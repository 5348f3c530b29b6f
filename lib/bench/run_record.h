#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lorikeet::bench {

/// What a benchmark needs of one optimizer step: a line of metrics.jsonl.
struct StepSample {
  std::int64_t step = 0;  ///< from 1
  double loss = 0;        ///< NaN where the file has null
  std::int64_t tokens = 0;
  double step_seconds = 0;
  double data_seconds = 0;              ///< of step_seconds: waiting for micro-batches
  double comm_seconds = 0;              ///< of step_seconds: doing nothing but waiting for collectives
  std::uint64_t memory_peak_bytes = 0;  ///< of the device that needed most
};

/// A finished run, as its output folder tells it.
struct RunRecord {
  std::string name;  ///< what messages call it
  // What has to be equal between runs that are compared.
  std::string version, code, libtorch;
  std::string model, data, policy;  ///< fingerprints
  std::string settings;             ///< YAML
  // What may differ, and is shown.
  int world_size = 1;
  int threads = 1;  ///< of each process
  std::string strategy;
  std::vector<std::string> devices;  ///< by rank
  std::vector<StepSample> steps;
};

/// Reads run.json and metrics.jsonl of the output folder `folder`. Throws Error (kUsage) when there is no
/// finished run in it, or its files say something else than this program writes.
RunRecord read_run(const std::filesystem::path& folder, const std::string& name);

}  // namespace lorikeet::bench
