#pragma once

#include <optional>
#include <string>

#include "comm/placement.h"

namespace lorikeet::comm {

/// The address of this machine, in numbers, from which packets to host:port leave. Sends nothing. Throws
/// Error (kEnvironment) when the name is unknown or no route leads there.
std::string local_address_towards(const std::string& host, int port);

/// The first address of the network interface `name`, in numbers: IPv4 before IPv6, none of link-local scope.
/// Throws Error (kUsage), listing the interfaces there are, when it has none or doesn't exist.
std::string address_of_interface(const std::string& name);

/// The name of the interface that has this address; "" when none has.
std::string interface_of_address(const std::string& address);

/// The address at which a process lets the others of its run connect to it: loopback when all are on one
/// machine, else that of `interface`, or without one that from which the store is reached.
std::string address_for_peers(const Placement& placement, const std::optional<std::string>& interface);

/// Lets NCCL use the interface that has `address`, unless NCCL_SOCKET_IFNAME says otherwise. Changes the
/// environment: for a process that has no other threads yet.
void use_for_nccl(const std::string& address);

}  // namespace lorikeet::comm
