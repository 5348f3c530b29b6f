#pragma once

#include <string>
#include <vector>

namespace lorikeet::probe {

/// What this build can run on.
struct BuildFacts {
  int cuda = 0;  ///< CUDA version of libtorch and our kernels: 13000 is 13.0; 0 without CUDA
  std::vector<std::string> architectures;  ///< our kernels', in CMake's notation: "80-real", "90a"
};

BuildFacts build_facts();

/// "13.0" for 13000.
std::string cuda_version_text(int version);

/// Whether kernels compiled for `architecture` run on compute capability major.minor. Machine code runs on
/// the same major version and the same or a later minor one, with the letter a on exactly that version; PTX
/// (all but "-real") runs on any later version. Source: CUDA programming guide, binary and PTX compatibility.
/// False when `architecture` is malformed.
bool runs_on(const std::string& architecture, int major, int minor);

}  // namespace lorikeet::probe
