#include "base/program_module.h"

#include <dlfcn.h>

#include "base/error.h"

namespace lorikeet {

void* function_beside_program(const std::string& file, const char* name, const std::string& needed) {
  // The dynamic linker puts the program's folder in the place of $ORIGIN.
  void* library = dlopen(("$ORIGIN/" + file).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* function = library != nullptr ? dlsym(library, name) : nullptr;
  if (function == nullptr) throw Error(needed + ": " + dlerror(), ErrorKind::kEnvironment);
  return function;
}

}  // namespace lorikeet
