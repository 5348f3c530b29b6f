#include "train/determinism.h"

#include <ATen/Context.h>

namespace lorikeet::train {

void set_deterministic(bool on) {
  at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
  at::globalContext().setDeterministicFillUninitializedMemory(false);
}

}  // namespace lorikeet::train
