#include "train/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <system_error>
#include <vector>

#include "base/crc32c.h"
#include "base/log.h"
#include "base/strings.h"
#include "base/write_all.h"

// Sources of the format:
// - records: tensorflow/core/lib/io/record_writer.h (TFRecord), the masked checksum in lib/hash/crc32c.h;
// - messages: tensorflow/core/util/event.proto and framework/summary.proto, in the encoding of
//   https://protobuf.dev/programming-guides/encoding/;
// - what a reader does with names, file_version and SessionLog: tensorboard/backend/event_processing/
//   event_accumulator.py and directory_watcher.py.
namespace lorikeet::train {
namespace {

// TensorBoard reads all files with "tfevents" in their names, in the names' order: the time in seconds stands
// first. The ending is ours, so that other programs' files are never removed.
constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr std::string_view kEnding = ".lorikeet";
constexpr std::size_t kDigits = 10;  // of the time, with leading zeros

// Numbers of the messages' fields.
namespace event {
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr int kValue = 1;
}
namespace value {
constexpr int kTag = 1, kSimpleValue = 2;
}
namespace session_log {
constexpr int kStatus = 1;
constexpr std::uint64_t kStart = 1;  // SessionStatus.START
}  // namespace session_log

std::string little_endian(std::uint64_t number, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>((number >> (8 * i)) & 0xFF);
  return out;
}

// A message of protobuf, field after field.
class Message {
 public:
  Message& varint(int field, std::uint64_t number) {
    put_key(field, 0);
    put_varint(number);
    return *this;
  }
  Message& fixed64(int field, double number) {
    put_key(field, 1);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(number), 8);
    return *this;
  }
  Message& fixed32(int field, float number) {
    put_key(field, 5);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(number), 4);
    return *this;
  }
  // A string, or another message.
  Message& bytes(int field, std::string_view content) {
    put_key(field, 2);
    put_varint(content.size());
    bytes_ += content;
    return *this;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void put_key(int field, int wire_type) {
    put_varint((static_cast<std::uint64_t>(field) << 3) | static_cast<std::uint64_t>(wire_type));
  }
  void put_varint(std::uint64_t number) {
    for (; number >= 0x80; number >>= 7) bytes_ += static_cast<char>((number & 0x7F) | 0x80);
    bytes_ += static_cast<char>(number);
  }

  std::string bytes_;
};

std::string masked_checksum(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return little_endian(static_cast<std::uint32_t>(std::rotr(crc, 15) + 0xA282EAD8U), 4);
}

std::string record(const std::string& data) {
  const std::string length = little_endian(data.size(), 8);
  return length + masked_checksum(length) + data + masked_checksum(data);
}

Message event_at(std::int64_t step) {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  return Message()
      .fixed64(event::kWallTime, now.count())
      .varint(event::kStep, static_cast<std::uint64_t>(step));
}

void add_scalar(Message& scalars, const std::string& tag, double number) {
  const float shown =
      std::isfinite(number) ? static_cast<float>(number) : std::numeric_limits<float>::quiet_NaN();
  scalars.bytes(summary::kValue,
                Message().bytes(value::kTag, tag).fixed32(value::kSimpleValue, shown).bytes());
}

// The seconds in a file's name; nothing for another program's.
std::optional<std::int64_t> seconds_of(std::string_view name) {
  if (!name.starts_with(kPrefix) || !name.ends_with(kEnding)) return std::nullopt;
  if (name.size() <= kPrefix.size() + kEnding.size()) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size(), name.size() - kPrefix.size() - kEnding.size());
  std::int64_t seconds = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  if (error != std::errc() || end != digits.data() + digits.size() || seconds < 0) return std::nullopt;
  return seconds;
}

std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (seconds_of(entry.path().filename().string())) files.push_back(entry.path());
  }
  return files;
}

// Behind all that are there, even where two runs began within a second or the clock was set back.
std::string next_name(const std::filesystem::path& folder) {
  std::int64_t seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  for (const auto& file : files_in(folder))
    seconds = std::max(seconds, *seconds_of(file.filename().string()) + 1);
  std::string digits = std::to_string(seconds);
  digits.insert(0, kDigits - std::min(kDigits, digits.size()), '0');
  return std::string(kPrefix) + digits + std::string(kEnding);
}

}  // namespace

std::string event_tag(std::string_view field) {
  static constexpr std::string_view kValidation = "val_";
  if (field.starts_with(kValidation)) return "validation/" + std::string(field.substr(kValidation.size()));
  const char* group = "train/";
  if (field.ends_with("_seconds")) {
    group = "time/";
  } else if (field.find("_per_") != std::string_view::npos || field == "mfu") {
    group = "speed/";
  } else if (field.starts_with("memory_")) {
    group = "memory/";
  } else if (field.starts_with("comm_")) {
    group = "comm/";
  }
  return group + std::string(field);
}

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t first_step)
    : path_(folder / next_name(folder)),
      fd_(::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) {
  if (!fd_) {
    give_up("make", errno);
    return;
  }
  append(event_at(first_step).bytes(event::kFileVersion, "brain.Event:2").bytes());
  const Message start = Message().varint(session_log::kStatus, session_log::kStart);
  append(event_at(first_step).bytes(event::kSessionLog, start.bytes()).bytes());
}

void EventFile::write(const Json& line) {
  if (!fd_) return;
  Message scalars;
  for (const auto& [field, number] : line.object()) {
    if (field == "step") continue;
    if (number.is_number()) add_scalar(scalars, event_tag(field), number.number());
    if (!number.is_object()) continue;
    for (const auto& [part, of_part] : number.object())
      add_scalar(scalars, event_tag(field) + "/" + part, of_part.number());
  }
  append(event_at(line.find("step")->integer()).bytes(event::kSummary, scalars.bytes()).bytes());
}

void EventFile::append(const std::string& message) {
  if (!fd_) return;
  const std::string bytes = record(message);
  if (const int reason = write_all(fd_.get(), bytes)) return give_up("write to", reason);
  size_ += static_cast<std::int64_t>(bytes.size());
}

void EventFile::give_up(const char* action, int reason) {
  // A reader waits for the rest of half a record, but no longer than until there is a later file.
  if (fd_ && ::ftruncate(fd_.get(), size_) != 0) reason = errno;
  fd_ = UniqueFd();
  log_warning("[metrics.tensorboard] can't " + std::string(action) + " '" + escape_control(path_.string()) +
              "': " + std::strerror(reason) +
              "; the run goes on without events for TensorBoard, metrics.jsonl has every step");
}

bool EventFile::is_name(std::string_view name) { return seconds_of(name).has_value(); }

void EventFile::remove_all(const std::filesystem::path& folder) {
  for (const auto& file : files_in(folder)) std::filesystem::remove(file);
}

}  // namespace lorikeet::train
