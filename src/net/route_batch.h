// Interfaces, addresses and neighbours of the calling thread's network namespace by rtnetlink(7): collected first, then sent
// and acknowledged together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <linux/netlink.h>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace space::net {

using Mac = std::array<std::uint8_t, 6>;

class RouteBatch {
 public:
  void up(unsigned index);
  void mac(unsigned index, const Mac& mac);
  void no_automatic_address(unsigned index);                                 // of IPv6; fails where there is no IPv6
  void address(unsigned index, const std::string& ip, std::uint8_t prefix);  // IPv4 or IPv6, usable at once (no DAD)
  void neighbour(unsigned index, const std::string& ip, const Mac& mac);     // permanent: never asked for on the wire
  // Applies everything in order; the first refusal is the error. Blocks for some microseconds. Once.
  Result<> send();

 private:
  void link(unsigned index, unsigned flags);
  void begin(std::uint16_t type, std::uint16_t flags, std::span<const std::byte> header);
  std::size_t open(std::uint16_t type);
  void close(std::size_t at);
  void attribute(std::uint16_t type, std::span<const std::byte> value);
  void append(std::span<const std::byte> bytes);
  template <class T>
  T& at(std::size_t offset) {
    return *reinterpret_cast<T*>(buffer_.data() + offset);
  }

  std::vector<std::byte> buffer_;
  std::size_t message_ = 0;  // where the last message starts
  std::uint32_t count_ = 0;
};

// Waits until an IPv6 address of the calling thread's namespace is really in use: the kernel joins its multicast group and adds its
// route later, from a work queue, and what arrives before is lost. `address_not_ready` after a second.
Result<> wait_for_inet6(const std::string& ip);

}  // namespace space::net
