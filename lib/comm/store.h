#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "comm/placement.h"

namespace lorikeet::comm {

/// Connects to the key-value store of a run. Rank 0 holds it, at the placement's host and port and on no
/// other address, unless its launcher does: then what is written there is of this start of the processes
/// alone, as a launcher that starts them again keeps its store. Throws Error (kEnvironment), saying why, when
/// it can't be reached within `timeout`, or its port is taken.
c10::intrusive_ptr<c10d::Store> connect_store(const Placement& placement, std::chrono::seconds timeout);

/// Announces to the other ranks that `name` has happened.
void announce(c10d::Store& store, const std::string& name);
/// Returns once `name` was announced. Throws Error (kRunFailed) when the time is up or the store is gone.
void wait_for(c10d::Store& store, const std::string& name, std::chrono::seconds timeout);

/// Sets `name` to `text` unless it has a text already. Returns the text that it has then.
std::string set_once(c10d::Store& store, const std::string& name, const std::string& text);

/// Named facts that have to be equal on all ranks: versions, fingerprints.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Compares `facts` with rank 0's. Throws Error (kUsage) on every rank that differs, naming the first field
/// that does with both values. All ranks call it.
void require_agreement(c10d::Store& store, int rank, const Facts& facts, std::chrono::seconds timeout);

/// Returns `text` of rank 0 on all ranks. A name is used once.
std::string share_text(c10d::Store& store, int rank, const std::string& name, const std::string& text,
                       std::chrono::seconds timeout);

/// Returns the texts of all ranks, by rank, on every rank. A name is used once.
std::vector<std::string> texts_of_all(c10d::Store& store, int rank, int world_size, const std::string& name,
                                      const std::string& text, std::chrono::seconds timeout);

/// Returns the least of all ranks' values on every rank. A name is used once.
std::int64_t least_of(c10d::Store& store, int rank, int world_size, const std::string& name,
                      std::int64_t value, std::chrono::seconds timeout);

/// A view of `store` in which all keys have the prefix `name`, so that groups don't read each other's keys.
c10::intrusive_ptr<c10d::Store> part_of(const c10::intrusive_ptr<c10d::Store>& store,
                                        const std::string& name);

}  // namespace lorikeet::comm
