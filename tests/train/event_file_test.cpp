#include "train/event_file.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "support/captured_stderr.h"
#include "support/catch.h"
#include "support/paths.h"
#include "train/metrics.h"

using namespace lorikeet;
using namespace lorikeet::train;
using Catch::Contains;

namespace {

// A reader of its own, by the definitions of TFRecord, protobuf and CRC-32C alone.

std::uint32_t bitwise_crc32c(std::string_view bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? (crc >> 1) ^ 0x82F63B78 : crc >> 1;
  }
  return crc ^ 0xFFFFFFFF;
}

std::uint32_t masked(std::string_view bytes) {
  const std::uint32_t crc = bitwise_crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8;
}

template <typename T>
T take(std::string_view& bytes) {
  REQUIRE(bytes.size() >= sizeof(T));
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return value;
}

std::string_view take_bytes(std::string_view& bytes, std::size_t size) {
  REQUIRE(bytes.size() >= size);
  const std::string_view out = bytes.substr(0, size);
  bytes.remove_prefix(size);
  return out;
}

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = take<unsigned char>(bytes);
    value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
}

struct Field {
  std::uint64_t number = 0, varint = 0;
  std::string_view bytes;  // of a wire type with a length, or of a fixed size
};

std::vector<Field> fields_of(std::string_view message) {
  std::vector<Field> fields;
  while (!message.empty()) {
    const std::uint64_t key = take_varint(message);
    Field field{.number = key >> 3};
    switch (key & 7) {
      case 0: field.varint = take_varint(message); break;
      case 1: field.bytes = take_bytes(message, 8); break;
      case 2: field.bytes = take_bytes(message, take_varint(message)); break;
      case 5: field.bytes = take_bytes(message, 4); break;
      default: FAIL("wire type");
    }
    fields.push_back(field);
  }
  return fields;
}

struct Event {
  double wall_time = 0;
  std::uint64_t step = 0;
  std::string version;
  std::uint64_t session_status = 0;
  std::map<std::string, float> scalars;
};

void read_scalar(Event& event, std::string_view value) {
  std::string tag;
  float number = 0;
  for (const Field& field : fields_of(value)) {
    if (field.number == 1) tag = field.bytes;
    if (field.number == 2) std::memcpy(&number, field.bytes.data(), sizeof(number));
  }
  CHECK(event.scalars.emplace(tag, number).second);
}

Event read_event(std::string_view data) {
  Event event;
  for (const Field& field : fields_of(data)) {
    if (field.number == 1) std::memcpy(&event.wall_time, field.bytes.data(), sizeof(double));
    if (field.number == 2) event.step = field.varint;
    if (field.number == 3) event.version = field.bytes;
    if (field.number == 5)
      for (const Field& value : fields_of(field.bytes)) read_scalar(event, value.bytes);
    if (field.number == 7)
      for (const Field& status : fields_of(field.bytes)) event.session_status = status.varint;
  }
  return event;
}

std::vector<Event> read_events(const std::filesystem::path& file) {
  const std::string text = read_file(file);
  std::string_view rest = text;
  std::vector<Event> events;
  while (!rest.empty()) {
    const std::string_view length_bytes = rest.substr(0, 8);
    const auto length = take<std::uint64_t>(rest);
    CHECK(take<std::uint32_t>(rest) == masked(length_bytes));
    const std::string_view data = take_bytes(rest, length);
    CHECK(take<std::uint32_t>(rest) == masked(data));
    events.push_back(read_event(data));
  }
  return events;
}

// In the order in which TensorBoard reads them.
std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().filename().string().find("tfevents") != std::string::npos) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE("an event file has its version, the start of a session, and a line's numbers as scalars") {
  const test::TemporaryFolder folder;
  EventFile file(folder / ".", 1);
  file.write(Json()
                 .set("step", 300)
                 .set("loss", 1.5)
                 .set("tokens", 4096)
                 .set("step_seconds", 0.25)
                 .set("comm_bytes_by_collective", Json().set("all_reduce", 8.0)));
  REQUIRE(files_in(folder / ".").size() == 1);
  const auto events = read_events(files_in(folder / ".")[0]);
  REQUIRE(events.size() == 3);
  CHECK(events[0].version == "brain.Event:2");
  CHECK(events[0].scalars.empty());
  CHECK(events[1].session_status == 1);
  CHECK(events[1].step == 1);
  CHECK(events[2].step == 300);
  CHECK(events[2].wall_time > 1.7e9);
  CHECK(events[2].scalars == std::map<std::string, float>{{"train/loss", 1.5F},
                                                          {"train/tokens", 4096},
                                                          {"time/step_seconds", 0.25F},
                                                          {"comm/comm_bytes_by_collective/all_reduce", 8}});
}

TEST_CASE("a number that isn't finite is NaN, one that isn't known isn't there") {
  const test::TemporaryFolder folder;
  EventFile file(folder / ".", 1);
  const double infinity = std::numeric_limits<double>::infinity();
  file.write(Json().set("step", 1).set("grad_norm", infinity).set("loss", std::nan("")).set("mfu", nullptr));
  const auto scalars = read_events(files_in(folder / ".")[0]).back().scalars;
  CHECK(scalars.size() == 2);
  CHECK(std::isnan(scalars.at("train/grad_norm")));
  CHECK(std::isnan(scalars.at("train/loss")));
}

TEST_CASE("fields are grouped by what they measure") {
  const auto [field, tag] = GENERATE(table<std::string, std::string>({
      {"loss", "train/loss"},
      {"lr", "train/lr"},
      {"label_tokens", "train/label_tokens"},
      {"val_loss", "validation/loss"},
      {"comm_seconds", "time/comm_seconds"},
      {"slowest_rank_seconds", "time/slowest_rank_seconds"},
      {"tokens_per_second_per_device", "speed/tokens_per_second_per_device"},
      {"tflops_per_device", "speed/tflops_per_device"},
      {"mfu", "speed/mfu"},
      {"memory_peak_bytes", "memory/memory_peak_bytes"},
      {"comm_share", "comm/comm_share"},
  }));
  CHECK(event_tag(field) == tag);
}

TEST_CASE("lines of metrics.jsonl are events where TensorBoard is asked for, also those of a resumed run") {
  const test::TemporaryFolder folder;
  const auto write = [&](std::int64_t kept, std::int64_t first, std::int64_t last) {
    MetricsWriter writer(folder / "metrics.jsonl", kept);
    writer.show_in_tensorboard();
    for (std::int64_t step = first; step <= last; ++step) writer.write(StepMetrics{.step = step}.json());
  };
  write(0, 1, 4);
  write(2, 3, 3);  // within the same second
  const auto files = files_in(folder / ".");
  REQUIRE(files.size() == 2);
  const auto first = read_events(files[0]), second = read_events(files[1]);
  CHECK(first.size() == 6);
  CHECK(first.back().step == 4);
  REQUIRE(second.size() == 3);
  CHECK(second[1].session_status == 1);
  CHECK(second[1].step == 3);
  CHECK(second[2].step == 3);
  // Each number of the line is a scalar.
  const Json line = StepMetrics{}.json();
  std::size_t numbers = 0;
  for (const auto& [key, value] : line.object()) numbers += value.is_number() ? 1 : 0;
  CHECK(second[2].scalars.size() == numbers - 1);  // its step is the event's
}

TEST_CASE("without being asked for there is no event file") {
  const test::TemporaryFolder folder;
  MetricsWriter(folder / "metrics.jsonl", 0).write(StepMetrics{.step = 1}.json());
  CHECK(files_in(folder / ".").empty());
}

TEST_CASE("our event files are known by their names and removed, those of others stay") {
  const test::TemporaryFolder folder;
  const std::string others = "events.out.tfevents.1700000000.host.1.0";
  write_file_atomic(folder / others, "x");
  write_file_atomic(folder / "events.out.tfevents.9999999998.lorikeet", "x");
  const EventFile file(folder / ".", 1);
  const auto files = files_in(folder / ".");
  REQUIRE(files.size() == 3);
  CHECK(files.back().filename() == "events.out.tfevents.9999999999.lorikeet");  // behind one of the future
  CHECK(EventFile::is_name(files.back().filename().string()));
  CHECK_FALSE(EventFile::is_name(others));
  CHECK_FALSE(EventFile::is_name("events.out.tfevents.lorikeet"));
  CHECK_FALSE(EventFile::is_name("events.out.tfevents..lorikeet"));
  CHECK_FALSE(EventFile::is_name("events.out.tfevents.1x.lorikeet"));
  EventFile::remove_all(folder / ".");
  REQUIRE(files_in(folder / ".").size() == 1);
  CHECK(files_in(folder / ".")[0].filename() == others);
}

TEST_CASE("an event file that can't be made is warned of once") {
  const test::TemporaryFolder folder;
  const test::CapturedStderr captured;
  EventFile file(folder / "absent", 1);
  file.write(Json().set("step", 1).set("loss", 1.0));
  const std::string text = captured.text();
  CHECK_THAT(text, Contains("warning: [metrics.tensorboard] can't make '") &&
                       Contains("No such file or directory") && Contains("the run goes on"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 1);
}

TEST_CASE("a disk that fills ends the events, whole up to there, with one warning, and not the metrics") {
  const test::TemporaryFolder folder;
  const pid_t pid = fork();
  if (pid == 0) {  // a limit on file sizes stands in for a full disk
    signal(SIGXFSZ, SIG_IGN);
    const test::CapturedStderr captured;
    MetricsWriter writer(folder / "metrics.jsonl", 0);
    writer.show_in_tensorboard();
    const rlimit limit{600, 600};  // of which the lines and the warning need less than the events
    setrlimit(RLIMIT_FSIZE, &limit);
    for (std::int64_t step = 1; step <= 20; ++step) writer.write(Json().set("step", step).set("loss", 1.0));
    const std::string text = captured.text();
    const bool once = std::count(text.begin(), text.end(), '\n') == 1;
    _exit(once && text.find("File too large") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  CHECK(status == 0);
  const std::string lines = read_file(folder / "metrics.jsonl");
  CHECK(std::count(lines.begin(), lines.end(), '\n') == 20);
  const auto events = read_events(files_in(folder / ".")[0]);
  CHECK(events.size() > 2);
  CHECK(events.size() < 22);
}
