// Ed25519 (RFC 8032) by OpenSSL: the key that signs releases, and the names of those that are trusted.
#pragma once

#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_pkey_st;

namespace space::tmpl {

struct PublicKey {
  std::array<std::byte, 32> bytes{};
  bool operator==(const PublicKey&) const = default;
};
std::string to_string(const PublicKey& key);  // "ed25519:<64 hex>"
std::optional<PublicKey> parse_public_key(std::string_view text);

inline constexpr std::size_t kSignatureBytes = 64;
bool is_signed(std::string_view message, std::string_view signature, const PublicKey& by);

// A private key in a PEM file (PKCS #8, RFC 8410), as `openssl genpkey -algorithm ed25519` writes it too. OpenSSL wipes it when it goes.
class SigningKey {
 public:
  static Result<SigningKey> create(const std::filesystem::path& file);  // conflict/signing_key_exists; the file is its owner's alone
  // signing_key: too long, encrypted, of another kind, or a file that others than its owner can read.
  static Result<SigningKey> load(const std::filesystem::path& file);
  PublicKey public_key() const;
  std::string sign(std::string_view message) const;  // kSignatureBytes

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
  };
  using Key = std::unique_ptr<evp_pkey_st, Free>;
  explicit SigningKey(Key key) : key_(std::move(key)) {}
  Key key_;
};

}  // namespace space::tmpl
