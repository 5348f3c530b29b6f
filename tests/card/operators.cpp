// The operators that the fallback can't serve: those that allocate, that cross between host and card, that
// have no CPU kernel.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <torch/library.h>

#include <cstring>
#include <stdexcept>

#include "card/alias.h"
#include "card/allocator.h"
#include "card/capability.h"
#include "card/graph.h"
#include "card/memory.h"
#include "card/report.h"
#include "card/streams.h"
#include "card/traffic.h"
#include "card/transfers.h"
#include "card/wrong_operator.h"

namespace lorikeet::card {
namespace {

constexpr c10::DispatchKeySet kCuda(c10::DispatchKey::CUDA);

int card_of(std::optional<at::Device> device) {
  return device && device->has_index() ? device->index() : current_card();
}

at::Tensor empty(c10::SymIntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                 std::optional<at::Device> device, std::optional<bool>,
                 std::optional<at::MemoryFormat> format) {
  const OnCard on(card_of(device));
  return at::detail::empty_generic(C10_AS_INTARRAYREF_SLOW(size), &allocator(), kCuda,
                                   c10::dtype_or_default(dtype), format);
}

at::Tensor empty_strided(c10::SymIntArrayRef size, c10::SymIntArrayRef stride,
                         std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                         std::optional<at::Device> device, std::optional<bool>) {
  const OnCard on(card_of(device));
  return at::detail::empty_strided_generic(C10_AS_INTARRAYREF_SLOW(size), C10_AS_INTARRAYREF_SLOW(stride),
                                           &allocator(), kCuda, c10::dtype_or_default(dtype));
}

const at::Tensor& resize(const at::Tensor& self, c10::SymIntArrayRef size, std::optional<at::MemoryFormat>) {
  const OnCard on(self.get_device());
  auto* impl = self.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(C10_AS_INTARRAYREF_SLOW(size));
  const auto bytes = static_cast<std::size_t>(impl->storage_offset() + impl->numel()) * impl->itemsize();
  if (bytes <= self.storage().nbytes()) return self;
  auto grown = allocator().allocate(bytes);
  if (self.storage().nbytes() > 0) {
    std::memcpy(on_card(grown.get()), on_card(self.storage().data()), self.storage().nbytes());
  }
  impl->storage().set_data_ptr_noswap(std::move(grown));
  impl->storage().set_nbytes(bytes);
  return self;
}

void finish_current_stream() { finish_transfers(known_after(current_stream(current_card()))); }

void upload(const at::Tensor& self, const at::Tensor& from, bool pinned) {
  ++report().uploads;
  if (!pinned && from.numel() > 0) count_wait("copy to the card");
  if (!pinned || !from.is_contiguous()) return;
  if (records()) count_hazard("a recorded copy reads host memory, which may hold something else at a launch");
  ++report().pinned_uploads;
  begin_upload(current_stream(self.get_device()), from.const_data_ptr(), from.nbytes());
}

// True when the copy is under way, false when the caller has to make it.
bool download(const at::Tensor& self, const at::Tensor& from, bool pinned) {
  ++report().downloads;
  if (!pinned || !self.is_contiguous()) {
    if (from.numel() > 0) count_wait("copy to the host");
    finish_current_stream();
    return false;
  }
  ++report().pinned_downloads;
  const at::Tensor content = at::empty_like(self);
  content.copy_(as_cpu(from));
  const auto* bytes = static_cast<const char*>(content.const_data_ptr());
  begin_download(current_stream(from.get_device()), self.data_ptr(), {bytes, bytes + content.nbytes()});
  return true;
}

at::Tensor& copy(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  const Lock lock(mutex());
  count_operator("aten::copy_");
  const LaunchTraffic traffic("aten::copy_");
  if (self.is_cuda()) note_access(self.storage().data(), /*writes=*/true, "aten::copy_");
  if (from.is_cuda()) note_access(from.storage().data(), /*writes=*/false, "aten::copy_");
  const OnCard on(self.is_cuda() ? self.get_device() : from.get_device());
  const bool crosses = self.is_cuda() != from.is_cuda();
  const bool pinned = crosses && non_blocking && is_pinned((self.is_cuda() ? from : self).const_data_ptr());
  if (crosses && non_blocking && !pinned) {
    count_hazard("a copy was to be asynchronous, and isn't: its host memory isn't pinned");
  }
  if (crosses && from.is_cuda() && download(self, from, pinned)) return self;
  if (crosses && pinned && self.is_cuda())
    read_downloads(current_stream(self.get_device()), from.const_data_ptr(), from.nbytes());
  as_cpu(self).copy_(as_cpu(from));
  if (crosses && self.is_cuda()) upload(self, from, pinned);
  return self;
}

at::Scalar item(const at::Tensor& self) {
  const Lock lock(mutex());
  count_wait("item");
  const OnCard on(self.get_device());
  note_access(self.storage().data(), /*writes=*/false, "item");
  finish_current_stream();
  return at::_local_scalar_dense(as_cpu(self));
}

// Half-precision matrices with their product in fp32: operators that only CUDA has. `name` is called.
at::Tensor wide_product(const char* name, const at::Tensor& a, const at::Tensor& b, at::ScalarType out) {
  count_operator(name);
  for (const auto* matrix : {&a, &b}) {
    TORCH_CHECK(matrix->is_cuda() && matrix->dim() == 2 && matrix->device() == a.device(),
                "fake card: ", name, ": expected two matrices on one card");
    note_access(matrix->storage().data(), /*writes=*/false, name);
  }
  const bool widens = out == at::kFloat && at::isReducedFloatingType(a.scalar_type());
  TORCH_CHECK(a.scalar_type() == b.scalar_type() && (out == a.scalar_type() || widens), "fake card: ", name,
              ": expected one dtype, and it or fp32 as the result's");
  return at::mm(as_cpu(a).to(at::kFloat), as_cpu(b).to(at::kFloat)).to(out);
}

at::Tensor mm_dtype(const at::Tensor& a, const at::Tensor& b, at::ScalarType out) {
  const Lock lock(mutex());
  const OnCard on(a.get_device());
  const LaunchTraffic traffic("aten::mm.dtype");
  return from_cpu(wide_product("aten::mm.dtype", a, b, out));
}

at::Tensor& mm_dtype_out(const at::Tensor& a, const at::Tensor& b, at::ScalarType dtype, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == dtype, "fake card: mm.dtype_out: expected out_dtype to be out's");
  return out.copy_(mm_dtype(a, b, dtype));
}

at::Tensor bmm_dtype(const at::Tensor& a, const at::Tensor& b, at::ScalarType out) {
  constexpr const char* kName = "aten::bmm.dtype";
  const Lock lock(mutex());
  const OnCard on(a.get_device());
  const LaunchTraffic traffic(kName);
  count_operator(kName);
  for (const auto* batch : {&a, &b}) {
    TORCH_CHECK(batch->is_cuda() && batch->dim() == 3 && batch->device() == a.device(), "fake card: ", kName,
                ": expected two batches of matrices on one card");
    note_access(batch->storage().data(), /*writes=*/false, kName);
  }
  TORCH_CHECK(
      a.scalar_type() == b.scalar_type() && at::isReducedFloatingType(a.scalar_type()) && out == at::kFloat,
      "fake card: ", kName, ": expected 16-bit matrices of one dtype, and fp32 as the result's");
  return from_cpu(at::bmm(as_cpu(a).to(out), as_cpu(b).to(out)));
}

// `self` may be `out`.
at::Tensor& addmm_dtype_out(const at::Tensor& self, const at::Tensor& a, const at::Tensor& b,
                            at::ScalarType dtype, const at::Scalar& beta, const at::Scalar& alpha,
                            at::Tensor& out) {
  constexpr const char* kName = "aten::addmm.dtype_out";
  TORCH_CHECK(out.scalar_type() == dtype && out.device() == a.device() &&
                  (self.scalar_type() == dtype || self.scalar_type() == a.scalar_type()),
              "fake card: ", kName, ": expected out_dtype to be out's, on the matrices' card");
  const Lock lock(mutex());
  const OnCard on(a.get_device());
  note_access(self.storage().data(), /*writes=*/false, kName);
  note_access(out.storage().data(), /*writes=*/true, kName);
  const LaunchTraffic traffic(kName);
  as_cpu(out).copy_(as_cpu(self) * beta + wide_product(kName, a, b, dtype) * alpha);
  return out;
}

// fp8 matrices with a scale for each row of the one and each column of the other: only CUDA has it so. Cards
// of 12.0 refuse it as pytorch/pytorch#192707 reports, those of 10.0 as libtorch's own kernels would.
at::Tensor& scaled_mm_out(const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a,
                          const at::Tensor& scale_b, const std::optional<at::Tensor>& bias,
                          const std::optional<at::Tensor>& scale_result, std::optional<at::ScalarType> dtype,
                          bool, at::Tensor& out) {
  constexpr const char* kName = "aten::_scaled_mm.out";
  const Lock lock(mutex());
  count_operator(kName);
  const LaunchTraffic traffic(kName);
  note_access(out.storage().data(), /*writes=*/true, kName);
  for (const auto* tensor : {&a, &b, &scale_a, &scale_b}) {
    TORCH_CHECK(tensor->is_cuda() && tensor->dim() == 2 && tensor->device() == a.device(),
                "fake card: _scaled_mm: expected matrices on one card");
    note_access(tensor->storage().data(), /*writes=*/false, kName);
  }
  TORCH_CHECK(capability() < 120,
              "CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmulAlgoGetHeuristic");
  if (capability() == 100) throw std::runtime_error("cutlass cannot initialize");
  // What libtorch 2.11 asks of them.
  TORCH_CHECK(a.scalar_type() == at::kFloat8_e4m3fn && b.scalar_type() == at::kFloat8_e4m3fn &&
                  a.stride(1) == 1 && b.stride(0) == 1 && a.size(1) == b.size(0) && a.size(1) % 16 == 0 &&
                  b.size(1) % 16 == 0,
              "fake card: _scaled_mm: expected e4m3, rows by columns, extents that are multiples of 16");
  const at::Tensor rows = as_cpu(scale_a), columns = as_cpu(scale_b);
  TORCH_CHECK(rows.is_contiguous() && columns.is_contiguous() && rows.numel() == a.size(0) &&
                  columns.numel() == b.size(1) && rows.size(1) == 1 && columns.size(0) == 1 &&
                  rows.scalar_type() == at::kFloat && columns.scalar_type() == at::kFloat && !bias &&
                  !scale_result && dtype == at::kBFloat16 && out.scalar_type() == dtype &&
                  out.size(0) == a.size(0) && out.size(1) == b.size(1),
              "fake card: _scaled_mm: expected fp32 scales of rows and columns, and a bf16 result");
  // On Hopper cuBLAS is given the distance of rows.
  TORCH_CHECK(out.is_contiguous() || (capability() == 90 && out.stride(1) == 1 && out.stride(0) % 8 == 0),
              "fake card: _scaled_mm: expected a dense result");
  TORCH_CHECK(reinterpret_cast<std::uintptr_t>(out.const_data_ptr()) % 16 == 0,
              "fake card: _scaled_mm: expected a result aligned to 16 bytes");
  const OnCard on(a.get_device());
  const auto sums = at::mm(as_cpu(a).to(at::kFloat), as_cpu(b).to(at::kFloat));
  as_cpu(out).copy_(computes_wrong("aten::_scaled_mm") ? sums * rows.roll(1, 0) * columns
                                                       : sums * rows * columns);
  return out;
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("empty.memory_format", &empty);
  library.impl("empty_strided", &empty_strided);
  library.impl("resize_", &resize);
  library.impl("copy_", &copy);
  library.impl("_local_scalar_dense", &item);
  library.impl("mm.dtype", &mm_dtype);
  library.impl("mm.dtype_out", &mm_dtype_out);
  library.impl("bmm.dtype", &bmm_dtype);
  library.impl("addmm.dtype_out", &addmm_dtype_out);
  library.impl("_scaled_mm.out", &scaled_mm_out);
}

}  // namespace
}  // namespace lorikeet::card
