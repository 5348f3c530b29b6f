#include "card/alias.h"

#include <ATen/ATen.h>

#include <cstring>

#include "card/allocator.h"
#include "card/memory.h"

namespace lorikeet::card {
namespace {

at::Tensor wrap(at::Storage storage, const at::Tensor& like, at::DeviceType device) {
  const c10::DispatchKeySet keys(device == at::kCUDA ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU);
  auto out = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, like.dtype());
  auto* impl = out.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return out;
}

at::Storage card_storage(const at::Storage& content) {
  const std::size_t bytes = content.nbytes();
  at::Storage storage(at::Storage::use_byte_size_t(), static_cast<std::int64_t>(bytes),
                      allocator().allocate(bytes), &allocator(), /*resizable=*/true);
  std::memcpy(on_card(storage.data()), content.data(), bytes);
  note_access(storage.data(), /*writes=*/true, "a new tensor");
  return storage;
}

bool shares_memory(const at::Tensor& input, const at::Tensor& result) {
  return input.is_cuda() && result.storage().data() != nullptr &&
         on_card(input.storage().data()) == result.storage().data();
}

}  // namespace

at::Tensor as_cpu(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  // Resizable, since kernels with an out argument resize it.
  at::Storage storage(at::Storage::use_byte_size_t(), static_cast<std::int64_t>(tensor.storage().nbytes()),
                      at::DataPtr(on_card(tensor.storage().data()), at::kCPU), c10::GetAllocator(at::kCPU),
                      /*resizable=*/true);
  return wrap(std::move(storage), tensor, at::kCPU);
}

at::Tensor unowned(const at::Tensor& tensor) {
  at::Storage storage(at::Storage::use_byte_size_t(), static_cast<std::int64_t>(tensor.storage().nbytes()),
                      at::DataPtr(tensor.storage().mutable_data(), tensor.device()), &allocator(),
                      /*resizable=*/true);
  return wrap(std::move(storage), tensor, at::kCUDA);
}

at::Tensor from_cpu(const at::Tensor& result, const std::vector<at::Tensor>& inputs) {
  if (!result.defined()) return result;
  for (const at::Tensor& input : inputs) {
    if (shares_memory(input, result)) return wrap(input.storage(), result, at::kCUDA);
  }
  return wrap(card_storage(result.storage()), result, at::kCUDA);
}

void take_result(const at::Tensor& tensor, const at::Tensor& alias) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!shares_memory(tensor, alias)) {
    impl->storage().set_data_ptr_noswap(allocator().allocate(alias.storage().nbytes()));
    impl->storage().set_nbytes(alias.storage().nbytes());
    std::memcpy(on_card(tensor.storage().data()), alias.storage().data(), alias.storage().nbytes());
  }
  if (alias.sizes() != tensor.sizes() || alias.strides() != tensor.strides()) {
    impl->set_sizes_and_strides(alias.sizes(), alias.strides(), alias.storage_offset());
  }
}

}  // namespace lorikeet::card
