#include "models/expert_stacks.h"

#include <ATen/ATen.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "models/tensor_pieces.h"

namespace lorikeet::models {
namespace {

using Stack = io::CheckpointNames::ExpertStack;

[[noreturn]] void fail(const io::TensorView& view, const std::string& expected) {
  throw Error("[checkpoint] tensor '" + escape_control(view.name) + "': expected " + expected + ", got " +
              io::shape_text(view.shape) + " of " + std::string(dtype_name(view.dtype)));
}

// The matrices of a stack [experts, rows, columns] in the order of the file, and what a part of one is called
// behind the expert's number and module.
struct Layout {
  std::int64_t experts, rows, columns;
  bool transposed;
  std::string_view suffix;
  bool vectors = false;  // one column, which a part's shape doesn't have
};

// What a stack of that layout has of each expert's modules.
std::vector<StackedMatrix> matrices_of(const io::TensorView& view, const Stack& stack,
                                       const std::string& prefix, const Layout& layout) {
  const auto modules = static_cast<std::int64_t>(stack.modules.size());
  const std::int64_t out = layout.transposed ? layout.columns : layout.rows;
  const std::int64_t in = layout.transposed ? layout.rows : layout.columns;
  if (out % modules != 0)
    fail(view, "rows of " + std::to_string(modules) + " modules, of each the same number");
  const std::int64_t rows = out / modules;
  // From one row of a matrix to the next, and along a row.
  const std::int64_t row = layout.transposed ? 1 : layout.columns;
  const std::int64_t element_step = layout.transposed ? layout.columns : 1;
  const std::int64_t row_step = stack.interleaved ? modules * row : row;
  std::vector<StackedMatrix> matrices;
  for (std::int64_t e = 0; e < layout.experts; ++e) {
    for (std::int64_t m = 0; m < modules; ++m) {
      matrices.push_back(
          {.name = prefix + std::to_string(e) + "." + stack.modules[static_cast<std::size_t>(m)] +
                   std::string(layout.suffix),
           .rows = rows,
           .columns = in,
           .first = e * layout.rows * layout.columns + m * (stack.interleaved ? row : rows * row),
           .row_step = row_step,
           .element_step = element_step});
    }
  }
  return matrices;
}

void name_parts(io::Checkpoint& checkpoint, const io::TensorView& view, const Stack& stack,
                const std::string& prefix, const Layout& layout) {
  const std::size_t element = dtype_size(view.dtype);
  for (StackedMatrix& matrix : matrices_of(view, stack, prefix, layout)) {
    const std::int64_t span =
        matrix.rows * matrix.columns == 0
            ? 0
            : (matrix.rows - 1) * matrix.row_step + (matrix.columns - 1) * matrix.element_step + 1;
    io::TensorView part{.name = std::move(matrix.name),
                        .dtype = view.dtype,
                        .shape = {matrix.rows, matrix.columns},
                        .bytes = view.bytes.substr(static_cast<std::size_t>(matrix.first) * element,
                                                   static_cast<std::size_t>(span) * element),
                        .file = view.file,
                        .part = io::TensorView::Part{view.name, matrix.row_step, matrix.element_step}};
    if (layout.vectors) {
      part.shape = {matrix.rows};
      part.part->element_step = matrix.row_step;
    }
    checkpoint.name_part(std::move(part));
  }
}

void name_parts(io::Checkpoint& checkpoint, const io::TensorView& view, const Stack& stack,
                const std::string& prefix, std::string_view kind) {
  const auto& shape = view.shape;
  if (kind.empty()) {
    if (shape.size() != 3) fail(view, "matrices of all experts, three dimensions");
    const bool transposed = stack.transposed && shape[2] != stack.in_features;
    name_parts(checkpoint, view, stack, prefix, {shape[0], shape[1], shape[2], transposed, ".weight"});
  } else if (kind == "_bias") {
    if (shape.size() != 2) fail(view, "biases of all experts, two dimensions");
    name_parts(checkpoint, view, stack, prefix,
               {shape[0], shape[1], 1, /*transposed=*/false, ".bias", /*vectors=*/true});
  } else if (kind == "_blocks") {
    if (shape.size() != 4 || shape[3] != 16 || view.dtype != DType::kU8)
      fail(view, "blocks of all experts, uint8 [experts, rows, blocks, 16]");
    name_parts(checkpoint, view, stack, prefix,
               {shape[0], shape[1], shape[2] * shape[3], /*transposed=*/false, ".weight"});
  } else if (kind == "_scales") {
    if (shape.size() != 3 || view.dtype != DType::kU8)
      fail(view, "scales of all experts, uint8 [experts, rows, blocks]");
    name_parts(checkpoint, view, stack, prefix,
               {shape[0], shape[1], shape[2], /*transposed=*/false, ".weight_scales"});
  }
}

// "PREFIX.experts." of a tensor that files have under a name of their own; nothing for another tensor.
std::optional<std::string> prefix_of(const std::string& name, const std::string& in_file) {
  if (!name.ends_with("." + in_file)) return std::nullopt;
  return name.substr(0, name.size() - in_file.size()) + in_file.substr(0, in_file.find('.')) + ".experts.";
}

// Calls f(tensor, its stack, "PREFIX.experts.", what stands behind the stack's name) for all tensors of
// stacks.
template <typename F>
void for_each_stack(const io::Checkpoint& checkpoint, const io::CheckpointNames& names, F f) {
  static constexpr std::string_view kExperts = ".experts.";
  if (names.expert_stacks.empty()) return;
  for (const auto& [name, view] : checkpoint.tensors()) {
    for (const Stack& stack : names.expert_stacks) {
      if (!stack.in_file.empty()) {
        if (const auto prefix = prefix_of(name, stack.in_file)) f(*view, stack, *prefix, std::string_view());
        continue;
      }
      const std::size_t at = name.rfind(kExperts);
      if (at == std::string::npos) continue;
      const std::size_t begin = at + kExperts.size();
      const std::string_view tensor = std::string_view(name).substr(begin);
      if (tensor.starts_with(stack.tensor))
        f(*view, stack, name.substr(0, begin), tensor.substr(stack.tensor.size()));
    }
  }
}

}  // namespace

void name_expert_parts(io::Checkpoint& checkpoint, const io::CheckpointNames& names) {
  for_each_stack(checkpoint, names,
                 [&](const io::TensorView& view, const Stack& stack, const std::string& prefix,
                     std::string_view kind) { name_parts(checkpoint, view, stack, prefix, kind); });
}

std::vector<StackNumbers> mxfp4_stacks(const io::Checkpoint& checkpoint, const io::CheckpointNames& names) {
  std::vector<StackNumbers> stacks;
  for_each_stack(
      checkpoint, names,
      [&](const io::TensorView& view, const Stack& stack, const std::string& prefix, std::string_view kind) {
        if (kind != "_blocks") return;
        // Two codes a byte.
        const std::int64_t out = view.shape[1], in = 2 * view.shape[2] * view.shape[3];
        const Layout layout{.experts = view.shape[0],
                            .rows = stack.transposed ? in : out,
                            .columns = stack.transposed ? out : in,
                            .transposed = stack.transposed,
                            .suffix = ".weight"};
        stacks.push_back({.name = prefix + stack.tensor,
                          .blocks = view.name,
                          .scales = prefix + stack.tensor + "_scales",
                          .shape = {layout.experts, layout.rows, layout.columns},
                          .matrices = matrices_of(view, stack, prefix, layout)});
      });
  return stacks;
}

io::TensorView dense_view(const io::TensorView& view, at::Tensor* copy) {
  if (view.is_dense()) return view;
  std::vector<char> scratch;
  const at::Tensor flat = flat_tensor(view.dtype, view.bytes, &scratch);
  std::vector<std::int64_t> steps{view.part->element_step};
  if (view.shape.size() > 1) steps.insert(steps.begin(), view.part->row_step);
  *copy = flat.as_strided(view.shape, steps).contiguous();
  io::TensorView dense = view;
  dense.part.reset();
  dense.bytes = {static_cast<const char*>(copy->const_data_ptr()), copy->nbytes()};
  return dense;
}

}  // namespace lorikeet::models
