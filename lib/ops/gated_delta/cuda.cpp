#include "ops/gated_delta/cuda.h"

#include <ATen/ATen.h>

#include "ops/check.h"
#include "ops/cuda_launch.h"
#include "ops/gated_delta/gated_delta_cuda.h"
#include "ops/recurrent_states.h"

namespace lorikeet::ops::cuda {
namespace {

constexpr std::int64_t kChunk = DeltaSizes::kChunk;

DeltaSizes sizes_of(const at::Tensor& qkv, const DeltaLayout& layout, const Sequences& sequences) {
  return {.tokens = qkv.size(0),
          .sequences = std::ssize(sequences.cu_seqlens) - 1,
          .key_heads = layout.key_heads,
          .value_heads = layout.value_heads,
          .key_dim = layout.key_dim,
          .value_dim = layout.value_dim};
}

// A call's input as the kernels read it.
struct Input {
  Input(const at::Tensor& rows, const at::Tensor& gates_in, const DeltaDecay& decay,
        const Sequences& sequences)
      : qkv(aligned(rows)),
        gates(gates_in),
        a_log(decay.a_log.to(at::kFloat).contiguous()),
        dt_bias(decay.dt_bias.to(at::kFloat).contiguous()),
        ends(sequences.cu_seqlens_device) {
    check_tensor(rows.is_meta() || (ends.defined() && ends.is_cuda() && ends.scalar_type() == at::kInt),
                 "gated_delta", "cu_seqlens_device as int32 on the GPU", ends);
  }

  DeltaRows on_device() const {
    return {.ends = ends.const_data_ptr<int>(),
            .qkv = qkv.const_data_ptr(),
            .gates = gates.const_data_ptr(),
            .a_log = a_log.const_data_ptr<float>(),
            .dt_bias = dt_bias.const_data_ptr<float>()};
  }

  at::Tensor qkv, gates, a_log, dt_bias, ends;
};

at::Tensor scratch(at::IntArrayRef sizes, const at::Tensor& like) {
  return at::empty(sizes, like.options().dtype(at::kFloat));
}

// Scratch of DeltaChunks.
struct Chunks {
  Chunks(const DeltaSizes& sizes, const at::Tensor& like)
      : norms(scratch({sizes.tokens, 2 * sizes.key_heads}, like)),
        decays(scratch({sizes.slots(), sizes.value_heads, DeltaSizes::kDecays}, like)),
        inverse(scratch({sizes.slots(), sizes.value_heads, kChunk, kChunk}, like)),
        scores(scratch({sizes.slots(), sizes.value_heads, kChunk, kChunk}, like)) {}

  DeltaChunks on_device() const {
    return {.norms = norms.data_ptr<float>(),
            .decays = decays.data_ptr<float>(),
            .inverse = inverse.data_ptr<float>(),
            .scores = scores.data_ptr<float>()};
  }

  at::Tensor norms, decays, inverse, scores;
};

}  // namespace

bool gated_delta_fits(const at::Tensor& qkv, const DeltaLayout& layout) {
  return has_cuda_elements(qkv) && layout.key_dim % DeltaSizes::kDimMultiple == 0 &&
         layout.value_dim % DeltaSizes::kDimMultiple == 0 && layout.key_dim <= DeltaSizes::kMostKeyDim;
}

at::Tensor gated_delta(const at::Tensor& qkv, const at::Tensor& gates, const DeltaDecay& decay,
                       const DeltaLayout& layout, const Sequences& sequences,
                       std::vector<at::Tensor>* states) {
  const DeltaSizes sizes = sizes_of(qkv, layout, sequences);
  at::Tensor out = at::empty({sizes.tokens, sizes.value_heads * sizes.value_dim}, qkv.options());
  if (sizes.sequences == 0 || (sizes.tokens == 0 && states == nullptr)) return out;
  const Input in(qkv, gates, decay, sequences);
  const Chunks chunks(sizes, qkv);
  at::Tensor before, behind;
  if (states != nullptr) {
    before = packed_states(*states, {sizes.value_heads, sizes.key_dim, sizes.value_dim}, qkv);
    behind = scratch({sizes.sequences, sizes.value_heads, sizes.key_dim, sizes.value_dim}, qkv);
    for (std::size_t s = 0; s < states->size(); ++s)
      (*states)[s] = behind.select(0, static_cast<std::int64_t>(s));
  }
  launch_on_device_of(qkv, [&](void* stream) {
    const CudaElement element = cuda_element(qkv);
    launch_delta_chunks(element, sizes, in.on_device(), chunks.on_device(), stream);
    launch_delta_forward(element, sizes, in.on_device(), chunks.on_device(),
                         before.defined() ? before.const_data_ptr<float>() : nullptr,
                         behind.defined() ? behind.mutable_data_ptr<float>() : nullptr,
                         out.mutable_data_ptr(), stream);
  });
  return out;
}

DeltaGradients gated_delta_backward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& gates,
                                    const DeltaDecay& decay, const DeltaLayout& layout,
                                    const Sequences& sequences) {
  const DeltaSizes sizes = sizes_of(qkv, layout, sequences);
  DeltaGradients gradients{.qkv = at::empty_like(qkv), .gates = at::empty_like(gates)};
  if (sizes.sequences == 0 || sizes.tokens == 0) return gradients;
  const Input in(qkv, gates, decay, sequences);
  const at::Tensor of_out = aligned(dout.contiguous());
  const Chunks chunks(sizes, qkv);
  const auto of_states = [&] {
    return scratch({sizes.slots(), sizes.value_heads, sizes.key_dim, sizes.value_dim}, qkv);
  };
  const auto of_values = [&] { return scratch({sizes.tokens, sizes.value_heads, sizes.value_dim}, qkv); };
  const at::Tensor states = of_states(), dstates = of_states(), values = of_values(), drows = of_values();
  const at::Tensor sums = scratch({sizes.tokens, 2 * sizes.key_heads, sizes.key_dim}, qkv);
  launch_on_device_of(qkv, [&](void* stream) {
    const CudaElement element = cuda_element(qkv);
    const DeltaRows rows = in.on_device();
    const DeltaChunks of_chunks = chunks.on_device();
    const DeltaStates kept{.states = states.data_ptr<float>(), .values = values.data_ptr<float>()};
    const DeltaStateGradients reverse{.states = dstates.data_ptr<float>(), .rows = drows.data_ptr<float>()};
    launch_delta_chunks(element, sizes, rows, of_chunks, stream);
    launch_delta_states(element, sizes, rows, of_chunks, kept, stream);
    launch_delta_reverse(element, sizes, rows, of_chunks, of_out.const_data_ptr(), reverse,
                         gradients.qkv.mutable_data_ptr(), stream);
    launch_delta_gradients(element, sizes, rows, of_chunks, kept, reverse, of_out.const_data_ptr(),
                           sums.data_ptr<float>(), gradients.qkv.mutable_data_ptr(),
                           gradients.gates.mutable_data_ptr(), stream);
  });
  return gradients;
}

}  // namespace lorikeet::ops::cuda
