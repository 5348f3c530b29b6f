// cuda_operators LIBRARY LIST: whether each ATen operator of the file LIST, one name a line, has a kernel for
// CUDA. Loads libtorch_cuda from the path LIBRARY; needs no GPU. Looks at operators, not at the dtypes that
// their kernels take. Prints those without one. Exit code 1 when there are any, 77 when the library can't be
// loaded.
#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <string>

namespace {

constexpr int kSkipped = 77;

bool has_cuda_kernel(const c10::OperatorHandle& op) {
  for (const auto key : {c10::DispatchKey::CUDA, c10::DispatchKey::CompositeExplicitAutograd,
                         c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
                         c10::DispatchKey::CompositeImplicitAutograd}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

// What is wrong with the operator, or nothing. `full_name` is aten::name or aten::name.overload.
std::string trouble_with(const std::string& full_name) {
  const auto dot = full_name.find('.');
  const std::string overload = dot == std::string::npos ? "" : full_name.substr(dot + 1);
  const auto op = c10::Dispatcher::singleton().findSchema({full_name.substr(0, dot), overload});
  if (!op) return "no such operator";
  return has_cuda_kernel(*op) ? "" : "no kernel for CUDA";
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 3) {
    std::fputs("usage: cuda_operators LIBRARY LIST\n", stderr);
    return 2;
  }
  if (dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    std::printf("skipped: %s\n", dlerror());
    return kSkipped;
  }
  int operators = 0, without = 0;
  std::ifstream list(arguments[2]);
  for (std::string name; std::getline(list, name);) {
    ++operators;
    const std::string trouble = trouble_with(name);
    if (trouble.empty()) continue;
    ++without;
    std::printf("%s: %s\n", name.c_str(), trouble.c_str());
  }
  std::printf("%d operators, %d without a kernel for CUDA\n", operators, without);
  return without == 0 && operators > 0 ? 0 : 1;
}
