#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "support/as_autograd.h"

// Times ways of computing one thing beside each other and prints a line of a table for each comparison.
namespace lorikeet::bench {

struct Settings {
  int threads = 2;
  int repeats = 7;
  at::ScalarType dtype = at::kFloat;
  std::string only;           ///< operators whose name contains it; empty: all
  double copy_bandwidth = 0;  ///< bytes a second that copies read and write
};

/// One way of computing the operator, which autograd differentiates. Its outputs, side by side, are the
/// result.
using Way = std::function<std::vector<at::Tensor>(const at::Tensor&)>;
/// The operator as a layer calls it, without autograd: the result of x, and the function of its backward,
/// which stays empty where forward alone is timed.
using Pair = test::Forward;

enum class Passes { kForward, kTogether, kEach };

struct Operator {
  std::string name;
  at::Tensor input;
  at::Tensor upstream;  ///< the result's gradient; unused for forward alone
  Pair here;
  Way reference, aten;                           ///< may be empty
  double forward_flops = 0, together_flops = 0;  ///< 0: no rate is printed
  /// Bytes of what is read and of what is written, each once; 0: no share of the bandwidth is printed.
  double forward_bytes = 0, together_bytes = 0;
  Passes passes = Passes::kEach;
};

/// A copy of what the operator writes over, which a model needn't make: the time that it takes isn't counted.
at::Tensor untimed_copy(const at::Tensor& tensor);

/// Bytes a second that the best of several large copies by all threads reads and writes.
double measured_copy_bandwidth();

/// The table's head.
void print_head();

/// Checks that the ways agree, in their result and in the input's gradient, to a few roundings of the dtype;
/// then times them in turn, `repeats` times after one round of warming up. Prints for forward (with
/// what its backward needs, as in training) and for forward and backward together: median and
/// smallest-largest in ms, which share of the copies' bandwidth that is, and how many times as fast as each
/// other way the operator is, by the medians.
/// Throws std::runtime_error when ways disagree.
void compare(const Settings& settings, const Operator& op);

}  // namespace lorikeet::bench
