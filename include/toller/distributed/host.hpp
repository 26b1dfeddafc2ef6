// SPDX-License-Identifier: Apache-2.0
// T0. Hosts, addresses and whether a port answers.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "toller/core/host_name.hpp"

namespace toller::detail {

/// `host a, pid 12`: a process as messages name it.
[[nodiscard]] inline std::string this_process() {
  return host_name() + ", pid " + std::to_string(getpid());
}

struct CloseFd {
  int fd = -1;
  explicit CloseFd(int open) : fd(open) {}
  ~CloseFd() {
    if (fd >= 0) close(fd);
  }
  CloseFd(const CloseFd&) = delete;
  CloseFd& operator=(const CloseFd&) = delete;
};

[[nodiscard]] inline std::string print_address(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = address->sa_family == AF_INET
                          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
                          : &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return inet_ntop(address->sa_family, bytes, text.data(), text.size()) != nullptr ? text.data() : "";
}

using Resolved = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// The addresses of a host; empty and the reason when there are none.
[[nodiscard]] inline std::pair<Resolved, std::string> resolve(const std::string& host, int port, int kind) {
  addrinfo hints{};
  hints.ai_socktype = kind;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  return {Resolved(code == 0 ? found : nullptr, &freeaddrinfo), code == 0 ? "" : gai_strerror(code)};
}

/// The address of this machine that packets to `host` leave from; empty if there is no way there. Sends nothing.
[[nodiscard]] inline std::string local_address_towards(const std::string& host, int port) {
  const auto [addresses, why] = resolve(host, port, SOCK_DGRAM);
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const CloseFd socket_fd(socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    if (socket_fd.fd >= 0 && connect(socket_fd.fd, a->ai_addr, a->ai_addrlen) == 0 &&
        getsockname(socket_fd.fd, reinterpret_cast<sockaddr*>(&own), &size) == 0)
      return print_address(reinterpret_cast<const sockaddr*>(&own));
  }
  return {};
}

/// An address of this machine that other machines may reach: the first that is not loopback, else loopback.
[[nodiscard]] inline std::string own_address() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "127.0.0.1";
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  for (const int family : {AF_INET, AF_INET6})
    for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next)
      if (i->ifa_addr != nullptr && i->ifa_addr->sa_family == family && (i->ifa_flags & IFF_LOOPBACK) == 0 &&
          (i->ifa_flags & IFF_UP) != 0 &&
          (family == AF_INET || !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr)))
        return print_address(i->ifa_addr);
  return "127.0.0.1";
}

/// Empty when something listens at host:port, else why not. Waits at most `milliseconds`.
[[nodiscard]] inline std::string cannot_connect(const std::string& host, int port, int milliseconds) {
  const auto [addresses, why] = resolve(host, port, SOCK_STREAM);
  std::string reason = why;
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    const CloseFd socket_fd(socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket_fd.fd < 0) continue;
    int error = connect(socket_fd.fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      pollfd wait{socket_fd.fd, POLLOUT, 0};
      socklen_t size = sizeof error;
      if (poll(&wait, 1, milliseconds) != 1)
        error = ETIMEDOUT;
      else
        getsockopt(socket_fd.fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error == 0) return {};
    reason = std::strerror(error);
  }
  return reason.empty() ? "no address" : reason;
}

}  // namespace toller::detail
