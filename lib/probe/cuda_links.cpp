#include "probe/cuda_links.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace lorikeet::probe {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr int kRounds = 8;

void check(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return;
  cudaGetLastError();  // else the next call would report it again
  throw Error(std::string("[topology] can't measure: ") + what + " failed: " + cudaGetErrorString(code),
              ErrorKind::kEnvironment);
}

class Buffer {
 public:
  Buffer(int device, std::size_t bytes) : device_(device) {
    check(cudaSetDevice(device), "cudaSetDevice");
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  ~Buffer() {
    cudaSetDevice(device_);
    cudaFree(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }

 private:
  int device_;
  void* data_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Peer access in both directions for the life of this object; cudaMemcpyPeer goes through main memory
// without.
class PeerAccess {
 public:
  PeerAccess(int a, int b) : a_(a), b_(b) {
    enable(a, b);
    enable(b, a);
  }
  ~PeerAccess() {
    disable(a_, b_);
    disable(b_, a_);
  }
  PeerAccess(const PeerAccess&) = delete;
  PeerAccess& operator=(const PeerAccess&) = delete;

 private:
  static void enable(int from, int to) {
    check(cudaSetDevice(from), "cudaSetDevice");
    const cudaError_t code = cudaDeviceEnablePeerAccess(to, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else {
      check(code, "cudaDeviceEnablePeerAccess");
    }
  }
  static void disable(int from, int to) {
    cudaSetDevice(from);
    cudaDeviceDisablePeerAccess(to);
    cudaGetLastError();  // it may be off already: two copies of a ring can share a pair
  }

  int a_, b_;
};

// One copy under way, with all that it needs on its cards.
class Transfer {
 public:
  Transfer(int from, int to, std::size_t bytes)
      : from_(from), to_(to), bytes_(bytes), source_(from, bytes), target_(to, bytes) {
    check(cudaSetDevice(from), "cudaSetDevice");
    stream_ = std::make_unique<Stream>();
    begin_ = std::make_unique<Event>();
    end_ = std::make_unique<Event>();
    copy(1);  // the first one sets things up
    check(cudaStreamSynchronize(stream_->get()), "a copy");
  }

  void start() {
    check(cudaSetDevice(from_), "cudaSetDevice");
    check(cudaEventRecord(begin_->get(), stream_->get()), "cudaEventRecord");
    copy(kRounds);
    check(cudaEventRecord(end_->get(), stream_->get()), "cudaEventRecord");
  }

  double gb_per_second() {
    check(cudaEventSynchronize(end_->get()), "a copy");
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, begin_->get(), end_->get()), "cudaEventElapsedTime");
    return static_cast<double>(bytes_) * kRounds / (static_cast<double>(milliseconds) * 1e6);
  }

 private:
  void copy(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      check(cudaMemcpyPeerAsync(target_.data(), to_, source_.data(), from_, bytes_, stream_->get()),
            "cudaMemcpyPeerAsync");
    }
  }

  int from_, to_;
  std::size_t bytes_;
  Buffer source_, target_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> begin_, end_;
};

class CudaLinkTimer : public LinkTimer {
 public:
  CudaLinkTimer(std::vector<int> numbers, AllReduceRate all_reduce_rate)
      : numbers_(std::move(numbers)), all_reduce_rate_(std::move(all_reduce_rate)) {}

  bool has_peer_access(const Copy& copy) override {
    int can = 0, back = 0;
    check(cudaDeviceCanAccessPeer(&can, number(copy.first), number(copy.second)), "cudaDeviceCanAccessPeer");
    check(cudaDeviceCanAccessPeer(&back, number(copy.second), number(copy.first)), "cudaDeviceCanAccessPeer");
    return can != 0 && back != 0;
  }

  std::vector<double> copy(const std::vector<Copy>& copies, bool peer_access) override {
    std::vector<std::unique_ptr<PeerAccess>> access;
    std::vector<std::unique_ptr<Transfer>> transfers;
    const std::size_t bytes = buffer_bytes(copies);
    for (const auto& [from, to] : copies) {
      if (peer_access) access.push_back(std::make_unique<PeerAccess>(number(from), number(to)));
      transfers.push_back(std::make_unique<Transfer>(number(from), number(to), bytes));
    }
    for (const auto& transfer : transfers) transfer->start();
    std::vector<double> rates;
    rates.reserve(transfers.size());
    for (const auto& transfer : transfers) rates.push_back(transfer->gb_per_second());
    return rates;
  }

  std::optional<double> all_reduce(const device::GpuSet& gpus, std::int64_t bytes) override {
    std::vector<int> devices;
    devices.reserve(gpus.size());
    for (const std::size_t gpu : gpus) devices.push_back(number(gpu));
    // The processes that reduce come in next to this one, which a card in exclusive mode doesn't let them.
    for (const int number : numbers_) {
      check(cudaSetDevice(number), "cudaSetDevice");
      check(cudaDeviceReset(), "cudaDeviceReset");
    }
    return all_reduce_rate_(devices, bytes);
  }

 private:
  int number(std::size_t gpu) const { return numbers_.at(gpu); }

  // A card holds up to two buffers; an eighth of what is free each leaves room for whatever else runs there.
  std::size_t buffer_bytes(const std::vector<Copy>& copies) const {
    std::size_t bytes = kMostBytes;
    for (const auto& copy : copies) {
      for (const std::size_t gpu : {copy.first, copy.second}) {
        std::size_t free = 0, total = 0;
        check(cudaSetDevice(number(gpu)), "cudaSetDevice");
        check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        bytes = std::min(bytes, free / 8);
      }
    }
    if (bytes == 0)
      throw Error("[topology] can't measure: a card has no free memory", ErrorKind::kEnvironment);
    return bytes;
  }

  std::vector<int> numbers_;
  AllReduceRate all_reduce_rate_;
};

}  // namespace

std::unique_ptr<LinkTimer> make_cuda_link_timer(const std::vector<int>& numbers,
                                                const AllReduceRate& all_reduce_rate) {
  return std::make_unique<CudaLinkTimer>(numbers, all_reduce_rate);
}

}  // namespace lorikeet::probe
