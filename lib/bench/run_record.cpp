#include "bench/run_record.h"

#include <limits>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/strings.h"

namespace lorikeet::bench {
namespace {

double number_or_nan(const JsonView& line, std::string_view key) {
  return line.get_number(key, std::numeric_limits<double>::quiet_NaN());
}

StepSample read_step(const JsonView& line) {
  return {.step = line.at("step").as_int(),
          .loss = number_or_nan(line, "loss"),
          .tokens = line.at("tokens").as_int(),
          .step_seconds = line.at("step_seconds").as_number(),
          .data_seconds = line.at("data_seconds").as_number(),
          .comm_seconds = line.at("comm_seconds").as_number(),
          .memory_peak_bytes = static_cast<std::uint64_t>(line.at("memory_peak_bytes").as_int())};
}

// The lines of optimizer steps; those of validations have no count of tokens.
std::vector<StepSample> read_steps(const std::filesystem::path& path) {
  std::vector<StepSample> steps;
  int number = 0;
  for (const std::string& text : split(read_file(path), '\n')) {
    ++number;
    if (text.empty()) continue;
    const std::string where = path.string() + ":" + std::to_string(number);
    const Json json = Json::parse(text, where);
    const JsonView line(json, where);
    if (line.has("tokens")) steps.push_back(read_step(line));
  }
  return steps;
}

}  // namespace

RunRecord read_run(const std::filesystem::path& folder, const std::string& name) {
  const std::filesystem::path file = folder / "run.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) {
    throw Error("[bench] expected the output folder of a run, found no run.json in '" + folder.string() +
                "'");
  }
  const Json json = Json::parse(read_file(file), file.string());
  const JsonView run(json, file.string());
  if (!run.get_bool("finished", false)) {
    throw Error("[bench] the run in '" + folder.string() +
                "' is not finished: the same command goes on with it");
  }
  const JsonView identity = run.at("identity");
  RunRecord record{.name = name,
                   .version = run.at("lorikeet_version").as_string(),
                   .code = run.get_string("code", "not told"),
                   .libtorch = run.at("libtorch_version").as_string(),
                   .model = identity.at("model").as_string(),
                   .data = identity.at("data").as_string(),
                   .policy = identity.at("policy").as_string(),
                   .settings = identity.at("settings").as_string(),
                   .world_size = static_cast<int>(run.at("world_size").as_int()),
                   .threads = static_cast<int>(run.at("threads").as_int()),
                   .strategy = run.at("strategy").as_string()};
  for (const JsonView& device : run.at("devices").items()) {
    record.devices.push_back(device.as_string());
  }
  record.steps = read_steps(folder / "metrics.jsonl");
  if (record.steps.empty()) throw Error("[bench] the run in '" + folder.string() + "' has made no step");
  return record;
}

}  // namespace lorikeet::bench
