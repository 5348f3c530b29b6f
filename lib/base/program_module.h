#pragma once

#include <string>

namespace lorikeet {

/// The address of the function `name` of `file`, a shared library beside the program that is loaded for it,
/// and stays. Throws Error (kEnvironment), which begins with `needed`, where there is no such library or
/// function.
void* function_beside_program(const std::string& file, const char* name, const std::string& needed);

}  // namespace lorikeet
