#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

// The part of NVIDIA's management library (NVML) that an inventory needs, declared here because its header is
// only there where a toolkit is. Source: the NVML API reference; names, numbers and layouts are its ABI,
// which the driver keeps from version to version (a changed function gets a new _vN name).
namespace lorikeet::device::nvml {

using Handle = void*;

// Return codes that are told apart; all others are failures with the library's own text.
constexpr int kSuccess = 0;
constexpr int kInvalidArgument = 2;
constexpr int kNotSupported = 3;
constexpr int kNoPermission = 4;
constexpr int kInsufficientSize = 7;
constexpr int kFunctionNotFound = 13;
constexpr int kGpuIsLost = 15;
constexpr int kResetRequired = 16;

constexpr unsigned kMostNvLinks = 18;  ///< links of one GPU

struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];  ///< "00000000:41:00.0"
};

struct Memory {
  unsigned long long total_bytes, free_bytes, used_bytes;  ///< in use: without what the driver reserves
};

struct Process {
  unsigned pid;
  unsigned long long used_bytes;  ///< all ones where the driver doesn't tell
  unsigned gpu_instance, compute_instance;
};

/// The entry points, with NVML's own arguments. A member is empty where the driver's library lacks it. A test
/// hands in a table of its own.
struct Calls {
  template <typename... Arguments>
  using Call = std::function<int(Arguments...)>;
  using ReadNumber = Call<Handle, unsigned*>;
  using ReadText = Call<Handle, char*, unsigned>;

  Call<> init, shutdown;
  std::function<const char*(int)> error_string;
  Call<char*, unsigned> driver_version;
  Call<unsigned, char*, unsigned> process_name;

  Call<unsigned*> count;
  Call<unsigned, Handle*> handle_by_index;
  ReadText name, uuid;
  Call<Handle, PciInfo*> pci_info;
  Call<Handle, Memory*> memory;
  Call<Handle, unsigned*, Process*> compute_processes, graphics_processes;
  Call<Handle, int*, int*> compute_capability;
  /// Bit sets of so many words; the last argument of memory_affinity is the scope (0: the NUMA node).
  Call<Handle, unsigned, unsigned long*> cpu_affinity;
  Call<Handle, unsigned, unsigned long*, unsigned> memory_affinity;
  ReadNumber link_width, link_width_max, link_generation, link_generation_max;
  Call<Handle, unsigned*, unsigned*> mig_mode;  ///< current, pending
  ReadNumber mig_count_max;
  Call<Handle, unsigned, Handle*> mig_handle;
  Call<Handle, unsigned*, unsigned*> ecc_mode;  ///< current, pending
  /// Kind: 0 corrected, 1 uncorrected; counter: 0 since the driver was loaded, 1 of the card's life.
  Call<Handle, unsigned, unsigned, unsigned long long*> ecc_errors;
  Call<Handle, unsigned long long*> throttle_reasons;
  Call<Handle, unsigned, unsigned*> nvlink_state, nvlink_version, nvlink_remote_type;
  Call<Handle, unsigned, unsigned, unsigned*> nvlink_capability;  ///< 0: peer access
  Call<Handle, unsigned, PciInfo*> nvlink_remote;
  Call<Handle, Handle, unsigned*> common_ancestor;       ///< 0, 10, ... 50
  Call<Handle, Handle, unsigned, unsigned*> p2p_status;  ///< capability: 0 read, 1 write; status 0 is "can"
};

/// The driver's table, or nullopt with `why` set ("there is no NVIDIA driver: libnvidia-ml.so.1 ..."). The
/// library stays loaded.
std::optional<Calls> load(std::string& why);

/// NVML between its init and its shutdown.
class Session {
 public:
  /// Initialises NVML; nullptr with `why` set when the library refuses (no driver loaded, no permission).
  static std::unique_ptr<Session> open(Calls calls, std::string& why);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  const Calls& calls() const { return calls_; }
  /// The library's text for a return code: "Not Supported (NVML error 3)".
  std::string reason(int code) const;
  /// Calls `call` with `arguments`, kFunctionNotFound where the driver lacks it.
  template <typename... Parameters, typename... Arguments>
  static int status(const Calls::Call<Parameters...>& call, Arguments... arguments) {
    return call ? call(arguments...) : kFunctionNotFound;
  }

 private:
  explicit Session(Calls calls) : calls_(std::move(calls)) {}
  Calls calls_;
};

/// This machine's NVML, or nullptr with `why` set.
std::unique_ptr<Session> open_driver(std::string& why);

}  // namespace lorikeet::device::nvml
