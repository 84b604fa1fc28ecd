#include "base/random.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <sys/random.h>

#include "base/digest.h"
#include "base/encoding.h"

namespace space {

void random_bytes(std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t n = ::getrandom(out.data(), out.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) std::abort();
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

std::string new_id() {
  static constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::string id;
  while (id.size() < 24) {
    std::array<std::byte, 64> pool;
    random_bytes(pool);
    for (std::byte b : pool) {
      // 252 is the largest multiple of 36 below 256: higher values would favour the first letters.
      const auto v = static_cast<unsigned>(b);
      const unsigned limit = id.empty() ? 26 : 36;
      if (v >= 256 - 256 % limit) continue;
      id.push_back(kAlphabet[v % limit]);
      if (id.size() == 24) break;
    }
  }
  return id;
}

bool is_id(std::string_view text) {
  if (text.size() < 20 || text.size() > 40) return false;
  for (char c : text)
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'))) return false;
  return true;
}

std::string new_token(std::string_view prefix) {
  std::array<std::byte, 32> secret;
  random_bytes(secret);
  std::string token(prefix);
  token += base64url_encode(secret);
  wipe(secret);
  return token;
}

}  // namespace space
