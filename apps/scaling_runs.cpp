#include "apps/scaling_runs.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "apps/child.h"
#include "apps/config_files.h"
#include "apps/recipe_names.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/strings.h"
#include "bench/comparable.h"
#include "config/config.h"
#include "io/checkpoint.h"
#include "models/registry.h"

namespace lorikeet::apps {
namespace {

constexpr std::size_t kLongestError = 300;

std::optional<std::int64_t> positive(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

struct SyntheticSize {
  std::int64_t rows, length;
};

SyntheticSize parse_synthetic(const std::string& text) {
  const std::vector<std::string> parts = split(text, 'x');
  const auto rows = positive(parts[0]), length = parts.size() == 2 ? positive(parts[1]) : std::nullopt;
  if (!rows || !length || *length < 2 || *rows > (1 << 24) || *length > (1 << 24)) {
    throw Error(
        "[bench] --synthetic: expected ROWSxLENGTH with rows of at least 2 tokens, as in 256x1024, got '" +
        escape_control(text) + "'");
  }
  return {*rows, *length};
}

// Rows of random ids of the model's vocabulary, every token a label.
void write_synthetic(const std::filesystem::path& path, const SyntheticSize& size,
                     const std::filesystem::path& model) {
  io::require_model_folder(model);
  const std::filesystem::path file = model / "config.json";
  const Json config = models::read_config_json(model);
  const JsonView field = JsonView(config, file.string()).at("vocab_size");
  const std::int64_t vocabulary = field.as_int();
  if (vocabulary < 1) field.fail("a positive integer");
  PhiloxStream random(0, "benchmark rows");
  std::string text;
  for (std::int64_t row = 0; row < size.rows; ++row) {
    Json::Array ids;
    for (std::int64_t i = 0; i < size.length; ++i)
      ids.emplace_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
    text += Json().set("input_ids", ids).set("labels", ids).dump() + "\n";
  }
  write_file_atomic(path, text);
}

// What a program that failed said last.
std::string last_error(const std::filesystem::path& log) {
  std::string last, error;
  for (const std::string& line : split(read_file(log), '\n')) {
    if (!trim(line).empty()) last = line;
    // Behind "[rank 2] ", too.
    if (const std::size_t found = line.find("error: "); found != std::string::npos)
      error = line.substr(found + std::string_view("error: ").size());
  }
  std::string text = escape_control(error.empty() ? last : error);
  if (text.size() <= kLongestError) return text;
  std::size_t end = kLongestError;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a UTF-8 character
  return text.substr(0, end) + "...";
}

std::string group_name(int devices) {
  return std::to_string(devices) + (devices == 1 ? " device" : " devices");
}

class Runner {
 public:
  Runner(const config::Settings& settings, const ScalingOptions& options)
      : options_(options), config_(options.work / "config.yaml") {
    write_file_atomic(config_, config::to_yaml(settings));
    for (const int devices : options.devices) runs_.groups.push_back({group_name(devices), devices, {}});
  }

  ScalingRuns run() {
    for (int round = 0; round < options_.repeats && !runs_.interrupted; ++round) {
      for (bench::Group& group : runs_.groups) {
        if (failed(group)) continue;
        attempt(group, round);
        if (runs_.interrupted) break;
      }
    }
    return std::move(runs_);
  }

 private:
  static bool failed(const bench::Group& group) {
    return std::any_of(group.attempts.begin(), group.attempts.end(), [](const auto& a) { return !a.run; });
  }

  std::vector<std::string> command(int devices, const std::filesystem::path& output) const {
    std::vector<std::string> words =
        devices == 1 ? std::vector<std::string>{recipe_program(kSingleDeviceRecipe).string()}
                     : std::vector<std::string>{(executable_folder() / "lorikeet").string(), "run", "--nproc",
                                                std::to_string(devices), kDistributedRecipe};
    words.insert(words.end(), {"--config", config_.string(),
                               config::make_override("checkpoint.output_dir", output.string())});
    return words;
  }

  std::vector<std::pair<std::string, std::string>> variables(int devices) const {
    std::vector<std::pair<std::string, std::string>> out{
        {"OMP_NUM_THREADS", std::to_string(threads_each(options_, devices))}};
    // As the launcher has it for several, so that one gets it too.
    if (std::getenv("GOMP_SPINCOUNT") == nullptr) out.emplace_back("GOMP_SPINCOUNT", "1000");
    return out;
  }

  void attempt(bench::Group& group, int round) {
    const std::filesystem::path output = options_.work / "run", log = options_.work / "log.txt";
    std::filesystem::remove_all(output);
    const ChildEnd end = run_child(command(group.devices, output), variables(group.devices), log, signals_);
    runs_.interrupted = end.interrupted;
    keep(group, round, output, log);
    if (end.interrupted) return;
    bench::Attempt tried{.round = round};
    const std::string what =
        "round " + std::to_string(round + 1) + " of " + std::to_string(options_.repeats) + ", " + group.name;
    if (end.exit_code == 0) {
      tried.run = bench::read_run(output, "the run of " + what);
      warn_of_fewer_threads(group.devices, tried.run->threads);
      if (!first_) first_ = tried.run;
      bench::require_comparable({&*first_, &*tried.run});
      log_info(what + ": " +
               std::to_string(std::llround(bench::tokens_per_second(*tried.run, options_.warmup_steps))) +
               " tokens/s");
    } else {
      tried.exit_code = end.exit_code;
      tried.error = last_error(log);
      log_warning(what + ": exit code " + std::to_string(end.exit_code) + ": " + tried.error);
    }
    group.attempts.push_back(std::move(tried));
  }

  void warn_of_fewer_threads(int devices, int threads) {
    const int asked = threads_each(options_, devices);
    if (threads >= asked || told_of_threads_) return;
    told_of_threads_ = true;
    log_warning(std::to_string(asked) + " threads were asked for each process, and " +
                std::to_string(threads) + " started: OpenMP takes no more than there are CPUs");
  }

  // The run's record without what it trained.
  void keep(const bench::Group& group, int round, const std::filesystem::path& output,
            const std::filesystem::path& log) const {
    if (!options_.keep) return;
    const std::filesystem::path target =
        *options_.keep / ("devices_" + std::to_string(group.devices) + "_round_" + std::to_string(round + 1));
    std::filesystem::create_directories(target);
    std::filesystem::copy_file(log, target / "log.txt");
    for (const char* name : {"run.json", "metrics.jsonl", "config.yaml"}) {
      if (std::filesystem::exists(output / name)) std::filesystem::copy_file(output / name, target / name);
    }
  }

  const ScalingOptions& options_;
  std::filesystem::path config_;
  comm::SignalQueue signals_;
  ScalingRuns runs_;
  bool told_of_threads_ = false;
  std::optional<bench::RunRecord> first_;
};

}  // namespace

int threads_each(const ScalingOptions& options, int devices) {
  if (options.total_threads) {
    if (*options.total_threads % devices != 0) {
      throw Error("[bench] --total-threads " + std::to_string(*options.total_threads) +
                  " can't be divided among " + std::to_string(devices) + " devices");
    }
    return *options.total_threads / devices;
  }
  if (options.threads) return *options.threads;
  const char* set = std::getenv("OMP_NUM_THREADS");
  if (const auto own = set != nullptr ? positive(set) : std::nullopt) return static_cast<int>(*own);
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  return std::max(1, cores / options.devices.back());
}

config::Settings bench_settings(config::Settings settings, const ScalingOptions& options) {
  settings.training.max_steps = options.warmup_steps + options.steps;
  settings.lr_scheduler.warmup_ratio.reset();
  settings.lr_scheduler.warmup_steps.reset();
  settings.data.validation = {};
  settings.checkpoint = {};
  settings.checkpoint.save_every_epochs.reset();
  settings.checkpoint.output_dir = (options.work / "run").string();
  settings.metrics = {};
  if (options.synthetic) {
    const SyntheticSize size = parse_synthetic(*options.synthetic);
    const std::filesystem::path rows = options.work / "synthetic.jsonl";
    write_synthetic(rows, size, settings.model.path);
    settings.data.train = {};
    settings.data.train.path = rows.string();
    settings.data.train.format = config::DataFormat::kTokens;
    settings.data.max_seq_len = size.length;
    settings.data.cache_dir = (options.work / "cache").string();
  }
  return settings;
}

ScalingRuns run_scaling(const config::Settings& settings, const ScalingOptions& options) {
  for (const int devices : options.devices) threads_each(options, devices);  // refuses before the first run
  recipe_program(kSingleDeviceRecipe);                                       // the same
  if (options.devices.back() > 1) recipe_program(kDistributedRecipe);
  return Runner(settings, options).run();
}

}  // namespace lorikeet::apps
