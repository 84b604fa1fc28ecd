// Credentials that a client sealed to the gateway: nobody on the way, the api role included, can read or exchange them. A sealed box
// of libsodium (crypto_box_seal: X25519, XSalsa20, Poly1305) over the text "space-credential-1\n<tenant>\n<name>\n<value>": a box that
// was made for one credential of one tenant is none for any other.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "base/secret.h"

namespace space::egress {

class SealingKey {
 public:
  static constexpr std::string_view kAlgorithm = "x25519-xsalsa20-poly1305-sealed-box";
  static constexpr std::size_t kLongestBox = 8192 + 512;  // bytes: the longest value, names and the box itself

  SealingKey() = default;  // opens nothing
  static Result<SealingKey> make();
  static Result<SealingKey> load(const Secret& private_key);  // corrupt/bad_sealing_key

  const Secret& private_key() const { return private_; }
  std::string public_key() const;  // base64, of 32 bytes

  // The value inside. invalid_argument/bad_sealed_credential: not sealed to this key, damaged, or of another tenant or name.
  Result<Secret> open(std::string_view box, const std::string& tenant, const std::string& name) const;

 private:
  std::string public_;
  Secret private_;
};

}  // namespace space::egress
