#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/memory_saving.h"
#include "plan/memory.h"
#include "plan/spread.h"
#include "plan/step_time.h"
#include "plan/strategy.h"

namespace lorikeet::plan {

/// The devices that are planned for, all alike, in one machine.
struct Machine {
  std::string device;                   ///< "NVIDIA GeForce RTX 3090"
  std::int64_t memory_bytes = 0;        ///< that a run may take on each of n devices; see share_memory
  double flops_per_second = 0;          ///< that a device sustains in training
  double memory_bytes_per_second = 0;   ///< of the device's own memory; 0: not looked at
  double decoded_bytes_per_second = 0;  ///< plan::CardRates::decoding; 0: not looked at
  // A forward or a backward of a layer takes, beside what its tokens do, and however few they are:
  double seconds_per_layer = 0;
  double least_seconds_per_layer = 0;
  std::function<Link(int devices)> link;  ///< on a ring over so many
  double seconds_per_byte = 0;            ///< see StepTimeInput
  std::int64_t host_memory_bytes = 0;     ///< of the machine's host, for what is offloaded; 0: not known
  double host_bytes_per_second = 0;       ///< each way between a GPU and the host's memory; 0: not looked at
  double host_memory_bytes_per_second = 0;  ///< of the host's memory, for all its GPUs; 0: not looked at
  bool shared = false;                      ///< the devices are processes that share memory and rate of one
  std::optional<double> price_per_hour;     ///< of one device
};

/// A way to run the job.
struct Choice {
  int devices = 1;
  int degree = 1;  ///< devices that share one copy of the base
  config::MemorySaving saving = {};
  std::int64_t micro_tokens = 0;

  std::string strategy() const { return strategy_name(degree, devices); }
};

/// What a mean optimizer step has to do, whoever does it.
struct Work {
  double tokens = 0;
  double layers = 0;
  double flops = 0;                 ///< train::step_flops
  double recomputed_flops = 0;      ///< more, where whole layers are recomputed
  double recomputed_mlp_flops = 0;  ///< more, where only gate and up are
  double gradient_bytes = 0;        ///< of the adapter, in the reduce dtype
  double frozen_bytes = 0;          ///< of the whole base
  double streamed_bytes = 0;        ///< of a micro-batch, from the host's memory, where weights are offloaded
  double decoded_bytes = 0;         ///< plan::decoded_bytes
  bool forward_decodes = true;      ///< or backward alone
  std::vector<UnitUse> uses;
};

struct Job {
  Work work;
  std::function<MemoryEstimate(const Choice&)> memory;
  std::function<Spread(int devices, std::int64_t micro_tokens)> spread;
};

/// A choice and what it comes to.
struct Option {
  Choice choice;
  MemoryEstimate memory;
  std::int64_t available = 0;       ///< on each device
  std::int64_t host_available = 0;  ///< of the host's memory to each; 0: not known
  StepTime time;
  double turns = 0;
  double tokens_per_second = 0;            ///< of all devices
  std::optional<double> cost_per_million;  ///< tokens

  bool fits() const {
    return memory.total() <= available && (host_available == 0 || memory.host_total() <= host_available);
  }
};

struct Range {
  std::vector<int> devices;                ///< ascending, from 1
  std::vector<std::int64_t> micro_tokens;  ///< ascending
  std::vector<config::ActivationCheckpointing> checkpointing;
  /// The first is always tried, the others where it doesn't fit and each device has the whole base.
  std::vector<config::Offload> offload{{}};
  std::optional<int> degree;  ///< this one alone
};

/// Every choice of the range: replicate and shard for each number of devices, and hybrid with the smallest
/// degree between that fits, where there is one. Of those with another offload than the first the ones that
/// fit, and one that doesn't where none does.
std::vector<Option> all_options(const Job& job, const Machine& machine, const Range& range);

/// The fastest of those that fit and satisfy `accept`, with micro-batches up to `usual_micro_tokens` where
/// any of these fits; of equally fast ones (within 3%) that with the fewest devices, the least saving of
/// memory, then with the largest micro-batch up to `usual_micro_tokens`. nullptr where none fits.
const Option* fastest(const std::vector<Option>& options, std::int64_t usual_micro_tokens,
                      const std::function<bool(const Option&)>& accept);

}  // namespace lorikeet::plan
