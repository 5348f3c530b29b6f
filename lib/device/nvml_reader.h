#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "device/inventory.h"
#include "device/nvml.h"

namespace lorikeet::device::nvml {

/// Reads one device's fields: a call that fails leaves its reason in `untold`, and once the device is lost,
/// no more calls are made.
class Reader {
 public:
  Reader(const Session& session, Handle handle, std::vector<Untold>& untold)
      : session_(session), handle_(handle), untold_(untold) {}

  const Calls& calls() const { return session_.calls(); }
  /// What the driver said when the device was lost, or empty.
  const std::optional<std::string>& lost() const { return lost_; }

  /// The code of a call on this device, kGpuIsLost without calling once it was lost.
  template <typename Call, typename... Arguments>
  int quiet(const Call& call, Arguments... arguments) {
    if (lost_) return kGpuIsLost;
    const int code = Session::status(call, handle_, arguments...);
    if (code == kGpuIsLost || code == kResetRequired) lost_ = session_.reason(code);
    return code;
  }

  void note(const char* field, int code) { untold_.push_back({field, session_.reason(code)}); }

  /// True if the call succeeded.
  template <typename Call, typename... Arguments>
  bool read(const char* field, const Call& call, Arguments... arguments) {
    const int code = quiet(call, arguments...);
    if (code != kSuccess) note(field, code);
    return code == kSuccess;
  }

  /// A number that the call writes to its last argument.
  template <typename Call, typename... Arguments>
  std::optional<unsigned> number(const char* field, const Call& call, Arguments... arguments) {
    unsigned value = 0;
    return read(field, call, arguments..., &value) ? std::optional(value) : std::nullopt;
  }

  std::optional<std::string> text(const char* field, const Calls::ReadText& call) {
    std::array<char, 128> value{};  // the last byte stays 0 whatever the library writes
    if (!read(field, call, value.data(), static_cast<unsigned>(value.size() - 1))) return std::nullopt;
    return std::string(value.data());
  }

 private:
  const Session& session_;
  Handle handle_;
  std::vector<Untold>& untold_;
  std::optional<std::string> lost_;
};

}  // namespace lorikeet::device::nvml
