#include "probe/product_rates.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <string>

#include "ops/check.h"
#include "ops/matmul/panels.h"

namespace lorikeet::probe {
namespace {

constexpr double kFlopsOfPart = 5e8;                             // of one product that is timed
constexpr std::int64_t kElementsOfPart = std::int64_t{1} << 23;  // of its weight, at most
constexpr std::int64_t kMostColumns = 4096;                      // of its weight
constexpr std::size_t kLeastRounds = 3, kMostRounds = 7;
constexpr double kSeconds = 1;   // after which no further round is begun
constexpr double kClear = 1.15;  // how many times as fast one way must be in each round to need no more
constexpr double kHopeless = 4;  // how many times slower a first try may be
constexpr std::int64_t kTokensOfFirstTry = 64;
constexpr double kTie = 1.02;

double d(std::int64_t n) { return static_cast<double>(n); }

// Restores what was chosen before.
class Forced {
 public:
  explicit Forced(ops::HalfProducts choice) : before_(ops::half_products()) {
    ops::set_half_products(choice);
  }
  ~Forced() { ops::set_half_products(before_); }
  Forced(const Forced&) = delete;
  Forced& operator=(const Forced&) = delete;

 private:
  ops::HalfProducts before_;
};

/// One frozen matrix's part of a step, cut down to what can be timed in milliseconds: the products that a
/// LoRA layer computes.
class Part {
 public:
  Part(const FrozenProduct& product, const ProductJob& job, std::int64_t tokens)
      : rank_(product.projections > 0 ? job.rank : 0), backward_(job.backward) {
    const std::int64_t in = std::min(product.in, kMostColumns);
    const std::int64_t affordable = std::min(static_cast<std::int64_t>(kFlopsOfPart / 2 / d(tokens * in)),
                                             kElementsOfPart / std::max<std::int64_t>(in, 1));
    // Two panels of a widened weight, at least: what one costs besides is in the figure.
    const std::int64_t out = std::min(product.out, std::max(affordable, 2 * ops::panel_rows(in)));
    parts_ = rank_ > 0 ? std::min(product.projections, out) : 0;
    const auto options = at::TensorOptions().dtype(job.dtype);
    const auto filled = [&](at::IntArrayRef sizes) { return at::full(sizes, 1.0 / 64, options); };
    x_ = filled({tokens, in});
    w_ = filled({out, in});
    y_ = filled({tokens, out});
    dx_ = at::empty({tokens, in}, options);
    if (rank_ > 0) {
      a_ = filled({parts_ * rank_, in});
      b_ = filled({out, rank_});
      grad_b_ = at::zeros({out, rank_}, options.dtype(at::kFloat));
    }
    const double whole = d(product.count) * d(product.out) * d(product.in) * d(job.tokens);
    scale_ = whole / (d(out) * d(in) * d(tokens));
    flops_ = 2 * whole * (backward_ ? 2 : 1);
  }

  /// Floating-point operations of the whole product in a pass.
  double flops() const { return flops_; }

  /// Seconds that the whole product would take, by one try.
  double seconds(ops::HalfProducts choice) {
    using Clock = std::chrono::steady_clock;
    const Forced forced(choice);
    const Clock::time_point begin = Clock::now();
    const at::Tensor xa = forward();
    if (backward_) backward(xa);
    return scale_ * std::chrono::duration<double>(Clock::now() - begin).count();
  }

 private:
  std::int64_t begin_of(std::int64_t part) const { return w_.size(0) * part / parts_; }

  at::Tensor forward() {
    const at::Tensor input = ops::matmul_operand(x_);
    at::Tensor xa;
    std::vector<ops::LowRankTerm> terms;
    if (rank_ > 0) {
      xa = at::empty({input.size(0), a_.size(0)}, input.options().dtype(ops::product_type(input)));
      ops::matmul_nt_out(xa, input, a_);
    }
    for (std::int64_t part = 0; part < parts_; ++part) {
      const at::Tensor b = b_.slice(0, begin_of(part), begin_of(part + 1));
      terms.push_back({xa.slice(1, part * rank_, (part + 1) * rank_), b, begin_of(part)});
    }
    ops::matmul_nt_out(y_, input, w_, terms);
    return xa;
  }

  void backward(const at::Tensor& xa) {
    const at::Tensor dy = ops::matmul_operand(y_);
    std::vector<ops::LowRankTerm> terms;
    if (rank_ > 0) {
      at::Tensor low = at::empty({dy.size(0), parts_ * rank_}, dy.options().dtype(ops::product_type(dy)));
      for (std::int64_t part = 0; part < parts_; ++part) {
        const std::int64_t begin = begin_of(part), end = begin_of(part + 1);
        const at::Tensor columns = dy.slice(1, begin, end);
        at::Tensor own = low.slice(1, part * rank_, (part + 1) * rank_), grad = grad_b_.slice(0, begin, end);
        ops::matmul_nn_out(own, columns, b_.slice(0, begin, end));
        ops::matmul_tn_add(grad, columns, xa.slice(1, part * rank_, (part + 1) * rank_), 1);
      }
      ops::matmul_tn(low, x_);
      terms.push_back({low, a_, 0});
    }
    ops::matmul_nn_out(dx_, dy, w_, terms);
  }

  std::int64_t rank_, parts_ = 0;
  bool backward_;
  double scale_ = 1, flops_ = 0;
  at::Tensor x_, w_, y_, dx_, a_, b_, grad_b_;
};

// Seconds of the two ways, timed one right after the other.
struct Pair {
  double native = 0, widened = 0;
  double ratio() const { return widened / native; }
};

Pair one_pair(Part& part, bool native_first) {
  Pair pair;
  if (native_first) pair.native = part.seconds(ops::HalfProducts::kNative);
  pair.widened = part.seconds(ops::HalfProducts::kWidened);
  if (!native_first) pair.native = part.seconds(ops::HalfProducts::kNative);
  return pair;
}

Pair best_of(const std::vector<Pair>& pairs) {
  Pair best = pairs.at(0);
  for (const Pair& pair : pairs)
    best = {std::min(best.native, pair.native), std::min(best.widened, pair.widened)};
  return best;
}

double median_ratio(const std::vector<Pair>& pairs) {
  std::vector<double> ratios;
  ratios.reserve(pairs.size());
  for (const Pair& pair : pairs) ratios.push_back(pair.ratio());
  std::sort(ratios.begin(), ratios.end());
  const std::size_t middle = ratios.size() / 2;
  return ratios.size() % 2 == 1 ? ratios[middle] : std::sqrt(ratios[middle - 1] * ratios[middle]);
}

/// Pairs of every part, round by round.
class Rounds {
 public:
  explicit Rounds(std::size_t parts) : pairs_(parts) {}

  void add(std::vector<Part>& parts) {
    Pair sum;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const Pair pair = one_pair(parts[i], (count() + i) % 2 == 0);
      pairs_[i].push_back(pair);
      sum = {sum.native + pair.native, sum.widened + pair.widened};
    }
    sums_.push_back(sum);
  }

  std::size_t count() const { return sums_.size(); }

  // Whether one way was far ahead in every round.
  bool clear() const {
    const auto native = [](const Pair& sum) { return sum.ratio() > kClear; };
    const auto widened = [](const Pair& sum) { return sum.ratio() < 1 / kClear; };
    return std::all_of(sums_.begin(), sums_.end(), native) ||
           std::all_of(sums_.begin(), sums_.end(), widened);
  }

  // The best time of each part, and each part's median ratio, weighed by its time.
  ProductRates rates(double flops) const {
    Pair best, by_median;
    for (const std::vector<Pair>& pairs : pairs_) {
      const Pair of_part = best_of(pairs);
      best = {best.native + of_part.native, best.widened + of_part.widened};
      by_median = {by_median.native + of_part.native,
                   by_median.widened + of_part.native * median_ratio(pairs)};
    }
    return {flops / best.native, flops / best.widened, by_median.ratio()};
  }

 private:
  std::vector<std::vector<Pair>> pairs_;  // by part
  std::vector<Pair> sums_;                // by round
};

// libtorch multiplies 16-bit matrices by plain loops where it has no kernel for the CPU: a hundred times
// slower than fp32, and too slow to be tried at full size.
// Empty where native products can keep up.
std::optional<ProductRates> hopeless(const ProductJob& job, double flops) {
  const auto largest = *std::max_element(
      job.products.begin(), job.products.end(),
      [](const auto& a, const auto& b) { return a.count * a.out * a.in < b.count * b.out * b.in; });
  Part part(largest, job, std::min(job.tokens, kTokensOfFirstTry));
  const auto pair = [&] { return one_pair(part, /*native_first=*/true); };
  const Pair best = best_of({pair(), pair(), pair()});
  if (best.native < kHopeless * best.widened) return std::nullopt;
  const double work = flops / part.flops();
  return ProductRates{flops / (best.native * work), flops / (best.widened * work), best.ratio()};
}

}  // namespace

std::int64_t ProductJob::parameters() const {
  std::int64_t sum = 0;
  for (const FrozenProduct& product : products) sum += product.count * product.out * product.in;
  return sum;
}

ProductRates measure_products(const ProductJob& job) {
  using Clock = std::chrono::steady_clock;
  ops::check(!job.products.empty() && job.tokens > 0 && at::isReducedFloatingType(job.dtype),
             "measure_products", "products of 16-bit matrices and at least one token", [&] {
               return std::to_string(job.products.size()) + " products of " + std::to_string(job.tokens) +
                      " tokens";
             });
  const double flops = 2 * d(job.parameters()) * d(job.tokens) * (job.backward ? 2 : 1);
  if (const auto rates = hopeless(job, flops)) return *rates;
  std::vector<Part> parts;
  parts.reserve(job.products.size());
  for (const FrozenProduct& product : job.products)
    parts.emplace_back(product, job, std::min(job.tokens, kMostMeasuredTokens));
  Rounds(parts.size()).add(parts);  // not counted: libraries set up their kernels
  Rounds rounds(parts.size());
  const Clock::time_point begin = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (rounds.count() < kLeastRounds ||
         (rounds.count() < kMostRounds && !rounds.clear() && spent() < kSeconds))
    rounds.add(parts);
  return rounds.rates(flops);
}

ops::HalfProducts faster_products(const ProductRates& rates, ops::HalfProducts usual) {
  if (rates.native_over_widened > kTie) return ops::HalfProducts::kNative;
  if (rates.native_over_widened < 1 / kTie) return ops::HalfProducts::kWidened;
  return usual;
}

}  // namespace lorikeet::probe
