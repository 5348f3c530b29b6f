#include "timing.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

namespace lorikeet::bench {
namespace {

constexpr std::int64_t kLeastRotationBytes = std::int64_t{256} << 20;
constexpr std::int64_t kCachesInRotation = 4, kLeastSets = 2, kLeastLaunches = 16;
// A card that was idle needs some milliseconds until its clocks are up.
constexpr int kWarmUps = 5;

/// A CUDA graph, ready to run.
class Graph {
 public:
  /// What `record` launches on `stream`.
  template <typename F>
  Graph(cudaStream_t stream, const F& record) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    record();
    check(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&run_, graph_, 0), "cudaGraphInstantiate");
  }
  ~Graph() {
    (void)cudaGraphExecDestroy(run_);
    (void)cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void launch() const { check(cudaGraphLaunch(run_, stream_), "cudaGraphLaunch"); }

 private:
  cudaStream_t stream_;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t run_ = nullptr;
};

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream) const { check(cudaEventRecord(event_, stream.get()), "cudaEventRecord"); }
  double microseconds_since(const Event& earlier) const {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "cudaEventElapsedTime");
    return 1000.0 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

std::int64_t rotation_bytes() {
  int device = 0, cache = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
  return std::max(kLeastRotationBytes, kCachesInRotation * cache);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

double microseconds(const Case& one, int repeats) {
  // Launches hold pointers into the memory, which therefore goes after them.
  std::vector<std::unique_ptr<DeviceMemory>> memory;
  std::vector<Launch> sets;
  const auto add_set = [&] {
    memory.push_back(std::make_unique<DeviceMemory>());
    sets.push_back(one.make(*memory.back()));
  };
  add_set();
  const std::int64_t of_set = memory.front()->allocated();
  const std::int64_t count = std::max(kLeastSets, (rotation_bytes() + of_set - 1) / of_set);
  while (static_cast<std::int64_t>(sets.size()) < count) add_set();
  check(cudaDeviceSynchronize(), "filling buffers");

  const Stream stream;
  // Each set once without a graph, as a kernel's first launch loads its code.
  for (const Launch& launch : sets) launch(stream.get());
  stream.wait();
  const std::int64_t rounds = (kLeastLaunches + count - 1) / count;
  const auto launch_all = [&] {
    for (std::int64_t round = 0; round < rounds; ++round)
      for (const Launch& launch : sets) launch(stream.get());
  };
  std::optional<Graph> graph;
  if (one.in_graph) graph.emplace(stream.get(), launch_all);
  const auto pass = [&] { graph ? graph->launch() : launch_all(); };
  // All at once: were the stream idle before a repeat, its first launch's way to the card would count.
  for (int i = 0; i < kWarmUps; ++i) pass();
  std::vector<Event> events(static_cast<std::size_t>(repeats) + 1);
  events.front().record(stream);
  for (std::size_t i = 1; i < events.size(); ++i) {
    pass();
    events[i].record(stream);
  }
  stream.wait();

  std::vector<double> found;
  for (std::size_t i = 1; i < events.size(); ++i)
    found.push_back(events[i].microseconds_since(events[i - 1]) / static_cast<double>(rounds * count));
  return median(found);
}

}  // namespace lorikeet::bench
