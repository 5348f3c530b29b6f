#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <memory>
#include <thread>

#include "apps/config_files.h"
#include "apps/hub_paths.h"
#include "apps/recipe_names.h"
#include "apps/scaling_runs.h"
#include "apps/verbs/bench.h"
#include "apps/verbs/between.h"
#include "apps/verbs/home_path.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/strings.h"
#include "bench/report.h"
#include "bench/verdict.h"
#include "config/config.h"

namespace lorikeet::apps {
namespace {

struct Options {
  std::string config;
  std::vector<std::string> overrides;
  ScalingOptions scaling;
  std::optional<std::string> output;
  bool json = false;
};

// A folder for the runs, removed with the object.
class WorkFolder {
 public:
  explicit WorkFolder(const std::filesystem::path& parent) {
    std::string pattern = (parent / "lorikeet-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      throw Error("[bench] can't make a folder in '" + parent.string() + "': " + std::strerror(errno),
                  ErrorKind::kEnvironment);
    }
    path_ = pattern;
  }
  ~WorkFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void make_output(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw Error("[bench] can't make the folder '" + folder.string() + "': " + error.message(),
                ErrorKind::kEnvironment);
  }
  if (!std::filesystem::is_empty(folder))
    throw Error("[bench] --output: '" + folder.string() + "' is not empty; choose an empty or new folder");
}

std::string quoted(const std::string& word) {
  static constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./=,:@%+-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string with_config(std::string command, const Options& o) {
  command += " --config " + quoted(o.config);
  for (const std::string& text : o.overrides) command += " " + quoted(text);
  return command;
}

// What to train with afterwards.
std::string training_command(const Options& o, int devices) {
  std::string threads;
  if (o.scaling.threads || o.scaling.total_threads)
    threads = "OMP_NUM_THREADS=" + std::to_string(threads_each(o.scaling, devices)) + " ";
  if (devices == 1) return with_config(threads + "lorikeet run " + kSingleDeviceRecipe, o);
  return with_config(threads + "lorikeet run --nproc " + std::to_string(devices) + " " + kDistributedRecipe,
                     o);
}

std::string own_command(const Options& o) {
  std::string out = "lorikeet bench scaling " + quoted(o.config);
  for (const std::string& text : o.overrides) out += " " + quoted(text);
  std::vector<std::string> devices;
  devices.reserve(o.scaling.devices.size());
  for (const int n : o.scaling.devices) devices.push_back(std::to_string(n));
  out += " --devices " + join(devices, ",") + " --repeats " + std::to_string(o.scaling.repeats) +
         " --steps " + std::to_string(o.scaling.steps) + " --warmup " +
         std::to_string(o.scaling.warmup_steps);
  if (o.scaling.synthetic) out += " --synthetic " + *o.scaling.synthetic;
  if (o.scaling.threads) out += " --threads " + std::to_string(*o.scaling.threads);
  if (o.scaling.total_threads) out += " --total-threads " + std::to_string(*o.scaling.total_threads);
  return out;
}

// The benchmark that would tell what this one doesn't.
std::string longer_command(Options o, bench::More more) {
  constexpr int kRepeats = 3, kMoreRepeats = 5, kMoreSteps = 4;
  o.scaling.repeats = std::max(o.scaling.repeats, kRepeats);
  if (more == bench::More::kLongerRuns) {
    o.scaling.repeats = std::max(o.scaling.repeats, kMoreRepeats);
    o.scaling.steps *= kMoreSteps;
  }
  return own_command(o);
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d", &parts);
  return text;
}

std::string batch_text(const config::BatchSettings& batch) {
  return batch.global ? std::to_string(*batch.global) + " examples a step"
                      : std::to_string(*batch.global_tokens) + " tokens a step";
}

void warn_of_few_cores(const ScalingOptions& options) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int most = options.devices.back();
  if (most * threads_each(options, most) > cores) {
    log_warning(std::to_string(most) + " processes of " + std::to_string(threads_each(options, most)) +
                " threads have " + std::to_string(cores) +
                " cores: where they are the devices, they share them");
  }
}

// 0 when all went well; a failure that is all there is keeps its own code.
int exit_code(const bench::Report& report, bool interrupted) {
  if (interrupted) return static_cast<int>(ErrorKind::kInterrupted);
  int failure = 0;
  for (const bench::Group& group : report.groups) {
    for (const bench::Attempt& attempt : group.attempts) {
      if (!attempt.run && failure == 0) failure = attempt.exit_code;
    }
  }
  if (failure == 0) return 0;
  return report.evaluation.base ? static_cast<int>(ErrorKind::kRunFailed) : failure;
}

int scaling(Options o) {
  std::sort(o.scaling.devices.begin(), o.scaling.devices.end());
  if (std::adjacent_find(o.scaling.devices.begin(), o.scaling.devices.end()) != o.scaling.devices.end())
    throw Error("[bench] --devices: expected different numbers, got one of them twice");
  config::Settings own = config::load_settings(find_config(o.config), o.overrides);
  use_local_paths(own);
  if (o.output) make_output(*o.output);
  const WorkFolder work(o.output ? std::filesystem::path(*o.output) : std::filesystem::temp_directory_path());
  o.scaling.work = work.path();
  if (o.output) o.scaling.keep = std::filesystem::path(*o.output) / "runs";
  const config::Settings settings = bench_settings(own, o.scaling);
  warn_of_few_cores(o.scaling);

  ScalingRuns runs = run_scaling(settings, o.scaling);
  bench::Report report{.title = "One device and several",
                       .command = own_command(o),
                       .facts = {"Date: " + today() + ". " + std::to_string(o.scaling.repeats) +
                                 " rounds, the numbers of devices in turn; " + batch_text(settings.batch) +
                                 ", " + std::to_string(o.scaling.steps) + " steps a run behind " +
                                 std::to_string(o.scaling.warmup_steps) + " of warm-up."},
                       .warmup_steps = o.scaling.warmup_steps,
                       .groups = std::move(runs.groups)};
  report.evaluation = bench::evaluate(report.groups, report.warmup_steps);
  report.verdict =
      bench::scaling_verdict(report.evaluation, {[&](int devices) { return training_command(o, devices); },
                                                 [&](bench::More more) { return longer_command(o, more); }});
  if (runs.interrupted) log_warning("interrupted: what was measured before is shown");
  const std::string json = bench::report_json(report).dump(2) + "\n";
  if (o.output) {
    write_file_atomic(std::filesystem::path(*o.output) / "scaling.json", json);
    write_file_atomic(std::filesystem::path(*o.output) / "scaling.md", bench::report_markdown(report));
  }
  std::cout << (o.json ? json : bench::report_text(report));
  return exit_code(report, runs.interrupted);
}

}  // namespace

Verb add_bench_scaling(CLI::App& bench) {
  auto o = std::make_shared<Options>();
  CLI::App* command = bench.add_subcommand(
      "scaling",
      "Trains for some steps on each number of devices in turn, several times, and says which number to "
      "train "
      "on. Every run takes the same examples a step, the same precision and no validation. Without --output "
      "nothing is kept.");
  command->add_option("config", o->config, "a config file, or a name that `lorikeet ls` lists")->required();
  command->add_option("overrides", o->overrides, "a.b=value sets a setting, ~a.b drops it to its default");
  command->add_option("--devices", o->scaling.devices, "the numbers of devices, as in 1,2,4")
      ->required()
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(between(1, 1024))
      ->type_name("N,N,...");
  command->add_option("--repeats", o->scaling.repeats, "runs on each number of devices")
      ->capture_default_str()
      ->check(between(1, 1000));
  command->add_option("--steps", o->scaling.steps, "optimizer steps of a run that count")
      ->capture_default_str()
      ->check(between(1, 1 << 20));
  command->add_option("--warmup", o->scaling.warmup_steps, "steps before them that don't")
      ->capture_default_str()
      ->check(between(0, 1 << 20));
  command->add_option("--synthetic", o->scaling.synthetic, "random tokens instead of the config's data")
      ->type_name("ROWSxLENGTH");
  CLI::Option* threads =
      command
          ->add_option("--threads", o->scaling.threads,
                       "of each process, at every number of devices (default: OMP_NUM_THREADS, or the cores "
                       "divided by the largest number)")
          ->check(between(1, 1024));
  command
      ->add_option("--total-threads", o->scaling.total_threads,
                   "of all processes together, instead: one device gets them all")
      ->check(between(1, 1024))
      ->excludes(threads);
  command->add_option("--output", o->output, "a new or empty folder for scaling.md, scaling.json and runs/")
      ->type_name("DIR")
      ->transform(home_path());
  command->add_flag("--json", o->json, "the result as JSON");
  return {command, [o] { return scaling(*o); }};
}

}  // namespace lorikeet::apps
