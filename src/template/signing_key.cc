#include "template/signing_key.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "base/encoding.h"
#include "base/file.h"
#include "base/secret.h"

namespace space::tmpl {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kAlgorithm = "ed25519:";
constexpr std::size_t kKeyFileBytes = 4096;

struct FreeBio {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;
struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_MD_CTX, FreeContext>;

const unsigned char* raw(const void* bytes) { return static_cast<const unsigned char*>(bytes); }

tl::unexpected<Error> bad_key(const fs::path& file, std::string_view what) {
  return fail(ErrorKind::invalid_argument, "signing_key", fmt::format("{} {}", file.string(), what),
              "make one with 'space template key create FILE'");
}

// A key with a passphrase is refused, not asked about: signing runs without a terminal.
int no_passphrase(char*, int, int, void*) { return -1; }

}  // namespace

std::string to_string(const PublicKey& key) { return std::string(kAlgorithm) + hex_encode(key.bytes); }

std::optional<PublicKey> parse_public_key(std::string_view text) {
  if (!text.starts_with(kAlgorithm)) return std::nullopt;
  const auto bytes = hex_decode(text.substr(kAlgorithm.size()));
  PublicKey key;
  if (!bytes || bytes->size() != key.bytes.size()) return std::nullopt;
  std::ranges::copy(as_bytes(*bytes), key.bytes.begin());
  if (to_string(key) != text) return std::nullopt;  // one spelling: small letters
  return key;
}

bool is_signed(std::string_view message, std::string_view signature, const PublicKey& by) {
  if (signature.size() != kSignatureBytes) return false;
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(
      EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, raw(by.bytes.data()), by.bytes.size()), EVP_PKEY_free);
  const Context context(EVP_MD_CTX_new());
  if (!key || !context || EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1) return false;
  return EVP_DigestVerify(context.get(), raw(signature.data()), signature.size(), raw(message.data()), message.size()) == 1;
}

void SigningKey::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }

Result<SigningKey> SigningKey::create(const fs::path& file) {
  Key key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
  const Bio bio(BIO_new(BIO_s_secmem()));  // wiped when it goes
  if (!key || !bio || PEM_write_bio_PrivateKey(bio.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return fail(ErrorKind::internal, "openssl_failed", "OpenSSL made no Ed25519 key");
  char* text = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &text);
  auto fd = open_file(file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  std::error_code error;
  if (!fd && fs::exists(file, error))
    return fail(ErrorKind::conflict, "signing_key_exists",
                fmt::format("{} is there already, and a key is never written over", file.string()), "name another file");
  if (!fd) return fail(std::move(fd).error());
  TRY_VOID(write_all(*fd, std::string_view(text, static_cast<std::size_t>(std::max(size, 0L)))));
  if (::fsync(fd->get()) != 0) return fail_errno(errno, "fsync " + file.string());
  return SigningKey(std::move(key));
}

Result<SigningKey> SigningKey::load(const fs::path& file) {
  TRY(const Fd fd, open_file(file, O_RDONLY));
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno(errno, "fstat " + file.string());
  if ((st.st_mode & 077) != 0) return bad_key(file, "can be read or changed by others than its owner (chmod 600)");
  auto read = read_fd(fd, kKeyFileBytes);
  if (!read && read.error().kind == ErrorKind::too_large) return bad_key(file, "is too long for a key");
  if (!read) return fail(std::move(read).error());
  const WipeAtEnd wiped(*read);
  const Bio bio(BIO_new_mem_buf(read->data(), static_cast<int>(read->size())));
  Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  if (!key || EVP_PKEY_get_base_id(key.get()) != EVP_PKEY_ED25519) return bad_key(file, "holds no Ed25519 key without a passphrase (PEM)");
  return SigningKey(std::move(key));
}

PublicKey SigningKey::public_key() const {
  PublicKey out;
  std::size_t size = out.bytes.size();
  if (EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(out.bytes.data()), &size) != 1 || size != out.bytes.size())
    std::abort();
  return out;
}

std::string SigningKey::sign(std::string_view message) const {
  std::string out(kSignatureBytes, '\0');
  std::size_t size = out.size();
  const Context context(EVP_MD_CTX_new());
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(out.data()), &size, raw(message.data()), message.size()) != 1 ||
      size != out.size())
    std::abort();
  return out;
}

}  // namespace space::tmpl
