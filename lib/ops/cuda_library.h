#pragma once

#include <c10/core/Device.h>

namespace lorikeet::ops {

/// Loads the CUDA half of libtorch, libtorch_cuda.so, which the programs don't link: a process without a GPU
/// would spend 0.2 s and 350 MB on it. Has to come before all else that concerns a GPU: libtorch remembers
/// that it had no CUDA when it was first asked. Does nothing where CUDA's device type is taken already.
/// Throws Error (kEnvironment) when the library can't be loaded.
void load_cuda_library();

/// The device cuda:`index`, with what libtorch needs for it loaded.
at::Device cuda_device(int index);

/// The same, made this thread's current device. A process that works with one GPU calls it before it uses the
/// GPU's memory: with another one current, an event's record has CUDA make a context there too, of some
/// 0.4 GB. Throws as load_cuda_library, and c10::Error where there is no such GPU.
at::Device use_cuda_device(int index);

}  // namespace lorikeet::ops
