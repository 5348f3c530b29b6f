#pragma once

#include <cstdint>

#include "plan/memory.h"

namespace lorikeet::plan {

/// step_memory(input).total() on a GPU that recomputes whole layers and offloads nothing, by steps of the
/// model's last layers alone: a fraction of the time for deep models. Exact where all layers have weights and
/// adapters of the same shapes and their kinds (windowed, without rotary) repeat within the last eight: then
/// every further layer adds what it keeps, its input and its adapters, and the moment of the peak lies among
/// the last ones, where most is kept. Throws Error for another kind of step.
std::int64_t least_memory(const MemoryInput& input);

}  // namespace lorikeet::plan
