#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "comm/stream_waits.h"

namespace c10d {
class Store;
}  // namespace c10d

namespace lorikeet::comm {

enum class Collective { kAllReduce, kAllGather, kBroadcast };

/// "all-reduce", ...
const char* name_of(Collective collective);

/// What this rank has put through one kind of collective.
struct Traffic {
  std::int64_t calls = 0;
  std::int64_t payload_bytes = 0;  ///< of the tensors, as the collective's result has them
  /// What this rank puts on the wire by the ring algorithms of Gloo and NCCL: 2 (N-1)/N of the payload for an
  /// all-reduce, (N-1)/N for an all-gather; for a broadcast, its share of N-1 copies.
  double sent_bytes = 0;
};

/// What a process has put through the collectives of all groups that share this.
struct Ledger {
  std::map<Collective, Traffic> traffic;
  /// In which it did nothing but wait for them; what a CUDA stream stood still for them is added when
  /// while_waiting() has brought the host to that place.
  double waited_seconds = 0;
  StreamWaits stream_waits;
  std::uint64_t sequence = 0;  ///< number of the latest
};

/// Bytes that one rank of `world_size` sends for a collective of `payload_bytes`.
double sent_bytes(Collective collective, std::int64_t payload_bytes, int world_size);

/// A collective under way. The tensors must live until it has been waited for.
class Pending {
 public:
  explicit Pending(std::function<void()> wait = {}) : wait_(std::move(wait)) {}
  /// CPU tensors: returns when the result is there. CUDA tensors: the current stream waits for it. Throws
  /// PeerLost. Once only; a default object is done.
  void wait();

 private:
  std::function<void()> wait_;
};

/// Where a rank stands, told at every change: for whoever watches from outside a group that hangs.
class Observer {
 public:
  virtual ~Observer() = default;
  /// Collective number `sequence` (from 1) begins.
  virtual void begin(Collective collective, std::uint64_t sequence) = 0;
  /// The rank has nothing else to do until it has ended.
  virtual void waits(std::uint64_t sequence) = 0;
  /// It has been waited for.
  virtual void end() = 0;
};

struct CommunicatorOptions {
  /// Gloo's: the address that this process listens on for the others.
  std::string address = "127.0.0.1";
  /// After which a collective that isn't done throws.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  Observer* observer = nullptr;
  /// Where to enter what is sent; nullptr: a ledger of its own.
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
  /// `out` (contiguous, size() times as many elements as `in`) becomes all ranks' `in`, one behind the other.
  Pending all_gather(at::Tensor out, at::Tensor in);
  /// `tensor` becomes that of rank `root`.
  Pending broadcast(at::Tensor tensor, int root);

  /// Runs `read`, which brings something to the host that collectives are a part of. On a GPU it is here that
  /// the host waits for them: the observer is told so.
  void while_waiting(const std::function<void()>& read);

  const std::shared_ptr<Ledger>& ledger() const { return ledger_; }

 protected:
  Communicator(int rank, int size, const CommunicatorOptions& options)
      : rank_(rank),
        size_(size),
        observer_(options.observer),
        ledger_(options.ledger ? options.ledger : std::make_shared<Ledger>()) {}

  using Wait = std::function<void()>;
  virtual Wait start_all_reduce(at::Tensor& tensor) = 0;
  virtual Wait start_all_gather(at::Tensor& out, at::Tensor& in) = 0;
  virtual Wait start_broadcast(at::Tensor& tensor, int root) = 0;

 private:
  Pending track(Collective collective, const at::Tensor& result, const std::function<Wait()>& start);

  int rank_;
  int size_;
  Observer* observer_;
  std::shared_ptr<Ledger> ledger_;
};

}  // namespace lorikeet::comm
