#include "egress/address.h"

#include <arpa/inet.h>
#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace space::egress {
namespace {

constexpr std::array<std::uint8_t, 12> kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

struct Special {
  const char* range;
  std::string_view why;
};
// IANA IPv4 and IPv6 special-purpose address registries; metadata addresses of the known clouds come first so that they are named.
constexpr Special kSpecial[] = {
    {"169.254.169.254/32", "metadata"},
    {"169.254.170.2/32", "metadata"},
    {"100.100.100.200/32", "metadata"},
    {"168.63.129.16/32", "metadata"},
    {"192.0.0.192/32", "metadata"},
    {"fd00:ec2::254/128", "metadata"},
    {"fd20:ce::254/128", "metadata"},
    {"0.0.0.0/8", "this-network"},
    {"10.0.0.0/8", "private"},
    {"100.64.0.0/10", "shared"},
    {"127.0.0.0/8", "loopback"},
    {"169.254.0.0/16", "link-local"},
    {"172.16.0.0/12", "private"},
    {"192.0.0.0/24", "reserved"},
    {"192.0.2.0/24", "documentation"},
    {"192.88.99.0/24", "tunnel"},
    {"192.168.0.0/16", "private"},
    {"198.18.0.0/15", "synthetic"},
    {"198.51.100.0/24", "documentation"},
    {"203.0.113.0/24", "documentation"},
    {"224.0.0.0/4", "multicast"},
    {"240.0.0.0/4", "reserved"},
    {"::/128", "unspecified"},
    {"::1/128", "loopback"},
    {"64:ff9b::/96", "tunnel"},
    {"64:ff9b:1::/48", "tunnel"},
    {"100::/64", "discard"},
    {"2001::/23", "tunnel"},
    {"2001:db8::/32", "documentation"},
    {"2002::/16", "tunnel"},
    {"3fff::/20", "documentation"},
    {"5f00::/16", "reserved"},
    {"fc00::/7", "private"},
    {"fe80::/10", "link-local"},
    {"fec0::/10", "private"},
    {"ff00::/8", "multicast"},
};

}  // namespace

Address Address::v4(std::array<std::uint8_t, 4> bytes) {
  Address a;
  std::copy(kMappedPrefix.begin(), kMappedPrefix.end(), a.bytes_.begin());
  std::copy(bytes.begin(), bytes.end(), a.bytes_.begin() + 12);
  return a;
}

Address Address::v6(std::array<std::uint8_t, 16> bytes) {
  Address a;
  a.bytes_ = bytes;
  return a;
}

bool Address::is_v4() const { return std::equal(kMappedPrefix.begin(), kMappedPrefix.end(), bytes_.begin()); }

Result<Address> Address::parse(std::string_view text) {
  // inet_pton takes exactly four decimal parts without leading zeros, or RFC 4291 text: no disguises.
  const std::string copy(text.substr(0, 64));
  std::array<std::uint8_t, 4> four;
  std::array<std::uint8_t, 16> sixteen;
  if (::inet_pton(AF_INET, copy.c_str(), four.data()) == 1) return v4(four);
  if (::inet_pton(AF_INET6, copy.c_str(), sixteen.data()) == 1) return v6(sixteen);
  return fail(ErrorKind::invalid_argument, "invalid_address", fmt::format("'{}' is not an IP address", copy));
}

std::string Address::text() const {
  char buffer[INET6_ADDRSTRLEN];
  if (is_v4())
    ::inet_ntop(AF_INET, bytes_.data() + 12, buffer, sizeof buffer);
  else
    ::inet_ntop(AF_INET6, bytes_.data(), buffer, sizeof buffer);
  return buffer;
}

Result<Cidr> Cidr::parse(std::string_view text) {
  Cidr cidr;
  const auto slash = text.find('/');
  TRY(cidr.network_, Address::parse(text.substr(0, slash)));
  const int width = cidr.network_.is_v4() && text.find(':') == std::string_view::npos ? 32 : 128;
  int bits = width;
  if (slash != std::string_view::npos) {
    const std::string_view number = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bits);
    if (error != std::errc() || end != number.data() + number.size() || bits < 0 || bits > width)
      return fail(ErrorKind::invalid_argument, "invalid_cidr",
                  fmt::format("'{}' is not a range such as 203.0.113.0/24", text.substr(0, 64)));
  }
  cidr.bits_ = bits + (128 - width);
  for (int i = cidr.bits_; i < 128; ++i)
    if (cidr.network_.bytes()[static_cast<std::size_t>(i / 8)] >> (7 - i % 8) & 1)
      return fail(ErrorKind::invalid_argument, "invalid_cidr", fmt::format("'{}' has bits set behind its prefix", text.substr(0, 64)),
                  "write the range's first address");
  return cidr;
}

bool Cidr::contains(const Address& address) const {
  const auto& a = address.bytes();
  const auto& n = network_.bytes();
  const auto whole = static_cast<std::size_t>(bits_ / 8);
  if (!std::equal(n.begin(), n.begin() + static_cast<std::ptrdiff_t>(whole), a.begin())) return false;
  const int rest = bits_ % 8;
  return rest == 0 || ((a[whole] ^ n[whole]) >> (8 - rest)) == 0;
}

std::string Cidr::text() const { return fmt::format("{}/{}", network_.text(), network_.is_v4() ? bits_ - 96 : bits_); }

std::optional<std::string_view> special_range(const Address& address) {
  struct Row {
    Cidr range;
    std::string_view why;
  };
  static const auto table = [] {
    std::vector<Row> rows;
    for (const Special& s : kSpecial) rows.push_back({Cidr::parse(s.range).value(), s.why});
    return rows;
  }();
  for (const Row& row : table)
    if (row.range.contains(address)) return row.why;
  return std::nullopt;
}

}  // namespace space::egress
