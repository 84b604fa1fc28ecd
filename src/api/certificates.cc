#include "api/certificates.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <memory>

#include "base/file.h"
#include "base/log.h"
#include "base/random.h"
#include "base/secret.h"

namespace space::api {
namespace {

namespace fs = std::filesystem;

constexpr long kDay_s = 86'400, kAuthorityLife_s = 3650 * kDay_s, kServerLife_s = 397 * kDay_s, kRenewBefore_s = 30 * kDay_s;

template <class T, void (*Free)(T*)>
struct Freer {
  void operator()(T* value) const { Free(value); }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY, EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509, X509_free>>;
struct FreeBio {
  void operator()(BIO* bio) const { BIO_free_all(bio); }
};
using Bio = std::unique_ptr<BIO, FreeBio>;

tl::unexpected<Error> openssl_error(const char* doing) {
  char text[160] = "";
  ERR_error_string_n(ERR_get_error(), text, sizeof text);
  return fail(ErrorKind::internal, "certificate_failed", fmt::format("{}: {}", doing, text));
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(std::max(size, 0L))};
}

struct Pair {
  Key key;
  Certificate certificate;
};

Result<Pair> read_pair(const fs::path& certificate, const fs::path& key) {
  TRY(const std::string certificate_text, read_file(certificate, 64 << 10));
  TRY(std::string key_text, read_file(key, 64 << 10));
  const WipeAtEnd wiped(key_text);
  const Bio certificate_bio(BIO_new_mem_buf(certificate_text.data(), static_cast<int>(certificate_text.size())));
  const Bio key_bio(BIO_new_mem_buf(key_text.data(), static_cast<int>(key_text.size())));
  Pair pair{Key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr)),
            Certificate(PEM_read_bio_X509(certificate_bio.get(), nullptr, nullptr, nullptr))};
  if (!pair.key || !pair.certificate || X509_check_private_key(pair.certificate.get(), pair.key.get()) != 1)
    return openssl_error("read a certificate and its key");
  return pair;
}

Result<> write_pair(const Pair& pair, const fs::path& certificate, const fs::path& key) {
  const Bio certificate_bio(BIO_new(BIO_s_mem())), key_bio(BIO_new(BIO_s_secmem()));  // the latter is wiped when it goes
  if (PEM_write_bio_X509(certificate_bio.get(), pair.certificate.get()) != 1 ||
      PEM_write_bio_PrivateKey(key_bio.get(), pair.key.get(), nullptr, nullptr, 0, nullptr, nullptr) != 1)
    return openssl_error("write a certificate");
  std::string key_text = text_of(key_bio.get());
  const WipeAtEnd wiped(key_text);
  TRY_VOID(write_file_durable(key, key_text, 0600));
  return write_file_durable(certificate, text_of(certificate_bio.get()), 0644);
}

struct Extension {
  int nid;
  std::string value;
};

// Signed by `authority`, or by itself when that is nullptr.
Result<Pair> issue(const std::string& name, long life_s, const Pair* authority, const std::vector<Extension>& extensions) {
  Pair pair{Key(EVP_EC_gen("P-256")), Certificate(X509_new())};
  if (!pair.key || !pair.certificate) return openssl_error("make a key");
  X509* made = pair.certificate.get();
  std::uint64_t serial = 0;
  random_bytes(std::as_writable_bytes(std::span(&serial, 1)));
  X509_set_version(made, X509_VERSION_3);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);  // for clients whose clock is a little behind
  X509_gmtime_adj(X509_getm_notAfter(made), life_s);
  X509_set_pubkey(made, pair.key.get());
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509* issuer = authority ? authority->certificate.get() : made;
  X509_set_issuer_name(made, X509_get_subject_name(issuer));
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, made, nullptr, nullptr, 0);
  for (const Extension& one : extensions) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, one.nid, one.value.c_str());
    const bool added = extension && X509_add_ext(made, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    if (!added) return openssl_error("add an extension");
  }
  if (X509_sign(made, authority ? authority->key.get() : pair.key.get(), EVP_sha256()) == 0) return openssl_error("sign a certificate");
  return pair;
}

bool is_good(const Pair& pair, const Pair& authority, const std::string& domain) {
  time_t soon = time(nullptr) + kRenewBefore_s;
  const std::string below = "x." + domain;
  return X509_cmp_time(X509_get0_notAfter(pair.certificate.get()), &soon) > 0 &&
         X509_verify(pair.certificate.get(), authority.key.get()) == 1 &&
         X509_check_host(pair.certificate.get(), domain.data(), domain.size(), 0, nullptr) == 1 &&
         X509_check_host(pair.certificate.get(), below.data(), below.size(), 0, nullptr) == 1;
}

bool allows(const Pair& authority, const std::string& domain) {
  const std::string wanted = "SPACE " + domain;
  char name[256] = "";
  X509_NAME_get_text_by_NID(X509_get_subject_name(authority.certificate.get()), NID_commonName, name, sizeof name);
  return wanted == name;
}

}  // namespace

Result<CertificateFiles> own_certificates(const fs::path& folder, const std::string& domain) {
  TRY_VOID(make_directories(folder, 0755));
  const CertificateFiles files{folder / "ca.crt", folder / "server.crt", folder / "server.key"};
  auto authority = read_pair(files.authority, folder / "ca.key");
  if (!authority || !allows(*authority, domain)) {
    TRY(authority, issue("SPACE " + domain, kAuthorityLife_s, nullptr,
                         {{NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
                          {NID_key_usage, "critical,keyCertSign"},
                          {NID_subject_key_identifier, "hash"},
                          {NID_name_constraints, fmt::format("critical,permitted;DNS:{}", domain)}}));
    TRY_VOID(write_pair(*authority, files.authority, folder / "ca.key"));
    log::info("tls.authority_made", {{"file", files.authority.string()}, {"domain", domain}});
  }
  const auto present = read_pair(files.certificate, files.key);
  if (present && is_good(*present, *authority, domain)) return files;
  TRY(const Pair server, issue(domain, kServerLife_s, &*authority,
                               {{NID_basic_constraints, "critical,CA:FALSE"},
                                {NID_key_usage, "critical,digitalSignature"},
                                {NID_ext_key_usage, "serverAuth"},
                                {NID_subject_key_identifier, "hash"},
                                {NID_authority_key_identifier, "keyid"},
                                {NID_subject_alt_name, fmt::format("DNS:{0},DNS:*.{0}", domain)}}));
  TRY_VOID(write_pair(server, files.certificate, files.key));
  return files;
}

bool is_domain(std::string_view text) {
  if (text.size() > 200 || text.find('.') == std::string_view::npos || text.find("..") != std::string_view::npos || text.front() == '.' ||
      text.back() == '.')
    return false;
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.'; });
}

}  // namespace space::api
