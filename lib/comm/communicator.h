#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/stream_order.h"
#include "comm/stream_waits.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace lorikeet::comm {

enum class Collective { kAllReduce, kAllGather, kBroadcast };

/// "all-reduce", ...
const char* name_of(Collective collective);

/// The traffic of one rank through one kind of collective.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;  ///< bytes of the results
  /// Bytes that this rank sends by the ring algorithms of Gloo and NCCL: 2 (N-1)/N of the payload for an
  /// all-reduce, (N-1)/N for an all-gather; for a broadcast, its share of N-1 copies.
  double sent_bytes = 0;
};

/// Shared by all groups of a process: the count of their collectives, and the order in which a device runs
/// them.
struct Ledger {
  std::map<Collective, Traffic> traffic;
  /// Seconds in which the process did nothing but wait for collectives. The seconds for which a CUDA stream
  /// stood still are added by while_waiting(), once the device has passed the wait.
  double waited_seconds = 0;
  StreamWaits stream_waits;
  StreamOrder stream_order;
  int groups = 0;              ///< that share this
  std::uint64_t sequence = 0;  ///< number of the latest collective
};

/// Bytes that one rank of `world_size` sends for a collective of `payload_bytes`.
double sent_bytes(Collective collective, std::int64_t payload_bytes, int world_size);

/// A collective that has been issued. Its tensors must live until it has been waited for.
class Pending {
 public:
  explicit Pending(std::function<void()> wait = {}) : wait_(std::move(wait)) {}
  /// CPU tensors: returns when the result is there. CUDA tensors: makes the current stream wait for it.
  /// Throws PeerLost when another rank is lost. A second call, and one of a default object, does nothing.
  void wait();

 private:
  std::function<void()> wait_;
};

/// Called at every change of what a rank does with collectives, so that a hang can be diagnosed from outside.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Collective number `sequence` (from 1, over all groups that share a ledger) is issued.
  virtual void begin(Collective collective, std::uint64_t sequence) = 0;
  /// The host begins to wait for it.
  virtual void waits(std::uint64_t sequence) = 0;
  /// The host's wait has ended.
  virtual void end() = 0;
};

struct CommunicatorOptions {
  /// The address that Gloo listens on for the other ranks.
  std::string address = "127.0.0.1";
  /// A collective that takes longer throws PeerLost.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  Observer* observer = nullptr;
  /// Groups of one process share one; nullptr: a new one.
  std::shared_ptr<Ledger> ledger;
};

/// A group of processes, one a device, that compute together: Gloo for CPU tensors, NCCL for CUDA tensors.
/// All ranks call the same collectives in the same order. Results are the same bits on every rank.
class Communicator {
 public:
  /// Joins the group of `size` ranks that meet at `store`. Blocks until all are there. Throws Error
  /// (kEnvironment) when that fails, or when the build has no NCCL and the device is a GPU.
  static std::unique_ptr<Communicator> join(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                            const at::Device& device, const CommunicatorOptions& options);
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Sums `tensor` over the ranks, in place. Contiguous; fp32, fp64, fp16, bf16 or int64.
  Pending all_reduce(at::Tensor tensor);
  /// Concatenates all ranks' `in` into `out` (contiguous, size() times as many elements).
  Pending all_gather(at::Tensor out, at::Tensor in);
  /// Copies `tensor` of rank `root` into that of all other ranks.
  Pending broadcast(at::Tensor tensor, int root);

  /// Runs `read`, which copies a result of collectives to the host, and reports the wait to the observer: on
  /// a GPU it is here that the host waits for collectives. Throws PeerLost when the group was aborted.
  void while_waiting(const std::function<void()>& read);

  /// Makes the collectives of this group throw PeerLost, those that are waited for too, as far as the backend
  /// can abort them: NCCL can, Gloo can't. May be called from any thread; results are garbage afterwards.
  void abort();

  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }

 protected:
  Communicator(int rank, int size, const CommunicatorOptions& options)
      : rank_(rank),
        size_(size),
        observer_(options.observer),
        ledger_(options.ledger ? options.ledger : std::make_shared<Ledger>()) {
    ++ledger_->groups;
  }

  using Wait = std::function<void()>;
  virtual Wait start_all_reduce(at::Tensor& tensor) = 0;
  virtual Wait start_all_gather(at::Tensor& out, at::Tensor& in) = 0;
  virtual Wait start_broadcast(at::Tensor& tensor, int root) = 0;
  virtual void abort_backend() {}

 private:
  Pending track(Collective collective, const at::Tensor& result, const std::function<Wait()>& start);

  void require_not_aborted(const char* what) const;

  int rank_;
  int size_;
  std::atomic<bool> aborted_{false};
  Observer* observer_;
  std::shared_ptr<Ledger> ledger_;
};

/// Runs `read`, which waits for the device: by the group's while_waiting, where there is one.
void while_waiting(Communicator* group, const std::function<void()>& read);

}  // namespace lorikeet::comm
