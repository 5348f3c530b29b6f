#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "device/inventory.h"
#include "precision/policy.h"
#include "probe/child.h"
#include "probe/finding.h"
#include "probe/request.h"

// The active probes of `lorikeet doctor`: each runs in child processes, and its answer becomes findings.
namespace lorikeet::probe {

/// A GPU by CUDA's number, and what its measured rates are compared with.
struct ProbedGpu {
  int number = 0;
  std::string name;
  std::optional<unsigned> pcie_width, pcie_generation;  ///< the link's maximum; empty when not reported
};

/// The program that runs a probe, and its arguments before the request's text.
struct ProbeProgram {
  std::filesystem::path program;
  std::vector<std::string> arguments;

  ChildCommand child(const ProbeRequest& request) const;
};

struct ActivePlan {
  ProbeProgram program;
  std::vector<ProbedGpu> gpus;  ///< none: the CPU alone
  int ranks = 1;                ///< of the run; the all-reduce has one for each GPU, or two on a CPU
  precision::Policy policy;
  bool deterministic = false;  ///< training.deterministic
  std::filesystem::path folder;
  std::optional<double> limit_seconds;  ///< time limit of each probe; empty: that of its kind
};

/// A probe's time limit, the start of its process included: 20 s for the all-reduce, 60 s for others.
double limit_seconds(ProbeKind kind);

/// Runs a kAllReduce probe, one child process for each of `devices` (CUDA's numbers; -1 is the CPU).
/// `request` gives the other parameters.
std::vector<ChildResult> run_all_reduce(const ProbeProgram& program, ProbeRequest request,
                                        const std::vector<int>& devices);

/// Runs the probes one after the other and returns their findings. Probes that need a GPU are skipped without
/// one, with a finding that says so.
Findings run_probes(const ActivePlan& plan);

// --- The findings of an answer, for one GPU or (nullptr) the CPU.

/// A product below 40% of the card's data sheet is a warning, wrong numbers are unfit.
Findings judge_matmul(const ProbeAnswer& answer, const precision::Policy& policy, const ProbedGpu* gpu,
                      const std::string& device);

/// The rates of 16-bit products on a CPU, native and widened, and which of them a run of this policy takes.
/// Wrong numbers are unfit.
Findings judge_half_products(const ProbeAnswer& answer, const precision::Policy& policy, bool deterministic);

/// A copy below half of the rate of the card's link is a warning.
Findings judge_transfer(const ProbeAnswer& answer, const ProbedGpu& gpu, const std::string& device);

Findings judge_peer_copy(const ProbeAnswer& answer, const std::string& device);

/// Judges the answers of all ranks, or how they ended. `needed`: the run has several ranks, so that a failed
/// all-reduce makes it unfit.
Findings judge_all_reduce(const std::vector<ChildResult>& results, bool cuda, bool needed, double limit);

/// Less than 20 MB/s is a warning: an adapter of 100 MB with its optimizer takes longer than half a minute.
Findings judge_write(const ProbeAnswer& answer, const std::filesystem::path& folder);

}  // namespace lorikeet::probe
