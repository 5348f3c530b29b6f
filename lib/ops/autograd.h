#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace lorikeet::ops {

/// While one lives, this thread's calls of libtorch's operators skip its autograd: a pass needs none, since
/// its backward is written down, and half of the host's time for a call goes there
/// (benchmarks/results/host.md). Gradients of tensors that require one are lost without a word; WithAutograd
/// is the way back. Not c10::InferenceMode: reference_backward couldn't differentiate its tensors.
class WithoutAutograd {
 private:
  at::AutoDispatchBelowADInplaceOrView below_;
};

/// While one lives, this thread's calls of operators go through autograd, also inside of a WithoutAutograd.
class WithAutograd {
 public:
  WithAutograd() : WithAutograd(c10::impl::tls_local_dispatch_key_set()) {}

 private:
  explicit WithAutograd(const c10::impl::LocalDispatchKeySet& now)
      : keys_(now.included_, now.excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

  c10::impl::ForceDispatchKeyGuard keys_;
};

}  // namespace lorikeet::ops
