#include "plan/step_time.h"

#include <algorithm>
#include <cmath>

#include "parallel/gradient_reducer.h"

namespace lorikeet::plan {
namespace {

constexpr double kBucketBytes = parallel::GradientReducer::kBucketBytes;

double gather_seconds(double bytes, int ranks, const Link& link) {
  if (bytes == 0 || ranks == 1) return 0;
  const double n = ranks;
  return (n - 1) / n * bytes / link.bytes_per_second + (n - 1) * link.latency_seconds;
}

double reduce_seconds(double bytes, int ranks, const Link& link) {
  if (bytes == 0 || ranks == 1) return 0;
  const double n = ranks;
  return 2 * (n - 1) / n * bytes / link.bytes_per_second + 2 * (n - 1) * link.latency_seconds;
}

double sum_of_gathers(const std::vector<UnitUse>& uses) {
  double bytes = 0;
  for (const UnitUse& use : uses) bytes += use.gathered_bytes;
  return bytes;
}

}  // namespace

std::vector<UnitUse> unit_uses(const nn::ModelShape& shape, const StoredBytes& stored, double head_share,
                               const InputsUnit& inputs) {
  const auto layers = static_cast<double>(shape.layers);
  const double table =
      static_cast<double>(shape.vocab_size) * static_cast<double>(shape.hidden_size) * stored.table;
  const double layer =
      static_cast<double>(shape.layer_linear_parameters - inputs.linear_parameters) / layers * stored.linear;
  // Forward and backward of a layer cost the same: neither has a gradient of a frozen weight.
  const double share = (1 - head_share) / (2 * layers);
  std::vector<UnitUse> uses{{table, 0}};
  // What comes last in a pass is still there behind the next one's embedding: layers' inputs where they
  // learn, else the first layer, unless those inputs come between.
  const bool has_inputs = inputs.bytes > 0;
  if (has_inputs) uses.push_back({inputs.learns ? 0 : inputs.bytes, 0});
  for (std::int64_t i = 0; i < shape.layers; ++i) uses.push_back({i == 0 && !has_inputs ? 0 : layer, share});
  uses.push_back({table, head_share});
  // The last layer is still there when the direction turns.
  for (std::int64_t i = 0; i < shape.layers; ++i) uses.push_back({i == 0 ? 0 : layer, share});
  if (inputs.learns) uses.push_back({inputs.bytes, 0});
  return uses;
}

StepTime step_time(const StepTimeInput& in) {
  const double ranks = in.world_size, degree = in.degree;
  const double share = in.busiest_share > 0 ? in.busiest_share : 1 / ranks;
  const double computing = std::max(in.flops * share / in.device_flops + in.turns * in.turn_seconds,
                                    in.turns * in.least_turn_seconds);
  const double gathered = in.degree > 1 ? in.turns * sum_of_gathers(in.uses) * (degree - 1) / degree : 0;
  const double reduced = 2 * (ranks - 1) / ranks * in.gradient_bytes;
  StepTime out;
  // What is sent is received as well.
  out.compute = computing + 2 * (gathered + reduced) * in.seconds_per_byte;

  if (in.degree > 1) {
    const double turn = out.compute / in.turns;
    double waited = 0;
    for (std::size_t i = 0; i < in.uses.size(); ++i) {
      const auto before = [&](std::size_t steps) {
        return in.uses[(i + in.uses.size() - steps) % in.uses.size()];
      };
      // Beside a unit that was still there the one behind it is fetched for longer.
      const double beside =
          before(1).compute_share + (before(1).gathered_bytes == 0 ? before(2).compute_share : 0);
      const double fetch = gather_seconds(in.uses[i].gathered_bytes, in.degree, in.gather_link);
      waited += std::max(0.0, fetch - turn * beside);
    }
    out.gather = in.turns * waited;
  }

  if (in.host_bytes_per_second > 0) {
    const double forward = in.forward_share * computing / in.turns, backward = computing / in.turns - forward;
    const auto beyond = [&](double bytes, double compute) {
      return std::max(0.0, bytes / in.host_bytes_per_second - compute);
    };
    out.offload = in.turns * (beyond(std::max(in.moved_bytes, in.streamed_bytes / 2), forward) +
                              beyond(in.moved_bytes + in.streamed_bytes / 2, backward));
  }

  const double full_buckets = std::floor(in.gradient_bytes / kBucketBytes) * kBucketBytes;
  const double beside = computing / in.turns / 2;
  const double in_time = reduce_seconds(full_buckets, in.world_size, in.reduce_link);
  out.reduce = std::max(0.0, in_time - beside) +
               reduce_seconds(in.gradient_bytes - full_buckets, in.world_size, in.reduce_link);
  return out;
}

}  // namespace lorikeet::plan
