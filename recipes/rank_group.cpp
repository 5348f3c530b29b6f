#include "recipes/rank_group.h"

#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "base/log.h"
#include "base/strings.h"
#include "comm/interfaces.h"
#include "comm/peer_lost.h"
#include "comm/reason.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"
#include "parallel/gradient_reducer.h"

namespace lorikeet::recipes {
namespace {

constexpr std::chrono::seconds kMeeting{120};
// Another rank may tokenise for long: one that dies meanwhile is found by the launcher or the watch.
constexpr std::chrono::seconds kPatience{7 * 24 * 3600};
// Beyond the watchdog's time, whose message says more.
constexpr std::chrono::seconds kMargin{30};

}  // namespace

RankGroup::RankGroup(const comm::Placement& placement, const config::DistributedSettings& settings)
    : placement_(placement),
      watchdog_seconds_(settings.watchdog_seconds),
      board_(placement.local_rank, placement.local_size,
             static_cast<std::uint64_t>(settings.watchdog_seconds)) {
  if (alone()) return;
  if (!first()) silence_log();
  // c10d warns with a stack trace of every connection that another rank's end closes. The variable counts
  // only for who asks for it.
  constexpr int kKeepWhatIsSet = 0;
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", kKeepWhatIsSet);
  c10::initLogging();
  phase("rendezvous");
  try {
    choose_address(settings);
    if (placement_.nodes > 1)
      log_info("rank " + std::to_string(placement_.rank) + " of " + std::to_string(placement_.world_size) +
               " meets the others at " + escape_control(placement_.host) + ":" +
               std::to_string(placement_.port) + ", for which they have " + std::to_string(kMeeting.count()) +
               " s");
    store_ = comm::connect_store(placement_, kMeeting);
    // Before the watch, so that a process that doesn't belong to the run can't end it.
    comm::claim_rank(*store_, placement_);
    if (placement_.launcher != "lorikeet run") start_watch();
    comm::require_same_shape(*store_, placement_, kMeeting);
  } catch (const std::exception& error) {
    std::rethrow_exception(failed(error));
  }
}

void RankGroup::choose_address(const config::DistributedSettings& settings) {
  if (placement_.nodes == 1 && settings.interface) {
    log_info("distributed.interface is not used: the processes of one machine talk over loopback");
  }
  address_ = comm::address_for_peers(placement_, settings.interface);
  comm::use_for_nccl(address_);
  if (placement_.nodes == 1) return;
  if (comm::is_loopback(address_)) {
    log_warning(
        "this process listens on the loopback address " + address_ +
        ", which other machines can't reach; set distributed.interface, or a MASTER_ADDR that isn't one");
  }
}

void RankGroup::start_watch() {
  const std::string holder =
      placement_.store_is_held ? placement_.launcher + " on " + placement_.host : "rank 0";
  const bool several = placement_.nodes > 1;
  watch_ = std::make_unique<comm::PeerWatch>(
      store_, [this] { return board_.read(); },
      comm::WatchOptions{.rank = placement_.rank,
                         .world_size = placement_.world_size,
                         .store_holder = holder,
                         .host = several ? comm::host_name() : "",
                         .address = several ? address_ : "",
                         .end = [](int exit_code) { _exit(exit_code); }});
}

void RankGroup::abort_on_failure(const std::shared_ptr<comm::Communicator>& group) {
  if (!watch_) return;
  watch_->on_failure([weak = std::weak_ptr(group)] {
    if (const auto alive = weak.lock()) alive->abort();
  });
}

void RankGroup::say_at_end(const std::string& text) {
  said_at_end_ = text;
  if (watch_) watch_->say_at_end(text);
}

std::exception_ptr RankGroup::ended_by(const std::string& text, ErrorKind kind) const {
  const char* between = text.find('\n') == std::string::npos ? "; " : "\n";
  return std::make_exception_ptr(Error(said_at_end_.empty() ? text : text + between + said_at_end_, kind));
}

std::exception_ptr RankGroup::failed(const std::exception& error) {
  std::string said = comm::reason(error);
  int exit_code = static_cast<int>(ErrorKind::kRunFailed);
  if (const auto* own = dynamic_cast<const Error*>(&error)) {
    said = own->what();
    exit_code = own->exit_code();
  }
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) said = "out of memory";
  const bool consequence = dynamic_cast<const comm::PeerLost*>(&error) != nullptr;
  board_.failed(said, exit_code, consequence);
  if (exit_code == static_cast<int>(ErrorKind::kInterrupted)) {
    leave_interrupted();
    return std::current_exception();
  }
  if (watch_) {
    const std::string name = comm::rank_name(placement_.rank, placement_.nodes > 1 ? comm::host_name() : "");
    const comm::Failure own{
        .text = "[watch] " + name + " failed in phase '" + board_.read().phase + "': " + said,
        .exit_code = exit_code};
    if (consequence) {
      const comm::Failure cause = watch_->wait_for_cause(own);
      return ended_by(escape_control(cause.text), static_cast<ErrorKind>(cause.exit_code));
    }
    watch_->fail(own);
  }
  if (const auto* own = dynamic_cast<const Error*>(&error)) return ended_by(own->what(), own->kind());
  if (!said_at_end_.empty()) log_info(said_at_end_);  // main has words of its own for other exceptions
  return std::current_exception();
}

void RankGroup::leave_interrupted() {
  await_first_rank();
  if (!watch_) return;
  try {
    leave();
  } catch (const std::exception&) {  // another rank has gone before: all of them end
  }
}

// All ranks stop behind the same step, and the first one saves. Launchers such as srun, mpirun and torchrun
// end all processes when one ends with an error, as 130 is to them: so nobody leaves before the first one has
// saved.
void RankGroup::await_first_rank() {
  if (alone()) return;
  constexpr const char* kSaved = "saved when interrupted";
  try {
    if (placement_.rank == 0) return comm::announce(*store_, kSaved);
    comm::wait_for(*store_, kSaved, kPatience);
  } catch (const std::exception&) {  // the store has gone: all of them end
  }
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

std::string RankGroup::share_on_machine(const std::string& name, const std::string& text) {
  if (alone()) return text;
  return comm::share_text(*store_, placement_.local_rank, name + "/" + std::to_string(placement_.node), text,
                          kPatience);
}

std::vector<std::string> RankGroup::collect(const std::string& name, const std::string& text) {
  if (alone()) return {text};
  return comm::texts_of_all(*store_, placement_.rank, placement_.world_size, name, text, kPatience);
}

std::vector<std::string> RankGroup::collect_on_machine(const std::string& name, const std::string& text) {
  const std::vector<std::string> of_all = collect(name, text);
  const auto begin = of_all.begin() + std::ptrdiff_t{placement_.node} * placement_.local_size;
  return {begin, begin + placement_.local_size};
}

void RankGroup::require_agreement(const comm::Facts& facts) {
  if (!alone()) comm::require_agreement(*store_, placement_.rank, facts, kPatience);
}

std::int64_t RankGroup::least(const std::string& name, std::int64_t value) {
  return alone() ? value
                 : comm::least_of(*store_, placement_.rank, placement_.world_size, name, value, kPatience);
}

void RankGroup::connect(const at::Device& device, int degree) {
  if (alone()) return;
  const int rank = placement_.rank, size = placement_.world_size;
  comm::CommunicatorOptions options{
      .address = address_, .timeout = std::chrono::seconds(watchdog_seconds_) + kMargin, .observer = &board_};
  communicator_ = comm::Communicator::join(comm::part_of(store_, "all"), rank, size, device, options);
  abort_on_failure(communicator_);
  all_share_ = degree == size;
  if (degree > 1 && !all_share_) {
    options.ledger = communicator_->ledger();
    const std::string name = "sharers/" + std::to_string(rank / degree);
    sharers_ = comm::Communicator::join(comm::part_of(store_, name), rank % degree, degree, device, options);
    abort_on_failure(sharers_);
  }
  // The first collective has less time than others: here all have come together and compute nothing
  // meanwhile.
  const at::Tensor here = at::zeros({1}, at::TensorOptions().device(device));
  communicator_->all_reduce(here).wait();
  communicator_->while_waiting([&] { here.cpu(); });
  if (device.is_cuda()) rehearse(device);
}

// NCCL takes its buffers for a collective, and for messages of a step's size, when the first one comes: now,
// while there is memory, not in the first step, whose size was chosen for what is left.
void RankGroup::rehearse(const at::Device& device) {
  const auto floats = at::TensorOptions().device(device);
  const at::Tensor bucket = at::zeros({parallel::GradientReducer::kBucketBytes / 4}, floats);
  communicator_->all_reduce(bucket).wait();
  communicator_->broadcast(bucket, 0).wait();
  if (comm::Communicator* group = sharers()) {
    group->all_gather(at::empty({bucket.size(0) * group->size()}, floats), bucket).wait();
  }
  communicator_->while_waiting([&] { bucket.narrow(0, 0, 1).cpu(); });
}

void RankGroup::broadcast(const at::Tensor& tensor) {
  if (communicator_) communicator_->broadcast(tensor, 0).wait();
}

void RankGroup::leave() {
  if (alone()) return;
  const auto name = [](int rank) { return "left/" + std::to_string(rank); };
  if (first()) {
    for (int rank = 1; rank < placement_.world_size; ++rank) comm::wait_for(*store_, name(rank), kMeeting);
  }
  if (watch_) watch_->done();
  if (!first()) comm::announce(*store_, name(placement_.rank));
}

}  // namespace lorikeet::recipes
