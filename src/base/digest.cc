#include "base/digest.h"

#include <cerrno>
#include <cstdlib>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <unistd.h>
#include <vector>

#include "base/encoding.h"

namespace space {

struct Sha256Stream::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256Stream::Sha256Stream() : state_(std::make_unique<State>()) {
  if (EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) != 1) std::abort();
}
Sha256Stream::~Sha256Stream() = default;
Sha256Stream::Sha256Stream(Sha256Stream&&) noexcept = default;
Sha256Stream& Sha256Stream::operator=(Sha256Stream&&) noexcept = default;

void Sha256Stream::add(std::span<const std::byte> bytes) {
  if (EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) != 1) std::abort();
}

Sha256 Sha256Stream::finish() {
  Sha256 out;
  if (EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(out.data()), nullptr) != 1) std::abort();
  return out;
}

Sha256 sha256(std::span<const std::byte> bytes) {
  Sha256Stream stream;
  stream.add(bytes);
  return stream.finish();
}
Sha256 sha256(std::string_view text) { return sha256(as_bytes(text)); }

Sha256 hmac_sha256(std::span<const std::byte> key, std::span<const std::byte> message) {
  Sha256 out;
  unsigned length = 0;
  if (HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(out.data()), &length) == nullptr)
    std::abort();
  return out;
}

std::string digest_name(const Sha256& digest) { return "sha256:" + hex_encode(digest); }

Result<Sha256> sha256_of_file(const Fd& fd) {
  Sha256Stream stream;
  std::vector<std::byte> buffer(1 << 20);
  for (off_t at = 0;;) {
    const ssize_t n = ::pread(fd.get(), buffer.data(), buffer.size(), at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno(errno, "read for hashing");
    if (n == 0) return stream.finish();
    stream.add(std::span(buffer).first(static_cast<std::size_t>(n)));
    at += n;
  }
}

bool equal_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace space
