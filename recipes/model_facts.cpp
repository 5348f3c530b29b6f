#include "recipes/model_facts.h"

#include <functional>
#include <numeric>

#include "base/file.h"
#include "plan/least_memory.h"
#include "recipes/model_session.h"
#include "recipes/settings_map.h"
#include "recipes/step_plan.h"

namespace lorikeet::recipes {
namespace {

constexpr std::size_t kMostConfigBytes = 16U << 20;

std::int64_t parameters_of(const nn::WeightStore& store) {
  std::int64_t total = 0;
  for (const auto& unit : store.units()) {
    for (const nn::WeightSegment& segment : unit->segments()) {
      total +=
          std::accumulate(segment.shape.begin(), segment.shape.end(), std::int64_t{1}, std::multiplies<>());
    }
  }
  return total;
}

}  // namespace

ModelFacts model_facts(const std::filesystem::path& file, const config::Settings& settings) {
  const ModelSession session =
      open_config(Json::parse(read_file(file, kMostConfigBytes), file.string()), file.string(),
                  precision::resolve(settings.precision), device::Device{}, lora_config(settings.lora), 0);
  const std::int64_t row = settings.data.max_seq_len;
  const plan::MicroSize micro{.tokens = row, .label_tokens = row - 1, .longest = row};
  const ops::DryTarget target{.device = at::kCUDA};
  const config::MemorySaving full{.checkpointing = config::ActivationCheckpointing::kFull};
  const plan::MemoryInput input = memory_input(session, full, micro, /*degree=*/1, target);
  return {.parameters = parameters_of(session.model->store()),
          .least_memory_bytes = plan::least_memory(input)};
}

}  // namespace lorikeet::recipes
