#pragma once

#include <string>
#include <vector>

namespace lorikeet::probe {

/// What this build can run on.
struct BuildFacts {
  int cuda = 0;  ///< of libtorch and of our kernels: 13000 is 13.0; 0 for a build without
  std::vector<std::string> architectures;  ///< of our kernels, as CMake has them: "80-real", "90a"
};

BuildFacts build_facts();

/// "13.0" for 13000.
std::string cuda_version_text(int version);

/// Whether kernels compiled for `architecture` run on compute capability major.minor: machine code does on
/// the same major version and no lower minor one, or with the letter a on that very one; PTX (all but
/// "-real") on any later one. Source: CUDA programming guide, binary and PTX compatibility. False for what
/// isn't one.
bool runs_on(const std::string& architecture, int major, int minor);

}  // namespace lorikeet::probe
