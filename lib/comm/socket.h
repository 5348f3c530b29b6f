#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/file.h"

struct addrinfo;
struct sockaddr;

namespace lorikeet::comm {

struct Listener {
  UniqueFd fd;  ///< close-on-exec
  int port = 0;
  std::string address;  ///< numeric: "127.0.0.1", "fd00::1"
};

/// A TCP socket that listens on `host` (a name or address of this machine) alone; port 0: a free one. Throws
/// Error (kEnvironment) when the name is unknown, isn't this machine's, or the port is taken, and Error
/// (kUsage) for the addresses that mean every interface.
Listener listen_on(const std::string& host, int port);

/// Connects to host:port, again and again until `deadline`, and closes the connection. Returns why nothing
/// answers there, with what to do; nullopt once something does.
std::optional<std::string> wait_for_listener(const std::string& host, int port,
                                             std::chrono::steady_clock::time_point deadline);

/// The TCP addresses of a name, as getaddrinfo gives them; on failure none, and `problem` says why.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> resolve(const std::string& host, int port,
                                                       std::string* problem);

/// The numeric host and port of an IPv4 or IPv6 address; two empty strings for anything else.
std::pair<std::string, std::string> in_numbers(const sockaddr* address);

/// The numeric address that a socket is bound to, without the port; "" when it isn't bound.
std::string own_address(int socket);

/// "127.0.0.0/8" or "::1".
bool is_loopback(const std::string& address);

}  // namespace lorikeet::comm
