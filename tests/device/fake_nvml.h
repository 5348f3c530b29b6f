#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/nvml.h"

namespace lorikeet::test {

/// A card of the fake driver. `fails` gives calls by the name of their member in nvml::Calls an error code.
struct FakeCard {
  std::string name = "NVIDIA Test 100", uuid = "GPU-0000";
  unsigned bus = 1;
  unsigned long long total = 80'000'000'000, used = 1'000'000'000;
  std::vector<device::nvml::Process> processes;
  unsigned width = 16, width_max = 16, generation = 1, generation_max = 4;
  unsigned long cpus = 0xf, nodes = 0x1;
  std::vector<unsigned> nvlink_peers;  ///< bus of the GPU each link ends in; 0 is a switch
  unsigned nvlink_switch_type = 2;     ///< what a link to a switch says that it ends in
  unsigned nvlink_version = 4;
  bool mig = false;
  std::vector<std::string> slices;  ///< UUIDs
  unsigned long long throttle = 0, ecc_uncorrected = 0;
  std::map<std::string, int> fails;
  int lost_after = -1;  ///< so many calls on this card succeed, then it is lost; -1: never
};

/// NVML's calls over a list of cards, in the driver's own order.
class FakeNvml {
 public:
  std::vector<FakeCard> cards;
  std::map<std::pair<unsigned, unsigned>, unsigned> levels;  ///< of two buses, the lower first; else 50
  unsigned p2p = 0;                                          ///< status of every pair
  std::map<std::string, int> fails;                          ///< of calls on no card
  int started = 0, stopped = 0;

  device::nvml::Calls calls() {
    using device::nvml::Handle;
    device::nvml::Calls c;
    c.init = [this] { return failing(fails, "init") ? fails["init"] : (++started, 0); };
    c.shutdown = [this] { return ++stopped, 0; };
    c.error_string = [](int code) {
      return code == 15 ? "GPU is lost" : code == 3 ? "Not Supported" : "Bad";
    };
    c.driver_version = [](char* text, unsigned size) { return copy("999.01", text, size); };
    c.process_name = [](unsigned pid, char* text, unsigned size) {
      return pid == 7 ? 6 : copy("program", text, size);
    };
    c.count = [this](unsigned* count) {
      *count = static_cast<unsigned>(cards.size());
      return failing(fails, "count") ? fails["count"] : 0;
    };
    c.handle_by_index = [this](unsigned i, Handle* handle) {
      *handle = &cards.at(i);
      return failing(cards[i].fails, "handle") ? cards[i].fails["handle"] : 0;
    };
    add_fields(c);
    add_links(c);
    return c;
  }

  std::unique_ptr<device::nvml::Session> session() {
    std::string why;
    return device::nvml::Session::open(calls(), why);
  }

 private:
  using Handle = device::nvml::Handle;

  static bool failing(const std::map<std::string, int>& fails, const std::string& call) {
    return fails.count(call) > 0;
  }
  static int copy(const std::string& from, char* to, unsigned size) {
    std::strncpy(to, from.c_str(), size);
    return 0;
  }
  /// Runs `body` on the card unless the call is to fail.
  static int on(Handle handle, const std::string& call, const std::function<void(FakeCard&)>& body) {
    auto& card = *static_cast<FakeCard*>(handle);
    if (card.lost_after == 0) return device::nvml::kGpuIsLost;
    if (card.lost_after > 0) --card.lost_after;
    if (failing(card.fails, call)) return card.fails[call];
    body(card);
    return 0;
  }
  static device::nvml::Calls::ReadNumber number(const std::string& call, unsigned FakeCard::*field) {
    return
        [=](Handle h, unsigned* value) { return on(h, call, [&](FakeCard& card) { *value = card.*field; }); };
  }
  static device::nvml::PciInfo pci(unsigned bus) {
    device::nvml::PciInfo info{};
    info.bus = bus;
    return info;
  }

  static void add_fields(device::nvml::Calls& c) {
    c.name = [](Handle h, char* text, unsigned size) {
      if (h == nullptr || static_cast<FakeCard*>(h)->name.empty()) return 3;
      return on(h, "name", [&](FakeCard& card) { copy(card.name, text, size); });
    };
    c.uuid = [](Handle h, char* text, unsigned size) {
      return on(h, "uuid", [&](FakeCard& card) { copy(card.uuid, text, size); });
    };
    c.pci_info = [](Handle h, device::nvml::PciInfo* info) {
      return on(h, "pci_info", [&](FakeCard& card) { *info = pci(card.bus); });
    };
    c.memory = [](Handle h, device::nvml::Memory* memory) {
      return on(h, "memory",
                [&](FakeCard& card) { *memory = {card.total, card.total - card.used, card.used}; });
    };
    c.compute_processes = [](Handle h, unsigned* count, device::nvml::Process* list) {
      return on(h, "compute_processes", [&](FakeCard& card) {
        std::copy(card.processes.begin(), card.processes.end(), list);
        *count = static_cast<unsigned>(card.processes.size());
      });
    };
    c.graphics_processes = c.compute_processes;
    c.compute_capability = [](Handle h, int* major, int* minor) {
      return on(h, "compute_capability", [&](FakeCard&) { *major = 9, *minor = 0; });
    };
    c.cpu_affinity = [](Handle h, unsigned, unsigned long* words) {
      return on(h, "cpu_affinity", [&](FakeCard& card) { words[0] = card.cpus; });
    };
    c.memory_affinity = [](Handle h, unsigned, unsigned long* words, unsigned) {
      return on(h, "memory_affinity", [&](FakeCard& card) { words[0] = card.nodes; });
    };
    c.link_width = number("link_width", &FakeCard::width);
    c.link_width_max = number("link_width_max", &FakeCard::width_max);
    c.link_generation = number("link_generation", &FakeCard::generation);
    c.link_generation_max = number("link_generation_max", &FakeCard::generation_max);
    c.mig_mode = [](Handle h, unsigned* now, unsigned* next) {
      return on(h, "mig_mode", [&](FakeCard& card) { *now = *next = card.mig ? 1 : 0; });
    };
    c.ecc_mode = [](Handle h, unsigned* now, unsigned* next) {
      return on(h, "ecc_mode", [&](FakeCard&) { *now = *next = 1; });
    };
    c.ecc_errors = [](Handle h, unsigned kind, unsigned, unsigned long long* count) {
      return on(h, "ecc_errors", [&](FakeCard& card) { *count = kind == 1 ? card.ecc_uncorrected : 0; });
    };
    c.throttle_reasons = [](Handle h, unsigned long long* bits) {
      return on(h, "throttle_reasons", [&](FakeCard& card) { *bits = card.throttle; });
    };
  }

  void add_links(device::nvml::Calls& c) {
    c.mig_count_max = [](Handle h, unsigned* count) {
      return on(h, "mig_count", [&](FakeCard&) { *count = 7; });
    };
    c.mig_handle = [this](Handle h, unsigned i, Handle* slice) {
      const auto& uuids = static_cast<FakeCard*>(h)->slices;
      if (i >= uuids.size()) return 6;  // not found
      slices_.push_back(std::make_unique<FakeCard>());
      slices_.back()->uuid = uuids[i];
      *slice = slices_.back().get();
      return 0;
    };
    c.nvlink_state = [](Handle h, unsigned link, unsigned* active) {
      if (link >= static_cast<FakeCard*>(h)->nvlink_peers.size()) return link == 0 ? 3 : 2;
      return on(h, "nvlink_state", [&](FakeCard&) { *active = 1; });
    };
    c.nvlink_version = [](Handle h, unsigned, unsigned* version) {
      return on(h, "nvlink_version", [&](FakeCard& card) { *version = card.nvlink_version; });
    };
    c.nvlink_remote_type = [](Handle h, unsigned link, unsigned* type) {
      return on(h, "nvlink_type",
                [&](FakeCard& card) { *type = card.nvlink_peers[link] == 0 ? card.nvlink_switch_type : 0; });
    };
    c.nvlink_remote = [](Handle h, unsigned link, device::nvml::PciInfo* info) {
      return on(h, "nvlink_remote", [&](FakeCard& card) { *info = pci(card.nvlink_peers[link]); });
    };
    c.common_ancestor = [this](Handle a, Handle b, unsigned* level) {
      const auto buses = std::minmax(static_cast<FakeCard*>(a)->bus, static_cast<FakeCard*>(b)->bus);
      const auto known = levels.find({buses.first, buses.second});
      *level = known == levels.end() ? 50 : known->second;
      return failing(fails, "common_ancestor") ? fails["common_ancestor"] : 0;
    };
    c.p2p_status = [this](Handle, Handle, unsigned, unsigned* status) {
      *status = p2p;
      return failing(fails, "p2p_status") ? fails["p2p_status"] : 0;
    };
  }

  std::vector<std::unique_ptr<FakeCard>> slices_;
};

}  // namespace lorikeet::test
