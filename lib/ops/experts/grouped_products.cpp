#include "ops/experts/grouped_products.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "ops/capability.h"
#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/dtype.h"
#include "ops/experts/grouped_products_cuda.h"
#include "ops/low_rank_on_device.h"
#include "ops/part.h"

namespace lorikeet::ops {
namespace {

constexpr const char* kOp = "experts";
constexpr std::int64_t kChunk = 8;  // elements of 16 bytes

bool has_kernels(const at::Tensor& tensor) {
  return has_cuda_elements(tensor) && has_grouped_products(capability_of(tensor), tensor.scalar_type());
}

const void* data_of(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.is_meta() ? tensor.const_data_ptr() : nullptr;
}

// Experts [begin, end).
struct Range {
  std::int64_t begin, end;
};

Range all_of(const Routing& routing) { return {0, routing.ends.size(0)}; }

ExpertsOnDevice on_device(const Routing& routing, const Range& range, bool transposed) {
  return {.rows = routing.tokens.size(0),
          .ends = routing.ends.is_meta() ? nullptr : routing.ends.const_data_ptr<std::int64_t>(),
          .begin = range.begin,
          .end = range.end,
          .transposed = transposed};
}

// The first element of an expert's matrix.
const void* data_of(const MatrixList& matrices, std::int64_t expert) {
  return data_of(matrices.in_memory.select(0, matrices.place(expert)));
}

// `right`: of all experts, or of those of the range.
GroupedOperands operands_of(const at::Tensor& left, const MatrixList& right, std::int64_t begin,
                            const Range& range, bool transposed) {
  const std::int64_t inner = transposed ? right.rows() : right.cols();
  check(left.size(1) == inner, kOp, "operands of one inner dimension",
        [&] { return describe(left) + " and " + describe(right.in_memory); });
  check(groups_operand(left) && groups_operand(right.in_memory) &&
            left.scalar_type() == right.in_memory.scalar_type(),
        kOp, "aligned operands of one dtype",
        [&] { return describe(left) + " and " + describe(right.in_memory); });
  return {.left = data_of(left),
          .left_row = left.stride(0),
          .right = data_of(right, right.count() == range.end - range.begin ? 0 : range.begin),
          .right_row = right.in_memory.stride(1),
          .right_expert = right.apart(),
          .inner = inner,
          .begin = begin,
          .end = begin + (transposed ? right.cols() : right.rows())};
}

void launch(const at::Tensor& out, const at::Tensor& left, const MatrixList& right,
            const std::vector<GroupedTerm>& terms, double scale, const at::Tensor& bias, bool transposed,
            const Routing& routing, const Range& range) {
  check(terms.size() <= GroupedProduct::kMostTerms, kOp, "at most two terms",
        [&] { return std::to_string(terms.size()); });
  GroupedProduct product{.operands = operands_of(left, right, 0, range, transposed),
                         .term_count = static_cast<int>(terms.size()),
                         .scale = static_cast<float>(scale)};
  for (std::size_t i = 0; i < terms.size(); ++i)
    product.terms[i] = operands_of(terms[i].left, terms[i].right, terms[i].begin, range, transposed);
  check_tensor(
      groups_operand(out) && out.size(1) == product.operands.end && out.scalar_type() == left.scalar_type(),
      kOp, "an aligned result as wide as the product, of its operands' dtype", out);
  // Stored in the base's dtype, as matrices are.
  const at::Tensor own_bias =
      bias.defined() ? part(bias, 0, range.begin, range.end).to(out.scalar_type()) : bias;
  product.bias = data_of(own_bias);
  product.bias_expert = bias.defined() ? own_bias.stride(0) : 0;
  product.out_row = out.stride(0);
  launch_on_device_of(out, [&](void* stream) {
    product.out = out.mutable_data_ptr();
    launch_grouped_product(cuda_element(out), on_device(routing, range, transposed), product, stream);
  });
}

bool are_numbers(const MatrixStack& matrices, at::ScalarType dtype) {
  return matrices.first.format == &dense_format(from_torch(dtype));
}

bool lie_aligned(const MatrixStack& matrices) {
  return matrices.apart % 16 == 0 && is_aligned(matrices.first.bytes);
}

// The experts' matrices, which are numbers of that dtype, as [experts, rows, cols], a view.
at::Tensor numbers_in_place(const MatrixStack& matrices, at::ScalarType dtype) {
  const auto size = static_cast<std::int64_t>(at::elementSize(dtype));
  return matrices.bytes.view(dtype).as_strided({matrices.count, matrices.first.rows, matrices.first.cols},
                                               {matrices.apart / size, matrices.first.cols, 1});
}

// Calls f(range, right) with the numbers of the experts' matrices, as many experts at a time as fit scratch.
template <typename F>
void with_numbers(const MatrixStack& matrices, const at::Tensor& like, const Routing& routing, F&& f) {
  if (are_numbers(matrices, like.scalar_type())) {
    f(all_of(routing), MatrixList{numbers_in_place(matrices, like.scalar_type())});
    return;
  }
  const std::int64_t each = matrices.first.rows * matrices.first.cols * 2;
  const std::int64_t at_once = std::clamp<std::int64_t>(matrices.scratch_bytes / each, 1, matrices.count);
  const at::Tensor scratch = at::empty({at_once, matrices.first.rows, matrices.first.cols}, like.options());
  for (std::int64_t begin = 0; begin < matrices.count; begin += at_once) {
    const Range range{begin, std::min(begin + at_once, matrices.count)};
    const at::Tensor numbers = part(scratch, 0, 0, range.end - begin);
    matrices.first.format->stack_out(numbers, matrices, begin);
    f(range, MatrixList{numbers});
  }
}

}  // namespace

bool has_grouped_products(int capability, at::ScalarType dtype) {
  return at::isReducedFloatingType(dtype) && has_tensor_core_kernels(capability);
}

bool leaves_device_idle(std::int64_t rows, std::int64_t experts, std::int64_t columns) {
  constexpr std::int64_t kTile = 128, kTilesOfDevice = 256;
  const auto tiles = [](std::int64_t size) { return (size + kTile - 1) / kTile; };
  return tiles((rows + experts - 1) / experts) * tiles(columns) < kTilesOfDevice;
}

bool groups_products(const at::Tensor& rows, const MatrixStack& matrices) {
  // A launch has at most 65,535 blocks below each other, each with 128 rows of one expert.
  constexpr std::int64_t kMostRows = std::int64_t{1} << 22;
  // For fewer rows it would take longer to decode the matrices of experts that have none.
  constexpr std::int64_t kRowsOfDecoded = 4;
  return has_kernels(rows) && groups_operand(rows) && rows.size(0) <= kMostRows &&
         matrices.first.rows % kChunk == 0 && matrices.first.cols % kChunk == 0 && lie_aligned(matrices) &&
         matrices.first.format->exact_products() &&
         leaves_device_idle(rows.size(0), matrices.count, matrices.first.rows) &&
         (are_numbers(matrices, rows.scalar_type()) || rows.size(0) >= kRowsOfDecoded * matrices.count);
}

bool groups_operand(const at::Tensor& operand) {
  if (!is_aligned(operand) || operand.stride(-1) != 1) return false;
  for (std::int64_t dim = 0; dim + 1 < operand.dim(); ++dim) {
    if (operand.stride(dim) % kChunk != 0) return false;
  }
  return operand.size(-1) % kChunk == 0;
}

void grouped_forward(at::Tensor& out, const at::Tensor& x, const Routing& routing,
                     const MatrixStack& matrices, const std::vector<GroupedTerm>& terms, double scale) {
  with_numbers(matrices, x, routing, [&](const Range& range, const MatrixList& right) {
    launch(out, x, right, terms, scale, matrices.bias, /*transposed=*/false, routing, range);
  });
}

void grouped_backward(at::Tensor& dx, const at::Tensor& dy, const Routing& routing,
                      const MatrixStack& matrices, const std::vector<GroupedTerm>& terms, double scale) {
  with_numbers(matrices, dy, routing, [&](const Range& range, const MatrixList& right) {
    launch(dx, dy, right, terms, scale, {}, /*transposed=*/true, routing, range);
  });
}

void grouped_product(const at::Tensor& out, const at::Tensor& left, const MatrixList& right, bool transposed,
                     const Routing& routing) {
  launch(out, left, right, {}, 1, {}, transposed, routing, all_of(routing));
}

void grouped_sums(const MatrixList& sums, const at::Tensor& left, const at::Tensor& right, double scale,
                  const Routing& routing) {
  check_tensor(sums.in_memory.scalar_type() == at::kFloat && sums.rows() == left.size(1) &&
                   sums.cols() == right.size(1) && sums.in_memory.stride(2) == 1 &&
                   sums.in_memory.stride(1) == sums.cols(),
               kOp, "fp32 sums [experts, left's width, right's width]", sums.in_memory);
  check(groups_operand(left) && groups_operand(right) && left.size(0) == right.size(0) &&
            left.scalar_type() == right.scalar_type(),
        kOp, "aligned operands of as many rows and one dtype",
        [&] { return describe(left) + " and " + describe(right); });
  launch_on_device_of(left, [&](void* stream) {
    launch_grouped_sums(cuda_element(left), on_device(routing, all_of(routing), false),
                        {.left = left.const_data_ptr(),
                         .right = right.const_data_ptr(),
                         .left_row = left.stride(0),
                         .left_width = left.size(1),
                         .right_row = right.stride(0),
                         .right_width = right.size(1),
                         .out = sums[0].mutable_data_ptr<float>(),
                         .out_expert = sums.apart(),
                         .scale = static_cast<float>(scale)},
                        stream);
  });
}

}  // namespace lorikeet::ops
