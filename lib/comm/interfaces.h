#pragma once

#include <optional>
#include <string>

#include "comm/placement.h"

namespace lorikeet::comm {

/// This machine's own numeric address on the route to host:port. Sends nothing. Throws Error (kEnvironment)
/// when the name is unknown or no route leads there.
std::string local_address_towards(const std::string& host, int port);

/// The first numeric address of the network interface `name`: IPv4 before IPv6, none of link-local scope.
/// Throws Error (kUsage), listing the interfaces there are, when it has none or doesn't exist.
std::string address_of_interface(const std::string& name);

/// The name of the interface that has this address; "" when none has.
std::string interface_of_address(const std::string& address);

/// The address that a process listens on for the other ranks: loopback when all are on one machine, else that
/// of `interface`; without an interface, this machine's own on the route to the store.
std::string address_for_peers(const Placement& placement, const std::optional<std::string>& interface);

/// What to do when ranks reach the store but not each other: `rank` is the name of one that listens on
/// `address`.
std::string advice_for_unreachable_peers(const std::string& rank, const std::string& address);

/// Sets NCCL_SOCKET_IFNAME to the interface that has `address`, unless it is set. To be called before the
/// process has other threads, since it changes the environment.
void use_for_nccl(const std::string& address);

}  // namespace lorikeet::comm
