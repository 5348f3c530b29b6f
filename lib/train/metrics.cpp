#include "train/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/write_all.h"

namespace lorikeet::train {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* action, int reason) {
  throw Error("[metrics] can't " + std::string(action) + " '" + path.string() + "': " + std::strerror(reason),
              ErrorKind::kEnvironment);
}

struct KeptLines {
  std::string text;
  std::vector<std::int64_t> damaged;  // numbers of lines, from 1
  std::set<std::int64_t> steps;       // that have a line of their own
};

// The lines to keep of an earlier part of the run.
KeptLines kept_lines(const std::filesystem::path& path, std::int64_t keep_steps, bool validation_pending) {
  KeptLines kept;
  if (keep_steps == 0 || !std::filesystem::exists(path)) return kept;
  const std::string text = read_file(path);
  std::int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // cut by a crash
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    try {
      const Json json = Json::parse(line, path.string());
      const std::int64_t step = JsonView(json, path.string()).at("step").as_int();
      const bool of_training = json.find("loss") != nullptr;  // a validation has lines of its own
      if (step > keep_steps || (validation_pending && step == keep_steps && !of_training)) continue;
      kept.text += line + "\n";
      if (of_training) kept.steps.insert(step);
    } catch (const Error&) {
      kept.damaged.push_back(number);
    }
  }
  return kept;
}

// "1 to 3, 7": the numbers from 1 to `last` that aren't in `there`.
std::string missing_ranges(const std::set<std::int64_t>& there, std::int64_t last) {
  std::vector<std::string> ranges;
  for (std::int64_t step = 1; step <= last; ++step) {
    if (there.contains(step)) continue;
    const std::int64_t first = step;
    while (step < last && !there.contains(step + 1)) ++step;
    ranges.push_back(std::to_string(first) + (step > first ? " to " + std::to_string(step) : ""));
  }
  return join(ranges, ", ");
}

void report_losses(const std::filesystem::path& path, const KeptLines& kept, std::int64_t keep_steps) {
  if (!kept.damaged.empty()) {
    std::vector<std::string> numbers;
    for (const std::int64_t number : kept.damaged) numbers.push_back(std::to_string(number));
    log_warning("[metrics] '" + path.string() + "' was damaged; dropped line" +
                (numbers.size() > 1 ? "s " : " ") + join(numbers, ", "));
  }
  const std::string missing = missing_ranges(kept.steps, keep_steps);
  if (!missing.empty())
    log_warning("[metrics] '" + path.string() + "' has no lines of steps " + missing +
                ", which the run has done: they were lost");
}

}  // namespace

Json StepMetrics::json() const {
  const double per_second = step_seconds > 0 ? static_cast<double>(tokens) / step_seconds : 0;
  const double tflops = step_seconds > 0 ? flops / step_seconds / devices / 1e12 : 0;
  Json line;
  line.set("step", step).set("epoch", epoch).set("loss", loss).set("grad_norm", grad_norm).set("lr", lr);
  if (loss_scale) line.set("loss_scale", *loss_scale).set("skipped_steps", skipped_steps);
  line.set("examples", examples).set("tokens", tokens).set("label_tokens", label_tokens);
  line.set("step_seconds", step_seconds).set("data_seconds", data_seconds).set("comm_seconds", comm_seconds);
  line.set("tokens_per_second", per_second).set("tokens_per_second_per_device", per_second / devices);
  line.set("tflops_per_device", tflops);
  line.set("mfu", peak_flops ? Json(tflops * 1e12 / *peak_flops) : Json());
  line.set("memory_peak_bytes", memory_peak_bytes).set("elapsed_seconds", elapsed_seconds);
  if (devices > 1) {
    double comm_bytes = 0;
    Json by_collective{Json::Object{}};
    for (const auto& [collective, bytes] : sent_bytes) {
      comm_bytes += bytes;
      by_collective.set(collective, bytes);
    }
    line.set("comm_share", comm_share).set("comm_bytes", comm_bytes);
    line.set("comm_bytes_by_collective", std::move(by_collective));
    line.set("slowest_rank_seconds", slowest_rank_seconds).set("fastest_rank_seconds", fastest_rank_seconds);
  }
  return line;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps,
                             bool validation_pending)
    : path_(path), kept_steps_(keep_steps) {
  const KeptLines kept = kept_lines(path, keep_steps, validation_pending);
  report_losses(path, kept, keep_steps);
  write_file_atomic(path, kept.text);
  open();
}

void MetricsWriter::open() {
  fd_ = UniqueFd(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
  if (fd_) return;
  if (errno != ENOENT) fail(path_, "open", errno);
  throw Error(
      "[metrics] the folder of '" + path_.string() + "' is gone: it was deleted while the run was going on",
      ErrorKind::kRunFailed);
}

void MetricsWriter::show_in_tensorboard() { events_.emplace(path_.parent_path(), kept_steps_ + 1); }

void MetricsWriter::write(const Json& line) {
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) fail(path_, "look at", errno);
  if (info.st_nlink == 0) {
    open();
    log_warning("[metrics] '" + path_.string() + "' was deleted while the run was going on; it begins anew");
    info.st_size = 0;
  }
  if (const int reason = write_all(fd_.get(), line.dump() + "\n")) {
    // Half a line would be taken for damage later.
    if (::ftruncate(fd_.get(), info.st_size) != 0) log_warning("[metrics] the last line is cut");
    fail(path_, "write to", reason);
  }
  if (events_) events_->write(line);
}

void MetricsWriter::sync() {
  if (::fsync(fd_.get()) != 0) fail(path_, "sync", errno);
}

}  // namespace lorikeet::train
