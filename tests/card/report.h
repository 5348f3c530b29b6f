#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>

namespace lorikeet::card {

/// Bytes of card memory.
struct Traffic {
  std::int64_t read = 0, written = 0;
};

/// What a process did with the fake card. When the process ends it is written as JSON to a file of the folder
/// that FAKE_CARD_REPORTS names.
struct Report {
  std::map<std::string, std::int64_t> operators;  ///< calls of ATen operators on the card, by name
  std::map<std::string, std::int64_t> kernels;    ///< launches of the project's own kernels, by source file
  std::map<std::string, std::int64_t> waits;      ///< how often the host waited for the card, by cause
  std::int64_t idle_waits = 0;  ///< those of them behind which the card had nothing left to do
  std::map<std::string, std::int64_t> hazards;  ///< what would be wrong or slow on a card
  std::int64_t uploads = 0;                     ///< copies from host to card
  std::int64_t pinned_uploads = 0;              ///< those of them that the host doesn't wait for
  std::int64_t downloads = 0;                   ///< copies from card to host
  std::int64_t pinned_downloads = 0;            ///< those of them that the host doesn't wait for
  std::int64_t allocations = 0;                 ///< of card memory
  std::set<int> contexts;                       ///< cards on which CUDA would have made a context
  std::int64_t launches = 0;                    ///< of kernels, ATen's and our own
  std::int64_t graph_launches = 0;              ///< of recorded work, each as one
  std::map<std::string, Traffic> traffic;       ///< of launches, by name, where it is counted (traffic.h)
};

/// The counters so far. Change them only while holding `mutex`.
Report& report();
void reset_report();
std::string to_json(const Report& report);

/// One lock guards all that the fake card knows: memory, streams, transfers, counters.
std::recursive_mutex& mutex();
using Lock = std::lock_guard<std::recursive_mutex>;

/// A call of an ATen operator on the card.
void count_operator(const std::string& name);
/// Whether the operator launches a kernel: some make tensors or views, and launch nothing.
bool launches_kernel(const std::string& name);
/// A wait for the card's work up to the launch of that number, counted from 1: for all of it so far, if it
/// isn't said.
void count_wait(const std::string& cause);
void count_wait(const std::string& cause, std::int64_t up_to_launch);
void count_hazard(const std::string& what);

}  // namespace lorikeet::card
