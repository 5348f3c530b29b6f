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

// The active probes as `lorikeet doctor` runs them, each in child processes, and what it makes of their
// answers.
namespace lorikeet::probe {

/// A GPU as CUDA numbers it, and what its rates are held against.
struct ProbedGpu {
  int number = 0;
  std::string name;
  std::optional<unsigned> pcie_width, pcie_generation;  ///< of the link, at most; empty where not told
};

/// The program, and the arguments before the request's text, that make a child of it.
struct ProbeProgram {
  std::filesystem::path program;
  std::vector<std::string> arguments;

  ChildCommand child(const ProbeRequest& request) const;
};

struct ActivePlan {
  ProbeProgram program;
  std::vector<ProbedGpu> gpus;  ///< none: the CPU alone
  int ranks = 1;                ///< of the run; on GPUs the all-reduce has one for each, on a CPU two
  precision::Policy policy;
  std::filesystem::path folder;
  std::optional<double> limit_seconds;  ///< of each probe, in place of its own
};

/// How long a probe may take, its process's start included: 20 s for the all-reduce, 60 s for others.
double limit_seconds(ProbeKind kind);

/// Runs the ranks of a kAllReduce probe, each a child: one for each of `devices` (CUDA's numbers; -1 is the
/// CPU). `request` tells what else they are to do.
std::vector<ChildResult> run_all_reduce(const ProbeProgram& program, ProbeRequest request,
                                        const std::vector<int>& devices);

/// Runs the probes one after the other, each with its findings; what can't be probed without a GPU is skipped
/// in a sentence.
Findings run_probes(const ActivePlan& plan);

// --- What an answer means, for one GPU or (nullptr) the CPU.

/// A product below 40% of the card's data sheet is a warning, wrong numbers are unfit.
Findings judge_matmul(const ProbeAnswer& answer, const precision::Policy& policy, const ProbedGpu* gpu,
                      const std::string& device);

/// A copy below half of what the card's link carries is a warning.
Findings judge_transfer(const ProbeAnswer& answer, const ProbedGpu& gpu, const std::string& device);

Findings judge_peer_copy(const ProbeAnswer& answer, const std::string& device);

/// The answers of all ranks, or how they ended. `needed`: the run has several ranks, so that it can't do
/// without.
Findings judge_all_reduce(const std::vector<ChildResult>& results, bool cuda, bool needed, double limit);

/// Less than 20 MB/s is a warning: an adapter of 100 MB with its optimizer takes longer than half a minute.
Findings judge_write(const ProbeAnswer& answer, const std::filesystem::path& folder);

}  // namespace lorikeet::probe
