#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/placement.h"

namespace lorikeet::comm {

/// This machine's name, for messages.
std::string host_name();

/// What messages call a rank: "rank 3", or "rank 3 on node1" where `host` isn't empty.
std::string rank_name(int rank, const std::string& host);

/// Takes the placement's rank for this process. Throws Error (kUsage), naming both, when another process has
/// it: the run of that one is left alone.
void claim_rank(c10d::Store& store, const Placement& placement);

/// Compares the number of processes, and that of a machine, with rank 0's. Throws Error (kUsage) on every
/// rank where they differ. All ranks call it.
void require_same_shape(c10d::Store& store, const Placement& placement, std::chrono::seconds timeout);

}  // namespace lorikeet::comm
