#pragma once

#include <string_view>

namespace lorikeet {

/// Writes one line to stderr at once (stdout carries only a verb's result).
/// Control characters of `message` other than tab and newline are escaped when stderr is a terminal,
/// so that text from models, data or file names can't drive it.
void log_info(std::string_view message);

/// The same with "warning: " in front.
void log_warning(std::string_view message);

}  // namespace lorikeet
