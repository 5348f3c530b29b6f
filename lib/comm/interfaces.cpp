#include "comm/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "comm/socket.h"

namespace lorikeet::comm {
namespace {

struct InterfaceAddress {
  std::string name, address;
  bool ipv6 = false;
};

// Of all interfaces that are up, in the kernel's order; link-local ones left out, which need a scope.
std::vector<InterfaceAddress> list_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw Error(std::string("[launch] getifaddrs: ") + std::strerror(errno), ErrorKind::kEnvironment);
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<InterfaceAddress> found;
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 &&
        IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr)) {
      continue;
    }
    found.push_back({i->ifa_name, in_numbers(i->ifa_addr).first, family == AF_INET6});
  }
  return found;
}

}  // namespace

std::string local_address_towards(const std::string& host, int port) {
  std::string problem;
  const auto found = resolve(host, port, &problem);
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    // Connecting a datagram socket picks the route and sends nothing.
    const UniqueFd fd(::socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0) return own_address(fd.get());
    problem = std::strerror(errno);
  }
  throw Error("[launch] no way leads from this machine to " + escape_control(host) + ": " + problem,
              ErrorKind::kEnvironment);
}

std::string address_of_interface(const std::string& name) {
  std::vector<InterfaceAddress> all = list_addresses();
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return !a.ipv6 && b.ipv6; });
  std::vector<std::string> there;
  for (const InterfaceAddress& i : all) {
    if (i.name == name) return i.address;
    there.push_back(i.name + " (" + i.address + ")");
  }
  throw Error("[distributed.interface] this machine has no interface '" + escape_control(name) +
              "' with an address that is up; it has " + join(there, ", "));
}

std::string interface_of_address(const std::string& address) {
  for (const InterfaceAddress& i : list_addresses()) {
    if (i.address == address) return i.name;
  }
  return "";
}

std::string address_for_peers(const Placement& placement, const std::optional<std::string>& interface) {
  if (placement.nodes == 1) return "127.0.0.1";
  return interface ? address_of_interface(*interface) : local_address_towards(placement.host, placement.port);
}

std::string advice_for_unreachable_peers(const std::string& rank, const std::string& address) {
  return rank + " listens on " + address +
         "; firewalls must let all ports through, or distributed.interface has to name another network";
}

void use_for_nccl(const std::string& address) {
  const std::string name = interface_of_address(address);
  constexpr int kKeepWhatIsSet = 0;
  // "=": this name, not any that begins like it.
  if (!name.empty()) setenv("NCCL_SOCKET_IFNAME", ("=" + name).c_str(), kKeepWhatIsSet);
}

}  // namespace lorikeet::comm
