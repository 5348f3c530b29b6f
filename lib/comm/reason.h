#pragma once

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <string_view>

namespace lorikeet::comm {

/// The first line of an exception's message, without the stack trace that libtorch adds, and what NCCL calls
/// its last error, where the message has one.
inline std::string reason(const std::exception& error) {
  const auto* of_libtorch = dynamic_cast<const c10::Error*>(&error);
  const std::string text = of_libtorch != nullptr ? of_libtorch->what_without_backtrace() : error.what();
  const auto line_from = [&](std::size_t begin) {
    return text.substr(begin, text.find('\n', begin) - begin);
  };
  constexpr std::string_view kLastError = "\nLast error:\n";
  const std::size_t last_error = text.find(kLastError);
  if (last_error == std::string::npos) return line_from(0);
  return line_from(0) + ": " + line_from(last_error + kLastError.size());
}

/// Whether NCCL found no memory on the card for its buffers, which it takes with the first collective. The
/// message is the last that NCCL logged (its src/include/alloc.h): the driver's, or that of the allocation.
inline bool is_nccl_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const c10::DistBackendError*>(&error) == nullptr) return false;
  const std::string_view text = error.what();
  for (const char* allocation : {"Failed to CUDA malloc", "Failed to CUDA calloc"})
    if (text.find(allocation) != std::string_view::npos) return true;
  const std::size_t failure = text.find("Cuda failure ");
  return failure != std::string_view::npos && text.find("'out of memory'", failure) != std::string_view::npos;
}

}  // namespace lorikeet::comm
