// SHA-256 and HMAC-SHA256 (FIPS 180-4, RFC 2104) by OpenSSL, and comparison that takes the same time for any content.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/result.h"

namespace space {

using Sha256 = std::array<std::byte, 32>;

Sha256 sha256(std::span<const std::byte> bytes);
Sha256 sha256(std::string_view text);
Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message);
std::string digest_name(const Sha256& digest);  // "sha256:<64 hex>"
Result<Sha256> sha256_of_file(const Fd& fd);    // from offset 0 to the end; blocks

// Bytes added one after another.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(Sha256Stream&&) noexcept;
  Sha256Stream& operator=(Sha256Stream&&) noexcept;
  void add(std::span<const std::byte> bytes);
  Sha256 finish();  // once

 private:
  struct State;
  std::unique_ptr<State> state_;
};

bool equal_constant_time(std::string_view a, std::string_view b);  // lengths may leak, contents do not

// Overwrites with zeros in a way the compiler does not remove.
void wipe(std::span<std::byte> bytes);

}  // namespace space
