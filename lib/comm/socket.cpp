#include "comm/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

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

using std::chrono::milliseconds;

// 0, or the errno of a connection that isn't made within `limit`.
int try_to_connect(const addrinfo& to, milliseconds limit) {
  const UniqueFd fd(::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to.ai_protocol));
  if (!fd) return errno;
  if (::connect(fd.get(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd connected{fd.get(), POLLOUT, 0};
  const int ready = ::poll(&connected, 1, static_cast<int>(limit.count()));
  if (ready < 0) return errno;
  if (ready == 0) return ETIMEDOUT;
  int failure = 0;
  socklen_t size = sizeof(failure);
  return getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &failure, &size) == 0 ? failure : errno;
}

std::string why_unreached(int failure) {
  switch (failure) {
    case ECONNREFUSED:
      return "nothing listens there; has rank 0 been started on that machine, and with the same port?";
    case ETIMEDOUT:
      return "no answer comes; does a firewall stand between, and is it the address of rank 0's machine?";
    default: return std::strerror(failure);
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

std::optional<std::string> wait_for_listener(const std::string& host, int port,
                                             std::chrono::steady_clock::time_point deadline) {
  // A lost packet is sent again at ever longer intervals: a connection begun anew meets a late listener
  // sooner.
  constexpr milliseconds kOneTry{5000}, kPause{200};
  std::string problem;
  const auto found = resolve(host, port, &problem);
  if (!found) return problem;
  while (true) {
    int failure = 0;
    for (const addrinfo* a = found.get(); a != nullptr; a = a->ai_next) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
      failure = try_to_connect(*a, std::clamp(left, milliseconds(1), kOneTry));
      if (failure == 0) return std::nullopt;
    }
    if (std::chrono::steady_clock::now() + kPause >= deadline) return why_unreached(failure);
    std::this_thread::sleep_for(kPause);
  }
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
