#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/json.h"

namespace lorikeet::train {

/// A TensorBoard event file: the numbers of metrics.jsonl's lines as scalars. It is a view, and metrics.jsonl
/// the record: when it can't be made or written to, one warning says so, and the run goes on without it.
class EventFile {
 public:
  /// Makes a new file in `folder`, which TensorBoard reads after those that are there, and from which it
  /// learns that their events from `first_step` on are no longer valid.
  EventFile(const std::filesystem::path& folder, std::int64_t first_step);

  /// Appends the line's numbers as one event of its "step", to be seen at once. A number that isn't finite
  /// becomes NaN; what has no value (null) is left out.
  void write(const Json& line);

  /// True for the name of such a file.
  static bool is_name(std::string_view name);

  /// Removes those in `folder`.
  static void remove_all(const std::filesystem::path& folder);

 private:
  void append(const std::string& message);
  void give_up(const char* action, int reason);

  std::filesystem::path path_;
  UniqueFd fd_;  // none once writing failed
  std::int64_t size_ = 0;
};

/// The name of a field of metrics.jsonl in TensorBoard, which shows what has one prefix together:
/// "train/loss", "validation/loss", "time/step_seconds".
std::string event_tag(std::string_view field);

}  // namespace lorikeet::train
