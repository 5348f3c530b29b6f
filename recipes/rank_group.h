#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/board.h"
#include "comm/communicator.h"
#include "comm/peer_watch.h"
#include "comm/placement.h"
#include "comm/store.h"
#include "config/settings.h"

namespace lorikeet::recipes {

/// The processes that share a run, seen from one of them. On its own it is the whole group: then there is
/// neither a store nor a communicator, and every call is free.
class RankGroup {
 public:
  /// Meets the others at the placement's store. Ranks but the first fall silent. Throws Error when they can't
  /// meet.
  RankGroup(const comm::Placement& placement, const config::DistributedSettings& settings);

  const comm::Placement& placement() const { return placement_; }
  bool alone() const { return placement_.alone(); }
  bool first() const { return placement_.rank == 0; }

  /// Reports what this rank does now, to its launcher and the other ranks.
  void phase(const std::string& name) { board_.phase(name); }
  /// What this rank's message says behind the failure that ends it, from now on: how the run goes on.
  void say_at_end(const std::string& text);

  /// Reports why this rank ends; called where `error` is caught. Where the other ranks watch this one (see
  /// comm::PeerWatch) they end too. Returns what the process ends with: `error`, or, when it is that another
  /// rank was lost, the failure that caused it, with its exit code.
  std::exception_ptr failed(const std::exception& error);

  /// Runs `action` on the first rank of every machine, then on the others, which find its result on disk.
  void by_turns(const std::string& name, const std::function<void()>& action);

  /// `text` of rank 0, on all ranks. A name is used once.
  std::string share(const std::string& name, const std::string& text);

  /// `text` of the first rank of this machine, on all its ranks. A name is used once.
  std::string share_on_machine(const std::string& name, const std::string& text);

  /// Every rank's text, by rank, on all ranks. A name is used once.
  std::vector<std::string> collect(const std::string& name, const std::string& text);

  /// The texts of this machine's ranks, by local rank. All ranks of the run call it. A name is used once.
  std::vector<std::string> collect_on_machine(const std::string& name, const std::string& text);

  /// Throws Error on the ranks whose facts differ from rank 0's.
  void require_agreement(const comm::Facts& facts);

  /// The least of all ranks' values. A name is used once.
  std::int64_t least(const std::string& name, std::int64_t value);

  /// Joins the group that computes, and the one of the `degree` neighbours that share a copy of the weights.
  /// Collectives exist from here on.
  void connect(const at::Device& device, int degree = 1);
  /// nullptr when alone.
  comm::Communicator* communicator() { return communicator_.get(); }
  /// The ranks that share a copy of the weights; nullptr where each has its own.
  comm::Communicator* sharers() {
    return sharers_ ? sharers_.get() : all_share_ ? communicator_.get() : nullptr;
  }

  /// Gives `tensor` of rank 0 to all.
  void broadcast(const at::Tensor& tensor);

  /// The run is over: the first rank, which may hold the store, stays until all others have come here too.
  void leave();

 private:
  // Chooses the address that this process listens on for the other ranks.
  void choose_address(const config::DistributedSettings& settings);
  void start_watch();
  std::exception_ptr ended_by(const std::string& text, ErrorKind kind) const;
  void leave_interrupted();
  // Has the watch abort `group`'s collectives when the run fails.
  void abort_on_failure(const std::shared_ptr<comm::Communicator>& group);
  void rehearse(const at::Device& device);
  void await_first_rank();

  comm::Placement placement_;
  std::int64_t watchdog_seconds_;
  comm::BoardWriter board_;
  std::string address_;
  std::string said_at_end_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<comm::PeerWatch> watch_;  // where the launcher doesn't watch the ranks itself
  std::shared_ptr<comm::Communicator> communicator_, sharers_;
  bool all_share_ = false;
};

}  // namespace lorikeet::recipes
