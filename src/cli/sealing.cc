#include "cli/sealing.h"

#include <fmt/format.h>
#include <sodium.h>

#include "base/encoding.h"

namespace space::cli {

Result<std::string> seal_credential(std::string_view key, std::string_view tenant, std::string_view name, std::string_view secret) {
  const auto bytes = base64_decode(key);
  if (sodium_init() < 0 || !bytes || bytes->size() != crypto_box_PUBLICKEYBYTES)
    return fail(ErrorKind::invalid_argument, "bad_sealing_key", "the key to seal credentials to is not 32 bytes in base64",
                "take it from the gateway's <run>/egress/credential.key");
  const std::string label = fmt::format("space-credential-1\n{}\n{}\n", tenant, name);
  std::string text;
  text.reserve(label.size() + secret.size());  // so that no copy of the secret is left behind by growing
  text.append(label).append(secret);
  std::string box(text.size() + crypto_box_SEALBYTES, '\0');
  const auto raw = [](const std::string& s) { return reinterpret_cast<const unsigned char*>(s.data()); };
  const int failed = crypto_box_seal(reinterpret_cast<unsigned char*>(box.data()), raw(text), text.size(), raw(*bytes));
  sodium_memzero(text.data(), text.size());
  if (failed != 0)
    return fail(ErrorKind::invalid_argument, "bad_sealing_key", "the key to seal credentials to is no usable key",
                "ask the operator for it");
  return box;
}

}  // namespace space::cli
