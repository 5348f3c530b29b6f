#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/strings.h"
#include "device/pcie_rate.h"
#include "device/peak_rate.h"
#include "ops/dtype.h"
#include "probe/active.h"
#include "probe/product_rates.h"

namespace lorikeet::probe {
namespace {

constexpr double kShareOfPeak = 0.4, kShareOfLink = 0.5, kSlowDisk = 20;

std::string number(double value) { return format_number(value < 10 ? "%.2g" : "%.0f", value); }

Finding found(ProbeKind kind, Severity severity, const std::string& sentence, const std::string& command,
              const ProbeAnswer& answer) {
  Finding finding(name_of(kind), severity, sentence, command);
  finding.figures = answer.figures;
  return finding;
}

// A child that ends well without an answer (a library ended it) is as bad as a wrong answer.
ProbeAnswer answer_of(const ChildResult& result) {
  try {
    return ProbeAnswer::parse(result.output);
  } catch (const Error& error) {
    return {.wrong = {std::string("it gave no answer: ") + error.what()}};
  }
}

std::string kind_of_product(const precision::Policy& policy) {
  return policy.matmul == config::Matmul::kTf32 ? "tf32" : std::string(dtype_name(policy.compute));
}

}  // namespace

Findings judge_matmul(const ProbeAnswer& answer, const precision::Policy& policy, const ProbedGpu* gpu,
                      const std::string& device) {
  constexpr ProbeKind kKind = ProbeKind::kMatmul;
  if (!answer.wrong.empty()) {
    return {found(kKind, Severity::kUnfit, device + " computes wrong: " + answer.wrong[0],
                  "take it out of use; nvidia-smi -q shows its errors", answer)};
  }
  const double rate = answer.figure("gflops_per_second") * 1e9;
  const std::string what = device + " multiplies " + kind_of_product(policy) + " matrices at ";
  if (gpu == nullptr)
    return {found(kKind, Severity::kOk, what + number(rate / 1e9) + " GFLOP/s", "", answer)};
  const auto peak = device::peak_flops(gpu->name, policy.compute, policy.matmul);
  const std::string measured = what + number(rate / 1e12) + " TFLOP/s";
  if (!peak) return {found(kKind, Severity::kOk, measured + "; its data sheet isn't known here", "", answer)};
  const std::string share =
      measured + ", " + number(100 * rate / *peak) + "% of its data sheet's " + number(*peak / 1e12);
  if (rate >= kShareOfPeak * *peak) return {found(kKind, Severity::kOk, share, "", answer)};
  return {found(kKind, Severity::kWarning, share + ": something else uses the card, or holds its clocks down",
                "nvidia-smi -q -d PERFORMANCE,CLOCK,POWER", answer)};
}

Findings judge_half_products(const ProbeAnswer& answer, const precision::Policy& policy, bool deterministic) {
  constexpr ProbeKind kKind = ProbeKind::kMatmul;
  if (!answer.wrong.empty()) return judge_matmul(answer, policy, nullptr, "the CPU");
  const bool by_feature = ops::native_by_feature(ops::to_torch(policy.compute));
  const probe::ProductRates rates{.native = answer.figure("native_gflops_per_second") * 1e9,
                                  .widened = answer.figure("widened_gflops_per_second") * 1e9,
                                  .native_over_widened = answer.figure("native_over_widened")};
  const auto usual = by_feature ? ops::HalfProducts::kNative : ops::HalfProducts::kWidened;
  bool native = probe::faster_products(rates, usual) == ops::HalfProducts::kNative;
  std::string why = "which is faster; a run measures with its own shapes";
  if (deterministic) {
    native = by_feature;
    why = "by the CPU's features, for training.deterministic";
  }
  if (policy.matmul == config::Matmul::kNative || policy.matmul == config::Matmul::kWidened) {
    native = policy.matmul == config::Matmul::kNative;
    why = "as precision.matmul says";
  }
  const std::string sentence = "the CPU multiplies " + kind_of_product(policy) + " matrices at " +
                               number(rates.native / 1e9) + " GFLOP/s natively and " +
                               number(rates.widened / 1e9) + " widened to fp32; taken is " +
                               (native ? "native" : "widened") + ", " + why;
  return {found(kKind, Severity::kOk, sentence, "", answer)};
}

Findings judge_transfer(const ProbeAnswer& answer, const ProbedGpu& gpu, const std::string& device) {
  constexpr ProbeKind kKind = ProbeKind::kTransfer;
  if (!answer.wrong.empty()) {
    return {found(kKind, Severity::kUnfit, device + ": " + answer.wrong[0],
                  "take the card out of use, or seat it anew", answer)};
  }
  const double to = answer.figure("host_to_device_gb_per_second"),
               from = answer.figure("device_to_host_gb_per_second");
  std::string sentence = device + ": " + number(to) + " GB/s to it and " + number(from) + " GB/s back";
  if (!gpu.pcie_width || !gpu.pcie_generation)
    return {found(kKind, Severity::kOk, sentence + "; its link isn't known", "", answer)};
  const double link = device::pcie_gb_per_second(*gpu.pcie_generation, *gpu.pcie_width);
  sentence += ", where its PCIe link (generation " + std::to_string(*gpu.pcie_generation) + ", " +
              std::to_string(*gpu.pcie_width) + " lanes) carries about " + number(link);
  if (std::min(to, from) >= kShareOfLink * link) return {found(kKind, Severity::kOk, sentence, "", answer)};
  return {
      found(kKind, Severity::kWarning,
            sentence + ": the link runs below its generation or width, or the memory is of another socket",
            "nvidia-smi -q -d PCIE while it copies; numactl to the card's node", answer)};
}

Findings judge_peer_copy(const ProbeAnswer& answer, const std::string& device) {
  constexpr ProbeKind kKind = ProbeKind::kPeerCopy;
  Findings findings;
  for (const std::string& wrong : answer.wrong) {
    findings.push_back(found(kKind, Severity::kUnfit, wrong + ": training on both would be silently wrong",
                             "export NCCL_P2P_DISABLE=1; boot with iommu=pt and switch ACS off to do without",
                             answer));
  }
  if (!findings.empty() || answer.figures.empty()) return findings;
  const auto [slowest, fastest] =
      std::minmax_element(answer.figures.begin(), answer.figures.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; });
  const std::string range = answer.figures.size() == 1
                                ? number(slowest->second)
                                : number(slowest->second) + " to " + number(fastest->second);
  return {found(kKind, Severity::kOk,
                "what " + device + " copies to the others arrives byte for byte, at " + range + " GB/s", "",
                answer)};
}

Findings judge_all_reduce(const std::vector<ChildResult>& results, bool cuda, bool needed, double limit) {
  constexpr ProbeKind kKind = ProbeKind::kAllReduce;
  const Severity grave = needed ? Severity::kUnfit : Severity::kWarning;
  const std::string mend =
      cuda ? "NCCL_DEBUG=INFO NCCL_DEBUG_FILE=nccl.%p.log lorikeet doctor, and read where it stops" : "";
  // Who was stopped for another's sake has nothing to tell.
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].succeeded() || results[rank].end == ChildResult::End::kStopped) continue;
    return {{name_of(kKind), grave,
             "rank " + std::to_string(rank) + " of " + std::to_string(results.size()) + " " +
                 results[rank].trouble(limit),
             mend}};
  }
  double slowest = 0;
  for (const ChildResult& result : results) {
    const ProbeAnswer answer = answer_of(result);
    if (!answer.wrong.empty()) return {found(kKind, Severity::kUnfit, answer.wrong[0], mend, answer)};
    const double rate = answer.figure("bus_gb_per_second");
    slowest = slowest == 0 ? rate : std::min(slowest, rate);
  }
  const std::string sentence = std::to_string(results.size()) + " ranks add up " +
                               (cuda ? "over NCCL" : "over Gloo") + " at " + number(slowest) +
                               " GB/s (bus, 4 MiB)";
  return {found(kKind, Severity::kOk, sentence, "", {.figures = {{"bus_gb_per_second", slowest}}})};
}

Findings judge_write(const ProbeAnswer& answer, const std::filesystem::path& folder) {
  const double rate = answer.figure("mb_per_second");
  const std::string sentence = number(rate) + " MB/s into '" + folder.string() + "' (16 MiB with fsync)";
  if (rate >= kSlowDisk) return {found(ProbeKind::kWrite, Severity::kOk, sentence, "", answer)};
  return {found(ProbeKind::kWrite, Severity::kWarning,
                sentence + ": training waits while a checkpoint is written",
                "set checkpoint.output_dir to a faster disk, or save less often", answer)};
}

}  // namespace lorikeet::probe
