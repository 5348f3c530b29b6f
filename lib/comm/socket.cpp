#include "comm/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/strings.h"

namespace lorikeet::comm {
namespace {

using AddressOf = int (*)(int, sockaddr*, socklen_t*);
std::pair<std::string, std::string> end_of(int socket, AddressOf which) {
  sockaddr_storage bytes{};
  socklen_t size = sizeof(bytes);
  auto* const address = reinterpret_cast<sockaddr*>(&bytes);
  if (which(socket, address, &size) != 0) return {};
  return in_numbers(address);
}

const char* advice(int failure) {
  switch (failure) {
    case EADDRINUSE: return "; another run may use this port: choose another";
    case EADDRNOTAVAIL: return "; it is not an address of this machine";
    default: return "";
  }
}

}  // namespace

std::unique_ptr<addrinfo, void (*)(addrinfo*)> resolve(const std::string& host, int port,
                                                       std::string* problem) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) *problem = gai_strerror(error);
  return {error == 0 ? found : nullptr, [](addrinfo* list) {
            if (list != nullptr) freeaddrinfo(list);
          }};
}

Listener listen_on(const std::string& host, int port) {
  const std::string where = escape_control(host) + ":" + std::to_string(port);
  std::string problem;
  const auto found = resolve(host, port, &problem);
  if (!found) throw Error("[launch] can't listen on " + where + ": " + problem, ErrorKind::kEnvironment);
  int failure = 0;
  for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
    UniqueFd fd(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
    const int on = 1;
    if (fd && setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        ::bind(fd.get(), a->ai_addr, a->ai_addrlen) == 0) {
      const auto [address, bound] = end_of(fd.get(), getsockname);
      if (address == "0.0.0.0" || address == "::") {
        throw Error("[launch] '" + escape_control(host) +
                    "' means every interface of this machine; expected the address of one, that of a "
                    "private network");
      }
      if (::listen(fd.get(), SOMAXCONN) == 0) return {std::move(fd), std::stoi(bound), address};
    }
    failure = errno;
  }
  throw Error("[launch] can't listen on " + where + ": " + std::strerror(failure) + advice(failure),
              ErrorKind::kEnvironment);
}

UniqueFd begin_connect(const addrinfo& address) {
  UniqueFd fd(
      ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol));
  if (!fd) return {};
  const bool begun = ::connect(fd.get(), address.ai_addr, address.ai_addrlen) == 0 || errno == EINPROGRESS;
  return begun ? std::move(fd) : UniqueFd();
}

int connect_result(int socket) {
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool connected_to_itself(int socket) { return end_of(socket, getsockname) == end_of(socket, getpeername); }

void set_nonblocking(int descriptor) {
  fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL, 0) | O_NONBLOCK);
}

void end_when_lost(int socket, int seconds) {
  const auto set = [&](int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof(value));
  };
  // Probes of a silent connection each second from half the time on. With TCP_USER_TIMEOUT set Linux takes
  // that, not the number of probes, as the limit, for unacknowledged data as well.
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, std::max(1, seconds / 2));
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::max(1, seconds - seconds / 2));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

std::pair<std::string, std::string> in_numbers(const sockaddr* address) {
  const socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (getnameinfo(address, size, host.data(), host.size(), port.data(), port.size(),
                  NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return {};
  }
  return {host.data(), port.data()};
}

std::string own_address(int socket) { return end_of(socket, getsockname).first; }
std::string peer_address(int socket) { return end_of(socket, getpeername).first; }

std::string host_and_port(const std::string& host, int port) {
  return (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + std::to_string(port);
}

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace lorikeet::comm
