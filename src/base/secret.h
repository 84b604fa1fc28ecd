// Bytes that must not stay in memory: a credential, a private key, the key that signs tokens.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/encoding.h"

namespace space {

// Owns a buffer that is overwritten before it is freed. Move-only; never grows in place, since that would leave a copy behind.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string_view bytes) : bytes_(bytes.begin(), bytes.end()) {}
  explicit Secret(std::size_t size) : bytes_(size) {}
  Secret(Secret&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Secret& operator=(Secret&& other) noexcept {
    clear();
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret() { clear(); }

  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }
  std::span<std::byte> bytes() { return {reinterpret_cast<std::byte*>(bytes_.data()), bytes_.size()}; }
  std::span<const std::byte> bytes() const { return {reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size()}; }
  bool empty() const { return bytes_.empty(); }
  Secret copy() const { return Secret(view()); }

 private:
  void clear() {
    wipe(bytes());
    bytes_.clear();
  }
  std::vector<char> bytes_;
};

// Overwrites a string that held a secret for a moment.
inline void wipe_string(std::string& text) {
  wipe({reinterpret_cast<std::byte*>(text.data()), text.size()});
  text.clear();
}

// Does so on every way out of a block: `const WipeAtEnd wiped(text)`.
class WipeAtEnd {
 public:
  explicit WipeAtEnd(std::string& text) : text_(text) {}
  WipeAtEnd(const WipeAtEnd&) = delete;
  WipeAtEnd& operator=(const WipeAtEnd&) = delete;
  ~WipeAtEnd() { wipe_string(text_); }

 private:
  std::string& text_;
};

}  // namespace space
