#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/communicator.h"

namespace lorikeet::parallel {

/// What one rank tells the others about its part of a step.
struct StepReport {
  double loss_sum = 0;      ///< over its label tokens
  double data_seconds = 0;  ///< until its micro-batches were there
  double comm_seconds = 0;  ///< in which it did nothing but wait for collectives
  double step_seconds = 0;
  double memory_peak_bytes = 0;
  double interrupted = 0;  ///< 1: a signal came
  double checksum = 0;     ///< of the adapter, where `distributed.verify` asks for it
};

/// Every rank's report, by rank, on every rank: one small all-gather.
std::vector<StepReport> exchange(comm::Communicator& group, const StepReport& own, const at::Device& device);

/// A number that differs when any bit of `tensor` does, nearly always; exact in a double.
double checksum(const at::Tensor& tensor);

}  // namespace lorikeet::parallel
