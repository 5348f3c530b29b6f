#include "probe/active.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/socket.h"

namespace lorikeet::probe {
namespace {

class Prober {
 public:
  explicit Prober(const ActivePlan& plan) : plan_(plan) {}

  Findings run() {
    if (plan_.gpus.empty()) {
      one(request(ProbeKind::kMatmul, -1), "the CPU", [&](const ProbeAnswer& answer) {
        return dtype_size(plan_.policy.compute) == 2
                   ? judge_half_products(answer, plan_.policy, plan_.deterministic)
                   : judge_matmul(answer, plan_.policy, nullptr, "the CPU");
      });
      skip(ProbeKind::kTransfer, "no GPU is used");
      skip(ProbeKind::kPeerCopy, "no GPU is used");
    }
    for (const ProbedGpu& gpu : plan_.gpus) probe_gpu(gpu);
    if (plan_.gpus.size() == 1) skip(ProbeKind::kPeerCopy, "there is one GPU");
    all_reduce();
    one(request(ProbeKind::kWrite, -1), "",
        [&](const ProbeAnswer& answer) { return judge_write(answer, plan_.folder); });
    return std::move(findings_);
  }

 private:
  double limit(ProbeKind kind) const { return plan_.limit_seconds.value_or(limit_seconds(kind)); }

  ProbeRequest request(ProbeKind kind, int device) const {
    return {.kind = kind,
            .device = device,
            .compute = plan_.policy.compute,
            .matmul = plan_.policy.matmul,
            .limit_seconds = limit(kind),
            .folder = plan_.folder.string()};
  }

  void skip(ProbeKind kind, const std::string& why) {
    findings_.emplace_back(name_of(kind), Severity::kOk, "skipped: " + why);
  }

  void probe_gpu(const ProbedGpu& gpu) {
    const std::string device = "cuda:" + std::to_string(gpu.number) + " (" + gpu.name + ")";
    one(request(ProbeKind::kMatmul, gpu.number), device,
        [&](const ProbeAnswer& answer) { return judge_matmul(answer, plan_.policy, &gpu, device); });
    one(request(ProbeKind::kTransfer, gpu.number), device,
        [&](const ProbeAnswer& answer) { return judge_transfer(answer, gpu, device); });
    if (plan_.gpus.size() < 2) return;
    ProbeRequest copy = request(ProbeKind::kPeerCopy, gpu.number);
    for (const ProbedGpu& other : plan_.gpus) {
      if (other.number != gpu.number) copy.peers.push_back(other.number);
    }
    one(copy, device, [&](const ProbeAnswer& answer) { return judge_peer_copy(answer, device); });
  }

  // One child: its answer, judged, or what became of it.
  template <typename Judge>
  void one(const ProbeRequest& request, const std::string& device, const Judge& judge) {
    const std::string name = name_of(request.kind);
    log_info("probing: " + name + (device.empty() ? "" : ", " + device));
    const double seconds = limit(request.kind);
    const ChildResult result = run_children({plan_.program.child(request)}, seconds).at(0);
    if (!result.succeeded()) {
      findings_.emplace_back(
          name, Severity::kUnfit,
          (device.empty() ? "the probe " : device + ": the probe ") + result.trouble(seconds));
      return;
    }
    try {
      add(judge(ProbeAnswer::parse(result.output)));
    } catch (const Error& error) {
      findings_.emplace_back(name, Severity::kUnfit,
                             std::string("the probe gave no answer: ") + error.what());
    }
  }

  void add(const Findings& judged) { findings_.insert(findings_.end(), judged.begin(), judged.end()); }

  void all_reduce() {
    constexpr ProbeKind kKind = ProbeKind::kAllReduce;
    const bool cuda = !plan_.gpus.empty();
    constexpr int kCpuRanks = 2;
    const int ranks = cuda ? static_cast<int>(plan_.gpus.size()) : kCpuRanks;
    if (ranks < 2) return skip(kKind, "there is one GPU");
    log_info("probing: all-reduce over " + std::to_string(ranks) + " ranks");
    std::vector<int> devices;
    devices.reserve(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
      devices.push_back(cuda ? plan_.gpus[static_cast<std::size_t>(rank)].number : -1);
    const std::vector<ChildResult> results = run_all_reduce(plan_.program, request(kKind, -1), devices);
    add(judge_all_reduce(results, cuda, plan_.ranks > 1, limit(kKind)));
  }

  const ActivePlan& plan_;
  Findings findings_;
};

}  // namespace

double limit_seconds(ProbeKind kind) { return kind == ProbeKind::kAllReduce ? 20 : 60; }

ChildCommand ProbeProgram::child(const ProbeRequest& request) const {
  ChildCommand command{program, arguments, request.listen_fd};
  command.arguments.push_back(request.text());
  return command;
}

std::vector<ChildResult> run_all_reduce(const ProbeProgram& program, ProbeRequest request,
                                        const std::vector<int>& devices) {
  const comm::Listener listener = comm::listen_on("127.0.0.1", 0);
  request.kind = ProbeKind::kAllReduce;
  request.size = static_cast<int>(devices.size());
  request.port = listener.port;
  std::vector<ChildCommand> commands;
  for (int rank = 0; rank < request.size; ++rank) {
    request.rank = rank;
    request.device = devices[static_cast<std::size_t>(rank)];
    request.listen_fd = rank == 0 ? listener.fd.get() : -1;
    commands.push_back(program.child(request));
  }
  return run_children(commands, request.limit_seconds);
}

Findings run_probes(const ActivePlan& plan) { return Prober(plan).run(); }

}  // namespace lorikeet::probe
