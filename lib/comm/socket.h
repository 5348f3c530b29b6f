#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/file.h"

struct addrinfo;
struct sockaddr;

namespace lorikeet::comm {

struct Listener {
  UniqueFd fd;  ///< close-on-exec
  int port = 0;
  std::string address;  ///< in numbers: "127.0.0.1", "fd00::1"
};

/// A TCP socket that listens on `host` (a name or address of this machine) alone; port 0: a free one. Throws
/// Error (kEnvironment) when the name is unknown, isn't this machine's, or the port is taken, and Error
/// (kUsage) for the addresses that mean every interface.
Listener listen_on(const std::string& host, int port);

/// The TCP addresses of a name, as getaddrinfo gives them; on failure none, and `problem` says why.
std::unique_ptr<addrinfo, void (*)(addrinfo*)> resolve(const std::string& host, int port,
                                                       std::string* problem);

/// Begins to connect; the descriptor is writable once that is decided (see connect_result). No descriptor
/// when it failed at once: errno says why.
UniqueFd begin_connect(const addrinfo& address);
/// 0 when a begun connection stands, else its errno.
int connect_result(int socket);
/// Whether a socket has come to be connected to itself, as happens to one that asks its own machine for a
/// port that nobody listens on and is given that very port.
bool connected_to_itself(int socket);

void set_nonblocking(int descriptor);

/// Makes a connection end within `seconds` when the other machine or the network is gone, whether or not
/// anything is being sent.
void end_when_lost(int socket, int seconds);

/// The host and the port of an IPv4 or IPv6 address, both in numbers; two empty texts for anything else.
std::pair<std::string, std::string> in_numbers(const sockaddr* address);

// In numbers, without the port; "" when there is none.
std::string own_address(int socket);
std::string peer_address(int socket);

/// "10.0.0.1:4000", "[fd00::1]:4000".
std::string host_and_port(const std::string& host, int port);

/// "127.0.0.0/8" or "::1".
bool is_loopback(const std::string& address);

}  // namespace lorikeet::comm
