#pragma once

#include <string_view>

namespace lorikeet {

/// Writes one line to stderr at once (stdout carries only a verb's result).
/// Control characters of `message` other than tab and newline are escaped when stderr is a terminal,
/// so that text from models, data or file names can't drive it.
void log_info(std::string_view message);

/// The same with "warning: " in front.
void log_warning(std::string_view message);

/// The same with "error: " in front; not silenced.
void log_error(std::string_view message);

/// Silences log_info and log_warning, for the ranks of a run that would only repeat the first one's.
void silence_log();

}  // namespace lorikeet
