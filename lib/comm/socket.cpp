#include "comm/socket.h"

#include <netdb.h>
#include <netinet/in.h>
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

std::pair<std::string, std::string> bound_address(int socket) {
  sockaddr_storage bytes{};
  socklen_t size = sizeof(bytes);
  auto* const address = reinterpret_cast<sockaddr*>(&bytes);
  if (getsockname(socket, address, &size) != 0) return {};
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
      const auto [address, bound] = bound_address(fd.get());
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

std::string own_address(int socket) { return bound_address(socket).first; }

bool is_loopback(const std::string& address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace lorikeet::comm
