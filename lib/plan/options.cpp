#include "plan/options.h"

#include <algorithm>
#include <tuple>

namespace lorikeet::plan {
namespace {

constexpr double kEquallyFast = 1.03;  // a plan is no surer (benchmarks/results/card.md)

double recomputed_flops(const Work& work, config::ActivationCheckpointing grade) {
  switch (grade) {
    case config::ActivationCheckpointing::kNone: return 0;
    case config::ActivationCheckpointing::kMlp: return work.recomputed_mlp_flops;
    case config::ActivationCheckpointing::kFull: break;
  }
  return work.recomputed_flops;
}

Option evaluate(const Job& job, const Machine& machine, const Choice& choice) {
  const Work& work = job.work;
  const Spread spread = job.spread(choice.devices, choice.micro_tokens);
  const int sharers = machine.shared ? choice.devices : 1;
  Option option{.choice = choice,
                .memory = job.memory(choice),
                .available = machine.memory_bytes / sharers,
                .host_available = machine.host_memory_bytes / choice.devices,
                .turns = spread.turns};
  const Link link = choice.devices > 1 ? machine.link(choice.devices) : Link{};
  const double recomputed = recomputed_flops(work, choice.saving.checkpointing);
  // Forward and backward go through the whole base; recomputing layers, forward does twice.
  const double passes = 2 + (recomputed > 0 ? recomputed / work.recomputed_flops : 0);
  StepTimeInput in{.flops = work.flops + recomputed,
                   .device_flops = machine.flops_per_second / sharers,
                   .world_size = choice.devices,
                   .degree = choice.degree,
                   .turns = spread.turns,
                   .busiest_share = spread.busiest_share,
                   .gradient_bytes = work.gradient_bytes,
                   .reduce_link = link,
                   .gather_link = choice.degree > 1 ? machine.link(choice.degree) : Link{},
                   .seconds_per_byte = machine.seconds_per_byte,
                   .forward_share = work.flops / 2 / (work.flops + recomputed),
                   .host_bytes_per_second = machine.host_bytes_per_second};
  if (machine.host_memory_bytes_per_second > 0) {
    in.host_bytes_per_second =
        std::min(in.host_bytes_per_second, machine.host_memory_bytes_per_second / choice.devices);
  }
  if (choice.saving.offload.activations) {
    // What the largest micro-batch moves, by its tokens.
    const double of_token =
        static_cast<double>(option.memory.moved_activations) / static_cast<double>(option.memory.tokens);
    in.moved_bytes = of_token * work.tokens * spread.busiest_share / spread.turns;
  }
  if (choice.saving.offload.weights) in.streamed_bytes = work.streamed_bytes;
  in.turn_seconds = passes * work.layers * machine.seconds_per_layer;
  if (machine.decoded_bytes_per_second > 0)
    in.turn_seconds +=
        (work.forward_decodes ? passes : 1) * work.decoded_bytes / machine.decoded_bytes_per_second;
  in.least_turn_seconds = passes * work.layers * machine.least_seconds_per_layer;
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

// Adds those that fit of the range's further offloads, or else the last one; false where none fits.
bool add_offloads(std::vector<Option>& options, const Range& range,
                  const std::function<bool(const config::Offload&)>& add) {
  bool any = false;
  for (auto offload = range.offload.begin() + 1; offload != range.offload.end(); ++offload) {
    const bool fits = add(*offload);
    any = any || fits;
    if (!fits && (any || offload + 1 != range.offload.end())) options.pop_back();
  }
  return any;
}

}  // namespace

std::vector<Option> all_options(const Job& job, const Machine& machine, const Range& range) {
  std::vector<Option> options;
  for (const int devices : range.devices) {
    for (const auto checkpointing : range.checkpointing) {
      bool hopeless = false;  // with any offload: so it is with larger micro-batches
      for (const std::int64_t micro : range.micro_tokens) {
        const auto add = [&](int degree, const config::Offload& offload) {
          options.push_back(evaluate(job, machine, {devices, degree, {checkpointing, offload}, micro}));
          return options.back().fits();
        };
        const int first = range.degree.value_or(1);
        bool fits = add(first, range.offload.front());
        if (!fits && first == 1 && !hopeless && range.offload.size() > 1)
          hopeless = !add_offloads(options, range, [&](const config::Offload& o) { return add(1, o); });
        if (range.degree) continue;
        for (int degree = 2; degree < devices && !fits; ++degree) {
          if (devices % degree != 0) continue;
          fits = add(degree, range.offload.front());
          if (!fits) options.pop_back();
        }
        if (devices > 1) add(devices, range.offload.front());
      }
    }
  }
  return options;
}

const Option* fastest(const std::vector<Option>& options, std::int64_t usual_micro_tokens,
                      const std::function<bool(const Option&)>& accept) {
  // By larger micro-batches than the usual ones nothing is measured, unless only they fit.
  double best_speed = 0, best_beyond = 0;
  for (const Option& option : options) {
    if (!option.fits() || !accept(option)) continue;
    double& best = option.choice.micro_tokens > usual_micro_tokens ? best_beyond : best_speed;
    best = std::max(best, option.tokens_per_second);
  }
  if (best_speed == 0) best_speed = best_beyond;
  const auto rank = [&](const Option& option) {
    const std::int64_t micro = option.choice.micro_tokens;
    const bool beyond = micro > usual_micro_tokens;
    const config::MemorySaving& saving = option.choice.saving;
    return std::tuple(option.choice.devices, saving.checkpointing, saving.offload.activations,
                      saving.offload.weights, option.choice.degree, beyond, beyond ? micro : -micro);
  };
  const Option* best = nullptr;
  for (const Option& option : options) {
    if (!option.fits() || !accept(option) || kEquallyFast * option.tokens_per_second < best_speed) continue;
    if (best == nullptr || rank(option) < rank(*best)) best = &option;
  }
  return best;
}

}  // namespace lorikeet::plan
