// IP addresses and ranges, and which of them the gateway never dials on a guest's behalf.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace space::egress {

// IPv4 is kept as ::ffff:a.b.c.d, so that one comparison serves both families and a mapped address is no second spelling.
class Address {
 public:
  static Result<Address> parse(std::string_view text);  // strict: "1.2.3.4", "2001:db8::1"; no zone, no octal, no brackets
  static Address v4(std::array<std::uint8_t, 4> bytes);
  static Address v6(std::array<std::uint8_t, 16> bytes);
  bool is_v4() const;
  std::string text() const;
  const std::array<std::uint8_t, 16>& bytes() const { return bytes_; }
  auto operator<=>(const Address&) const = default;

 private:
  std::array<std::uint8_t, 16> bytes_{};
};

class Cidr {
 public:
  static Result<Cidr> parse(std::string_view text);  // "10.0.0.0/8", "2001:db8::/32", or one address; host bits must be 0
  bool contains(const Address& address) const;
  std::string text() const;
  int prefix() const { return bits_; }

 private:
  Address network_;
  int bits_ = 128;  // of the 128-bit form
};

// Why this address is never dialled unless an operator's rule names its range: "private", "loopback", "link-local", "metadata",
// "multicast", "reserved", "synthetic" and so on (IANA special-purpose registries, RFC 6890); nullopt for public unicast.
// Addresses that embed an IPv4 one (6to4, NAT64, Teredo, mapped) are judged by what they embed, and refused as tunnels.
std::optional<std::string_view> special_range(const Address& address);

}  // namespace space::egress
