#include "plan/options.h"

#include <algorithm>
#include <tuple>

namespace lorikeet::plan {
namespace {

constexpr double kEquallyFast = 1.01;

Option evaluate(const Job& job, const Machine& machine, const Choice& choice) {
  const Work& work = job.work;
  const Spread spread = job.spread(choice.devices, choice.micro_tokens);
  const int sharers = machine.shared ? choice.devices : 1;
  Option option{.choice = choice,
                .memory = job.memory(choice),
                .available = machine.memory_bytes / sharers,
                .turns = spread.turns};
  const Link link = choice.devices > 1 ? machine.link(choice.devices) : Link{};
  // Forward and backward go through the whole base; recomputing, forward does twice.
  const double passes = choice.checkpointing ? 3 : 2;
  StepTimeInput in{.flops = work.flops + (choice.checkpointing ? work.recomputed_flops : 0),
                   .device_flops = machine.flops_per_second / sharers,
                   .world_size = choice.devices,
                   .degree = choice.degree,
                   .turns = spread.turns,
                   .busiest_share = spread.busiest_share,
                   .gradient_bytes = work.gradient_bytes,
                   .reduce_link = link,
                   .gather_link = choice.degree > 1 ? machine.link(choice.degree) : Link{},
                   .seconds_per_byte = machine.seconds_per_byte};
  in.least_turn_seconds = passes * work.layers * machine.seconds_per_layer;
  if (machine.memory_bytes_per_second > 0) {
    const double reading = passes * work.frozen_bytes / machine.memory_bytes_per_second;
    in.least_turn_seconds = std::max(in.least_turn_seconds, reading);
  }
  if (choice.degree > 1) in.uses = work.uses;
  option.time = step_time(in);
  option.tokens_per_second = work.tokens / option.time.total();
  if (machine.price_per_hour) {
    const double an_hour = 3600 * option.tokens_per_second;
    option.cost_per_million = 1e6 * *machine.price_per_hour * choice.devices / an_hour;
  }
  return option;
}

}  // namespace

std::vector<Option> all_options(const Job& job, const Machine& machine, const Range& range) {
  std::vector<Option> options;
  for (const int devices : range.devices) {
    for (const bool checkpointing : range.checkpointing) {
      for (const std::int64_t micro : range.micro_tokens) {
        const auto add = [&](int degree) {
          options.push_back(evaluate(job, machine, {devices, degree, checkpointing, micro}));
          return options.back().fits();
        };
        bool fits = add(1);
        for (int degree = 2; degree < devices && !fits; ++degree) {
          if (devices % degree != 0) continue;
          fits = add(degree);
          if (!fits) options.pop_back();
        }
        if (devices > 1) add(devices);
      }
    }
  }
  return options;
}

const Option* fastest(const std::vector<Option>& options, std::int64_t usual_micro_tokens,
                      const std::function<bool(const Option&)>& accept) {
  double best_speed = 0;
  for (const Option& option : options) {
    if (option.fits() && accept(option)) best_speed = std::max(best_speed, option.tokens_per_second);
  }
  const auto rank = [&](const Option& option) {
    const std::int64_t micro = option.choice.micro_tokens;
    const bool beyond = micro > usual_micro_tokens;
    return std::tuple(option.choice.devices, option.choice.checkpointing, option.choice.degree, beyond,
                      beyond ? micro : -micro);
  };
  const Option* best = nullptr;
  for (const Option& option : options) {
    if (!option.fits() || !accept(option) || kEquallyFast * option.tokens_per_second < best_speed) continue;
    if (best == nullptr || rank(option) < rank(*best)) best = &option;
  }
  return best;
}

}  // namespace lorikeet::plan
