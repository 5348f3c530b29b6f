#include "recipes/rank_group.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/log.h"
#include "comm/interfaces.h"
#include "comm/socket.h"

namespace lorikeet::recipes {
namespace {

constexpr std::chrono::seconds kMeeting{120};
// Another rank may tokenise for long: who dies meanwhile is found by the launcher.
constexpr std::chrono::seconds kPatience{7 * 24 * 3600};
// Beyond the watchdog's time, which tells more.
constexpr std::chrono::seconds kMargin{30};

comm::BoardWriter make_board(const comm::Placement& placement, std::int64_t watchdog_seconds) {
  if (placement.alone()) return {};
  return {placement.local_rank, placement.local_size, static_cast<std::uint64_t>(watchdog_seconds)};
}

}  // namespace

RankGroup::RankGroup(const comm::Placement& placement, const config::DistributedSettings& settings)
    : placement_(placement),
      watchdog_seconds_(settings.watchdog_seconds),
      board_(make_board(placement, settings.watchdog_seconds)) {
  if (alone()) return;
  if (!first()) silence_log();
  phase("rendezvous");
  try {
    choose_address(settings);
    store_ = comm::connect_store(placement_, kMeeting);
  } catch (const std::exception& error) {
    failed(error);
    throw;
  }
}

void RankGroup::choose_address(const config::DistributedSettings& settings) {
  if (placement_.nodes == 1 && settings.interface) {
    log_info("distributed.interface is not used: the processes of one machine talk over loopback");
  }
  address_ = comm::address_for_peers(placement_, settings.interface);
  if (placement_.nodes == 1) return;
  comm::use_for_nccl(address_);
  if (comm::is_loopback(address_)) {
    log_warning(
        "this process listens on the loopback address " + address_ +
        ", which other machines can't reach; set distributed.interface, or a rendezvous that isn't one");
  }
}

void RankGroup::failed(const std::exception& error) {
  board_.failed(error.what(), dynamic_cast<const comm::PeerLost*>(&error) != nullptr);
}

void RankGroup::by_turns(const std::string& name, const std::function<void()>& action) {
  const std::string key = name + "/" + std::to_string(placement_.node);
  if (!alone() && placement_.local_rank != 0) comm::wait_for(*store_, key, kPatience);
  action();
  if (!alone() && placement_.local_rank == 0) comm::announce(*store_, key);
}

std::string RankGroup::share(const std::string& name, const std::string& text) {
  return alone() ? text : comm::share_text(*store_, placement_.rank, name, text, kPatience);
}

void RankGroup::require_agreement(const comm::Facts& facts) {
  if (!alone()) comm::require_agreement(*store_, placement_.rank, facts, kPatience);
}

void RankGroup::connect(const at::Device& device) {
  if (alone()) return;
  communicator_ = comm::Communicator::join(store_, placement_.rank, placement_.world_size, device,
                                           {.address = address_,
                                            .timeout = std::chrono::seconds(watchdog_seconds_) + kMargin,
                                            .observer = &board_});
}

void RankGroup::broadcast(const at::Tensor& tensor) {
  if (communicator_) communicator_->broadcast(tensor, 0).wait();
}

}  // namespace lorikeet::recipes
