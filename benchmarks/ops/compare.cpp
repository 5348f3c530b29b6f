#include "compare.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string_view>

namespace lorikeet::bench {
namespace {

using Outputs = std::vector<at::Tensor>;

// One way with its name and how its passes run: both from the input to what they make.
struct Named {
  const char* name;
  std::function<Outputs()> forward;
  std::function<at::Tensor(const Outputs& upstream)> gradient;
  Outputs upstream;
};

struct Times {
  double median = 0, least = 0, most = 0;  // ms
};

Outputs split_like(const at::Tensor& whole, const Outputs& outputs) {
  Outputs parts;
  std::int64_t begin = 0;
  for (const auto& output : outputs) {
    parts.push_back(whole.slice(1, begin, begin + output.size(1)).to(output.scalar_type()).contiguous());
    begin += output.size(1);
  }
  return parts;
}

Named pair_of_passes(const Operator& op) {
  const auto forward = [&op]() -> Outputs {
    const at::NoGradGuard no_grad;
    test::Backward backward;
    return {op.here(op.input, backward)};
  };
  const auto gradient = [&op](const Outputs& upstream) {
    const at::NoGradGuard no_grad;
    test::Backward backward;
    const at::Tensor out = op.here(op.input, backward);
    return backward(upstream[0]);
  };
  return {"here", forward, gradient, {}};
}

Named differentiated(const char* name, const Operator& op, const Way& way) {
  const auto forward = [&op, &way] { return way(op.input.detach().requires_grad_(true)); };
  const auto gradient = [&op, &way](const Outputs& upstream) {
    const auto x = op.input.detach().requires_grad_(true);
    torch::autograd::backward(way(x), upstream);
    return x.grad();
  };
  return {name, forward, gradient, {}};
}

double distance(const at::Tensor& value, const at::Tensor& expected) {
  const auto wide = expected.detach().to(at::kFloat);
  return ((value.detach().to(at::kFloat) - wide).abs().max() / wide.abs().max()).item<double>();
}

void require_near(const Operator& op, const char* way, const char* what, const at::Tensor& value,
                  const at::Tensor& expected, at::ScalarType dtype) {
  // Ways may round to bf16 after each of their parts: a few times 2^-8.
  const double limit = dtype == at::kFloat ? 1e-4 : 0.05;
  const double found = distance(value, expected);
  if (!(found < limit)) {
    throw std::runtime_error("[bench_ops] " + op.name + ": " + way + " differs in its " + what + " by " +
                             std::to_string(found) + " of the largest value");
  }
}

// Also fills the upstreams, cut as the outputs are.
void require_agreement(const Operator& op, std::vector<Named>& ways, at::ScalarType dtype) {
  at::Tensor result, grad;
  for (auto& named : ways) {
    const auto outputs = named.forward();
    const auto joined = at::cat(outputs, 1).detach();
    if (!result.defined()) result = joined;
    require_near(op, named.name, "result", joined, result, dtype);
    if (op.passes == Passes::kForward) continue;
    named.upstream = split_like(op.upstream, outputs);
    const auto own = named.gradient(named.upstream);
    if (!grad.defined()) grad = own;
    require_near(op, named.name, "gradient", own, grad, dtype);
  }
}

using Milliseconds = std::chrono::duration<double, std::milli>;

Milliseconds spent_on_copies{0};

double milliseconds(const std::function<void()>& run) {
  spent_on_copies = Milliseconds(0);
  const auto start = std::chrono::steady_clock::now();
  run();
  const Milliseconds all = std::chrono::steady_clock::now() - start;
  return (all - spent_on_copies).count();
}

std::vector<Times> interleaved(const std::vector<std::function<void()>>& runs, int repeats) {
  std::vector<std::vector<double>> all(runs.size());
  for (int repeat = -1; repeat < repeats; ++repeat) {
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const double ms = milliseconds(runs[i]);
      if (repeat >= 0) all[i].push_back(ms);
    }
  }
  std::vector<Times> times;
  for (auto& ms : all) {
    std::sort(ms.begin(), ms.end());
    times.push_back({ms[ms.size() / 2], ms.front(), ms.back()});
  }
  return times;
}

// What a pass of an operator computes and moves.
struct Work {
  double flops, bytes;
};

void print_line(const Settings& settings, const Operator& op, const char* pass,
                const std::vector<Named>& ways, const std::vector<Times>& times, const Work& work) {
  const auto find = [&](std::string_view name) -> const Times* {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      if (ways[i].name == name) return &times[i];
    }
    return nullptr;
  };
  const Times here = *find("here");
  std::printf("| %s | %s | %.2f (%.2f-%.2f) | ", op.name.c_str(), pass, here.median, here.least, here.most);
  if (work.flops > 0) std::printf("%.0f", work.flops / here.median / 1e6);
  std::printf(" | ");
  if (work.bytes > 0) std::printf("%.0f%%", 100 * work.bytes / (here.median / 1e3) / settings.copy_bandwidth);
  for (const char* name : {"reference", "ATen"}) {
    const Times* other = find(name);
    if (other == nullptr) {
      std::printf(" | | ");
    } else {
      std::printf(" | %.2f (%.2f-%.2f) | %.2f", other->median, other->least, other->most,
                  other->median / here.median);
    }
  }
  std::printf(" |\n");
  std::fflush(stdout);
}

}  // namespace

at::Tensor untimed_copy(const at::Tensor& tensor) {
  const auto start = std::chrono::steady_clock::now();
  at::Tensor copy = tensor.clone();
  spent_on_copies += std::chrono::steady_clock::now() - start;
  return copy;
}

double measured_copy_bandwidth() {
  constexpr std::int64_t kNumbers = std::int64_t{32} << 20;
  const at::Tensor from = at::ones({kNumbers}), to = at::zeros({kNumbers});
  double least = milliseconds([&] { to.copy_(from); });
  for (int repeat = 0; repeat < 10; ++repeat) least = std::min(least, milliseconds([&] { to.copy_(from); }));
  return 2e3 * static_cast<double>(from.nbytes()) / least;
}

void print_head() {
  std::printf(
      "| operator | pass | here ms | GFLOP/s | of copies' bandwidth | reference ms | reference/here | ATen "
      "ms | ATen/here |\n"
      "|---|---|---|---|---|---|---|---|---|\n");
}

void compare(const Settings& settings, const Operator& op) {
  if (op.name.find(settings.only) == std::string::npos) return;
  std::vector<Named> ways{pair_of_passes(op)};
  if (op.reference) ways.push_back(differentiated("reference", op, op.reference));
  if (op.aten) ways.push_back(differentiated("ATen", op, op.aten));
  require_agreement(op, ways, settings.dtype);

  std::vector<std::function<void()>> forward, together;
  for (const auto& named : ways) {
    forward.emplace_back([&named] { named.forward(); });
    together.emplace_back([&named] { named.gradient(named.upstream); });
  }
  if (op.passes != Passes::kTogether) {
    print_line(settings, op, "forward", ways, interleaved(forward, settings.repeats),
               {op.forward_flops, op.forward_bytes});
  }
  if (op.passes != Passes::kForward) {
    print_line(settings, op, "both", ways, interleaved(together, settings.repeats),
               {op.together_flops, op.together_bytes});
  }
}

}  // namespace lorikeet::bench
