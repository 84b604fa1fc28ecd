#include "egress/sealing_key.h"

#include <fmt/format.h>
#include <sodium.h>

namespace space::egress {
namespace {

unsigned char* raw(Secret& secret) { return reinterpret_cast<unsigned char*>(secret.bytes().data()); }
const unsigned char* raw(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

Result<> ready() {
  if (sodium_init() >= 0) return {};
  return fail(ErrorKind::internal, "sodium_failed", "libsodium could not be started");
}

}  // namespace

Result<SealingKey> SealingKey::make() {
  TRY_VOID(ready());
  SealingKey key;
  key.public_.resize(crypto_box_PUBLICKEYBYTES);
  key.private_ = Secret(std::size_t{crypto_box_SECRETKEYBYTES});
  if (crypto_box_keypair(reinterpret_cast<unsigned char*>(key.public_.data()), raw(key.private_)) != 0)
    return fail(ErrorKind::internal, "sodium_failed", "libsodium made no key");
  return key;
}

Result<SealingKey> SealingKey::load(const Secret& private_key) {
  TRY_VOID(ready());
  SealingKey key;
  key.private_ = private_key.copy();
  key.public_.resize(crypto_box_PUBLICKEYBYTES);
  if (private_key.view().size() != crypto_box_SECRETKEYBYTES ||
      crypto_scalarmult_base(reinterpret_cast<unsigned char*>(key.public_.data()), raw(private_key.view())) != 0)
    return fail(ErrorKind::corrupt, "bad_sealing_key", "the key that credentials are sealed to is damaged",
                "restore egress/vault from a backup");
  return key;
}

std::string SealingKey::public_key() const { return base64_encode(as_bytes(public_)); }

Result<Secret> SealingKey::open(std::string_view box, const std::string& tenant, const std::string& name) const {
  const auto wrong = [] {
    return fail(ErrorKind::invalid_argument, "bad_sealed_credential",
                "this is no value sealed to this gateway for this credential of this tenant",
                "seal it again with the key of GET /v1/credential-key");
  };
  if (box.size() <= crypto_box_SEALBYTES || box.size() > kLongestBox) return wrong();
  Secret text(box.size() - crypto_box_SEALBYTES);
  if (crypto_box_seal_open(raw(text), raw(box), box.size(), raw(public_), raw(private_.view())) != 0) return wrong();
  const std::string label = fmt::format("space-credential-1\n{}\n{}\n", tenant, name);
  if (!text.view().starts_with(label)) return wrong();
  return Secret(text.view().substr(label.size()));
}

}  // namespace space::egress
