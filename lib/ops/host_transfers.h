#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>

namespace lorikeet::ops {

/// Copies between a device and the host's memory beside the device's work: a GPU makes them on a stream of
/// their own, in the order in which they were begun; the host waits for none. On a CPU a copy is done when it
/// is begun. In a dry run nothing is copied, and what would lie in the host's memory is counted as such.
///
/// On a GPU the memory of the host is pinned, in blocks of whole powers of two, and is used again.
class HostTransfers {
 public:
  /// `device`: the GPU or CPU; of a dry run meta.
  explicit HostTransfers(const at::Device& device);

  /// A copy, perhaps under way. What it is made from and what it is made to have to live until the device's
  /// work waits for it.
  struct Copy {
    at::Tensor to;
    std::shared_ptr<c10::Event> done;  ///< null where it is done
  };

  /// Begins to copy `tensor`, which work that was put on the device's current stream fills. `room_bytes`:
  /// what is taken for it of a GPU's pinned memory, where that is more than it has.
  Copy to_host(const at::Tensor& tensor, std::int64_t room_bytes = 0);
  /// Begins to copy `host`, whose copy to the host was begun here, or which is complete.
  Copy to_device(const at::Tensor& host);
  /// The same into `target`, a tensor on the device that nothing uses yet.
  std::shared_ptr<c10::Event> to_device(const at::Tensor& host, const at::Tensor& target);

  /// The number in a copy of one element to the host, for which the host waits.
  double read(const Copy& copy) const;

  /// Work that is put on the device's current stream from now on comes after the copy. Takes the event.
  void wait(std::shared_ptr<c10::Event>& done) const;

 private:
  std::shared_ptr<c10::Event> copy(const at::Tensor& to, const at::Tensor& from);

  at::Device device_;
  std::optional<c10::Stream> stream_;  // of a GPU
};

/// Memory of the host that copies of `device`'s tensors may be made to and from beside its work: pinned for a
/// GPU. uint8 [bytes], uninitialised. Throws Error (kEnvironment) where the system pins no more.
at::Tensor host_memory(std::int64_t bytes, const at::Device& device);

/// Gives memory of host_memory that no tensor has any more back to the system.
void release_host_memory(const at::Device& device);

/// Bytes that it takes for a tensor of so many.
std::int64_t host_memory_bytes(std::int64_t bytes, at::DeviceType device);

}  // namespace lorikeet::ops
