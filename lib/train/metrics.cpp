#include "train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.h"

namespace lorikeet::train {
namespace {

// The lines to keep of an earlier part of the run.
std::string kept_lines(const std::filesystem::path& path, std::int64_t keep_steps) {
  if (!std::filesystem::exists(path)) return "";
  const std::string text = read_file(path);
  std::string kept;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;  // cut by a crash
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    try {
      const Json json = Json::parse(line, path.string());
      const Json* step = json.find("step");
      if (step != nullptr && step->is_integer() && step->integer() <= keep_steps) kept += line + "\n";
    } catch (const Error&) {
      break;  // what follows a damaged line can't be trusted either
    }
  }
  return kept;
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
    line.set("comm_share", step_seconds > 0 ? comm_seconds / step_seconds : 0).set("comm_bytes", comm_bytes);
    line.set("comm_bytes_by_collective", std::move(by_collective));
    line.set("slowest_rank_seconds", slowest_rank_seconds).set("fastest_rank_seconds", fastest_rank_seconds);
  }
  return line;
}

MetricsWriter::MetricsWriter(const std::filesystem::path& path, std::int64_t keep_steps) : path_(path) {
  write_file_atomic(path, kept_lines(path, keep_steps));
  fd_ = UniqueFd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!fd_)
    throw Error("[metrics] can't open '" + path.string() + "': " + std::strerror(errno),
                ErrorKind::kEnvironment);
}

void MetricsWriter::write(const Json& line) {
  const std::string text = line.dump() + "\n";
  if (::write(fd_.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    throw Error("[metrics] can't write to '" + path_.string() + "': " + std::strerror(errno),
                ErrorKind::kEnvironment);
  }
}

}  // namespace lorikeet::train
