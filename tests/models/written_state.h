#pragma once

#include "io/checkpoint.h"
#include "models/toy_family.h"
#include "support/paths.h"

namespace lorikeet::test {

/// The tensors as the one file of a checkpoint in the folder.
io::Checkpoint written(const TemporaryFolder& folder, const State& state);

}  // namespace lorikeet::test
