#include "ops/state_space/cuda.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/recurrent_states.h"
#include "ops/state_space/state_space_cuda.h"

namespace lorikeet::ops::cuda {
namespace {

constexpr std::int64_t kChunk = StateSpaceSizes::kChunk;

StateSpaceSizes sizes_of(const at::Tensor& xbc, const StateSpaceLayout& layout, const Sequences& sequences) {
  return {.tokens = xbc.size(0),
          .sequences = std::ssize(sequences.cu_seqlens) - 1,
          .heads = layout.heads,
          .head_dim = layout.head_dim,
          .groups = layout.groups,
          .state_dim = layout.state_dim};
}

// A call's input as the kernels read it.
struct Input {
  Input(const at::Tensor& rows, const at::Tensor& dt_in, const StateSpaceNumbers& numbers,
        const Sequences& sequences)
      : xbc(aligned(rows)),
        dt(dt_in),
        a_log(numbers.a_log.to(at::kFloat).contiguous()),
        dt_bias(numbers.dt_bias.to(at::kFloat).contiguous()),
        d(numbers.d.to(at::kFloat).contiguous()),
        ends(sequences.cu_seqlens_device) {
    check_tensor(rows.is_meta() || (ends.defined() && ends.is_cuda() && ends.scalar_type() == at::kInt),
                 "state_space", "cu_seqlens_device as int32 on the GPU", ends);
  }

  StateSpaceRows on_device() const {
    return {.ends = ends.const_data_ptr<int>(),
            .xbc = xbc.const_data_ptr(),
            .dt = dt.const_data_ptr(),
            .dt_stride = dt.stride(0),
            .a_log = a_log.const_data_ptr<float>(),
            .dt_bias = dt_bias.const_data_ptr<float>(),
            .d = d.const_data_ptr<float>()};
  }

  at::Tensor xbc, dt, a_log, dt_bias, d, ends;
};

at::Tensor scratch(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

// Scratch of StateSpaceChunks.
struct Chunks {
  Chunks(const StateSpaceSizes& sizes, const at::Tensor& like)
      : decays(scratch({sizes.slots(), sizes.heads, StateSpaceSizes::kDecays}, like)),
        products(scratch({sizes.slots(), sizes.groups, kChunk, kChunk}, like)) {}

  StateSpaceChunks on_device() const {
    return {.decays = decays.data_ptr<float>(), .products = products.data_ptr<float>()};
  }

  at::Tensor decays, products;
};

// Scratch of StateSpaceStates.
struct States {
  States(const StateSpaceSizes& sizes, const at::Tensor& like)
      : before(scratch({sizes.boundaries(), sizes.heads, sizes.state_dim, sizes.head_dim}, like)),
        behind(at::empty_like(before)),
        steps(scratch({sizes.slices(), sizes.tokens, sizes.heads}, like)),
        sums(scratch({sizes.blocks_of_group(), sizes.tokens, 2 * sizes.groups * sizes.state_dim}, like)) {}

  StateSpaceStates on_device() const {
    return {.before = before.data_ptr<float>(),
            .behind = behind.data_ptr<float>(),
            .steps = steps.data_ptr<float>(),
            .sums = sums.data_ptr<float>()};
  }

  at::Tensor before, behind, steps, sums;
};

}  // namespace

bool state_space_fits(const at::Tensor& xbc, const StateSpaceLayout& layout) {
  return has_cuda_elements(xbc) && layout.state_dim % StateSpaceSizes::kDimMultiple == 0 &&
         layout.head_dim % StateSpaceSizes::kDimMultiple == 0 &&
         layout.state_dim <= StateSpaceSizes::kMostStateDim;
}

at::Tensor state_space(const at::Tensor& xbc, const at::Tensor& dt, const StateSpaceNumbers& numbers,
                       const StateSpaceLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states) {
  const StateSpaceSizes sizes = sizes_of(xbc, layout, sequences);
  at::Tensor out = at::empty({sizes.tokens, layout.b_begin()}, xbc.options());
  if (sizes.sequences == 0 || (sizes.tokens == 0 && states == nullptr)) return out;
  const Input in(xbc, dt, numbers, sequences);
  const Chunks chunks(sizes, xbc);
  at::Tensor before, behind;
  if (states != nullptr) {
    before = packed_states(*states, {sizes.heads, sizes.state_dim, sizes.head_dim}, xbc);
    behind = scratch({sizes.sequences, sizes.heads, sizes.state_dim, sizes.head_dim}, xbc);
    for (std::size_t s = 0; s < states->size(); ++s)
      (*states)[s] = behind.select(0, static_cast<std::int64_t>(s));
  }
  launch_on_device_of(xbc, [&](void* stream) {
    const CudaElement element = cuda_element(xbc);
    launch_state_space_chunks(element, sizes, in.on_device(), chunks.on_device(), stream);
    launch_state_space_forward(element, sizes, in.on_device(), chunks.on_device(),
                               before.defined() ? before.const_data_ptr<float>() : nullptr,
                               behind.defined() ? behind.mutable_data_ptr<float>() : nullptr,
                               out.mutable_data_ptr(), stream);
  });
  return out;
}

at::Tensor state_space_backward(const at::Tensor& dout, const at::Tensor& xbc, const at::Tensor& dt,
                                const StateSpaceNumbers& numbers, const StateSpaceLayout& layout,
                                const Sequences& sequences, const at::Tensor& ddt) {
  const StateSpaceSizes sizes = sizes_of(xbc, layout, sequences);
  at::Tensor dxbc = at::empty_like(xbc);
  if (sizes.sequences == 0 || sizes.tokens == 0) return dxbc;
  const Input in(xbc, dt, numbers, sequences);
  const at::Tensor of_out = aligned(dout.contiguous());
  const Chunks chunks(sizes, xbc);
  const States states(sizes, xbc);
  launch_on_device_of(xbc, [&](void* stream) {
    const CudaElement element = cuda_element(xbc);
    const StateSpaceRows rows = in.on_device();
    const StateSpaceChunks of_chunks = chunks.on_device();
    const StateSpaceStates of_states = states.on_device();
    const void* const gradient = of_out.const_data_ptr();
    launch_state_space_chunks(element, sizes, rows, of_chunks, stream);
    launch_state_space_states(element, sizes, rows, of_chunks, of_states, stream);
    launch_state_space_reverse(element, sizes, rows, of_chunks, gradient, of_states, dxbc.mutable_data_ptr(),
                               stream);
    launch_state_space_gradients(element, sizes, rows, of_chunks, gradient, of_states, ddt.mutable_data_ptr(),
                                 ddt.stride(0), stream);
    launch_state_space_sums(element, sizes, of_states.sums, dxbc.mutable_data_ptr(), stream);
  });
  return dxbc;
}

}  // namespace lorikeet::ops::cuda
