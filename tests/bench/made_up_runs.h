#pragma once

#include <string>
#include <vector>

#include "bench/evaluation.h"

namespace lorikeet::test {

/// A run of 4 steps of 1,000 tokens at `rate` tokens/s behind a first one at a tenth of it.
inline bench::RunRecord made_up_run(int devices, double rate, double loss = 2) {
  bench::RunRecord run{.name = std::to_string(devices) + " devices",
                       .version = "0.1.0",
                       .code = "c0de",
                       .libtorch = "2.11.0",
                       .model = "m0del",
                       .data = "da7a",
                       .policy = "bf16",
                       .settings = "model: {path: m}",
                       .world_size = devices,
                       .threads = 1,
                       .strategy = "replicate",
                       .devices = std::vector<std::string>(static_cast<std::size_t>(devices), "cpu (fake)")};
  for (int step = 1; step <= 5; ++step) {
    const double seconds = (step == 1 ? 10 : 1) * 1000 / rate;
    run.steps.push_back({.step = step,
                         .loss = loss,
                         .tokens = 1000,
                         .step_seconds = seconds,
                         .data_seconds = 0.01 * seconds,
                         .comm_seconds = devices > 1 ? 0.2 * seconds : 0,
                         .memory_peak_bytes = std::uint64_t{1} << 30});
  }
  return run;
}

/// Runs on so many devices at these rates (tokens/s in all), one a round.
inline bench::Group made_up_group(int devices, const std::vector<double>& rates) {
  bench::Group group{std::to_string(devices) + (devices == 1 ? " device" : " devices"), devices, {}};
  for (std::size_t round = 0; round < rates.size(); ++round) {
    group.attempts.push_back({.round = static_cast<int>(round), .run = made_up_run(devices, rates[round])});
  }
  return group;
}

}  // namespace lorikeet::test
