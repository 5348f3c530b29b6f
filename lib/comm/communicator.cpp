#include "comm/communicator.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>

#include <new>
#include <utility>

#include "base/error.h"
#include "comm/backends.h"
#include "comm/peer_lost.h"
#include "comm/reason.h"
#include "trace/range.h"

namespace lorikeet::comm {

namespace {

struct Names {
  const char *call, *wait;
};

Names names_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return {"all-reduce", "wait for all-reduce"};
    case Collective::kAllGather: return {"all-gather", "wait for all-gather"};
    case Collective::kBroadcast: return {"broadcast", "wait for broadcast"};
  }
  return {"", ""};
}

// Reports a wait of the host to the observer, also where it ends by an exception.
class HostWait {
 public:
  HostWait(Observer* observer, std::uint64_t sequence) : observer_(observer) {
    if (observer_ != nullptr) observer_->waits(sequence);
  }
  ~HostWait() {
    if (observer_ != nullptr) observer_->end();
  }
  HostWait(const HostWait&) = delete;
  HostWait& operator=(const HostWait&) = delete;

 private:
  Observer* observer_;
};

}  // namespace

const char* name_of(Collective collective) { return names_of(collective).call; }

double sent_bytes(Collective collective, std::int64_t payload_bytes, int world_size) {
  const double share = static_cast<double>(world_size - 1) / world_size * static_cast<double>(payload_bytes);
  return collective == Collective::kAllReduce ? 2 * share : share;
}

std::unique_ptr<Communicator> Communicator::join(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                 int size, const at::Device& device,
                                                 const CommunicatorOptions& options) {
  // Before the first collective, whose time is shorter: connections to another machine may be tried for long.
  const HostWait host(options.observer, /*sequence=*/0);
  return device.is_cuda() ? join_nccl(store, rank, size, device, options)
                          : join_gloo(store, rank, size, options);
}

void Pending::wait() {
  if (!wait_) return;
  const auto wait = std::exchange(wait_, {});
  wait();
}

Pending Communicator::track(Collective collective, const at::Tensor& result,
                            const std::function<Wait()>& start) {
  const auto payload_bytes = static_cast<std::int64_t>(result.nbytes());
  Traffic& traffic = ledger_->traffic[collective];
  ++traffic.calls;
  traffic.payload_bytes += payload_bytes;
  traffic.sent_bytes += sent_bytes(collective, payload_bytes, size_);
  const std::uint64_t sequence = ++ledger_->sequence;
  if (observer_ != nullptr) observer_->begin(collective, sequence);

  const auto guarded = [this, collective, sequence](const auto& action) {
    require_not_aborted(name_of(collective));
    try {
      return action();
    } catch (const Error&) {
      throw;
    } catch (const std::bad_alloc&) {  // this rank's own trouble
      throw;
    } catch (const c10::OutOfMemoryError&) {
      throw;
    } catch (const c10::AcceleratorError&) {  // this rank's own device
      throw;
    } catch (const std::exception& error) {
      if (is_nccl_out_of_memory(error)) throw;
      throw PeerLost("[rank " + std::to_string(rank_) + "] " + name_of(collective) + " " +
                     std::to_string(sequence) + " failed: another rank is lost or hangs (" + reason(error) +
                     ")");
    }
  };
  const auto number = static_cast<std::int64_t>(sequence);
  const Wait wait = [&] {
    const trace::Range range(name_of(collective), {{"number", number}, {"bytes", payload_bytes}});
    if (ledger_->groups == 1 || result.device().is_cpu()) return guarded(start);
    return guarded([&] { return ledger_->stream_order.start(result.device(), start); });
  }();
  return Pending(
      [this, collective, payload_bytes, number, sequence, wait, guarded, device = result.device()] {
        const trace::Range range(names_of(collective).wait, {{"number", number}, {"bytes", payload_bytes}});
        const auto begin = std::chrono::steady_clock::now();
        const HostWait host(observer_, sequence);
        if (device.is_cuda()) {
          ledger_->stream_waits.begin(device);
          guarded(wait);
          ledger_->stream_waits.end();
        } else {
          guarded(wait);
          ledger_->waited_seconds +=
              std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        }
        require_not_aborted(name_of(collective));
      });
}

void Communicator::while_waiting(const std::function<void()>& read) {
  const HostWait host(observer_, ledger_->sequence);
  read();
  require_not_aborted("a result on the device");
  ledger_->waited_seconds += ledger_->stream_waits.take_seconds();
}

void while_waiting(Communicator* group, const std::function<void()>& read) {
  if (group != nullptr) {
    group->while_waiting(read);
  } else {
    read();
  }
}

void Communicator::abort() {
  aborted_ = true;
  abort_backend();
}

void Communicator::require_not_aborted(const char* what) const {
  if (!aborted_) return;
  throw PeerLost("[rank " + std::to_string(rank_) + "] " + what + " was aborted: another rank has failed");
}

Pending Communicator::all_reduce(at::Tensor tensor) {
  return track(Collective::kAllReduce, tensor, [&] { return start_all_reduce(tensor); });
}

Pending Communicator::all_gather(at::Tensor out, at::Tensor in) {
  return track(Collective::kAllGather, out, [&] {
    at::Tensor flat_out = out.view({-1}), flat_in = in.view({-1});
    return start_all_gather(flat_out, flat_in);
  });
}

Pending Communicator::broadcast(at::Tensor tensor, int root) {
  return track(Collective::kBroadcast, tensor, [&] { return start_broadcast(tensor, root); });
}

}  // namespace lorikeet::comm
