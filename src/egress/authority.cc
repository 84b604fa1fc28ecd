#include "egress/authority.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

namespace space::egress {
namespace {

template <auto F>
struct With {
  template <class T>
  void operator()(T* pointer) const {
    F(pointer);
  }
};
using Key = std::unique_ptr<EVP_PKEY, With<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, With<X509_free>>;
using Context = std::unique_ptr<SSL_CTX, With<SSL_CTX_free>>;
using Bio = std::unique_ptr<BIO, With<BIO_free>>;

constexpr std::size_t kReadAhead = 3 * (SSL3_RT_MAX_ENCRYPTED_LENGTH + SSL3_RT_HEADER_LENGTH);
constexpr long kDay = 24 * 3600;
constexpr long kAuthorityDays = 3650;
constexpr long kLeafDays = 60;                   // the guest's clock may be ahead of ours
constexpr long kBackDays = 7;                    // or behind
constexpr std::chrono::hours kLeafLife{24 * 7};  // then a new one is made

tl::unexpected<Error> broken(std::string_view what) {
  return fail(ErrorKind::internal, "tls_unusable", fmt::format("OpenSSL: {}: {}", what, openssl_error()));
}

bool extension(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, With<X509_EXTENSION_free>> made(X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str()));
  return made && X509_add_ext(certificate, made.get(), -1) == 1;
}

bool set_basics(X509* certificate, EVP_PKEY* key, long from_s, long until_s) {
  unsigned char serial[16];
  if (RAND_bytes(serial, sizeof serial) != 1) return false;
  serial[0] = static_cast<unsigned char>((serial[0] & 0x3f) | 0x40);  // positive, and of one length
  const std::unique_ptr<BIGNUM, With<BN_free>> number(BN_bin2bn(serial, sizeof serial, nullptr));
  return number && BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate)) && X509_set_version(certificate, 2) == 1 &&
         X509_gmtime_adj(X509_getm_notBefore(certificate), from_s) && X509_gmtime_adj(X509_getm_notAfter(certificate), until_s) &&
         X509_set_pubkey(certificate, key) == 1;
}

bool add_name(X509_NAME* name, const char* field, const std::string& value) {
  return X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(value.data()),
                                    static_cast<int>(value.size()), -1, 0) == 1;
}

void harden(SSL_CTX* context) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  // Several records with one system call where they are there; the buffer goes when nothing is left in it.
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, kReadAhead);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);  // nothing is resumed: not across names, not across sandboxes
}

// Only what the upstream speaks was decided before; a client that does not offer it gets no protocol and takes HTTP/1.1.
int choose_protocol(SSL* ssl, const unsigned char** chosen, unsigned char* length, const unsigned char* offered, unsigned offered_length,
                    void*) {
  const auto* wanted = static_cast<const std::string*>(SSL_get_app_data(ssl));
  if (!wanted || wanted->empty()) return SSL_TLSEXT_ERR_NOACK;
  for (unsigned at = 0; at < offered_length; at += 1U + offered[at]) {
    if (at + 1U + offered[at] > offered_length) return SSL_TLSEXT_ERR_ALERT_FATAL;
    if (offered[at] == wanted->size() && std::memcmp(offered + at + 1, wanted->data(), wanted->size()) == 0) {
      *chosen = offered + at + 1;
      *length = offered[at];
      return SSL_TLSEXT_ERR_OK;
    }
  }
  return SSL_TLSEXT_ERR_NOACK;
}

// The protocol's name lives as long as its SSL does.
void free_protocol(void*, void* data, CRYPTO_EX_DATA*, int, long, void*) { delete static_cast<std::string*>(data); }

int app_data_index() {
  // Index 0 is SSL_get_app_data's; registering its release once is enough for the process.
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_protocol);
  return index;
}

}  // namespace

Result<MadeAuthority> make_authority(const std::string& lineage) {
  const Key key(EVP_EC_gen("P-256"));
  const Certificate certificate(X509_new());
  if (!key || !certificate || !set_basics(certificate.get(), key.get(), -kBackDays * kDay, kAuthorityDays * kDay))
    return broken("make an authority");
  X509_NAME* name = X509_get_subject_name(certificate.get());
  if (!add_name(name, "O", "SPACE egress gateway") || !add_name(name, "CN", "SPACE CA of " + lineage) ||
      X509_set_issuer_name(certificate.get(), name) != 1 ||
      !extension(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0") ||
      !extension(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign") ||
      !extension(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash") ||
      X509_sign(certificate.get(), key.get(), EVP_sha256()) == 0)
    return broken("sign an authority");
  MadeAuthority made;
  const Bio out(BIO_new(BIO_s_mem()));
  if (!out || PEM_write_bio_X509(out.get(), certificate.get()) != 1) return broken("write a certificate");
  char* text = nullptr;
  const long size = BIO_get_mem_data(out.get(), &text);
  made.certificate_pem.assign(text, static_cast<std::size_t>(size));
  unsigned char* der = nullptr;
  const int bytes = i2d_PrivateKey(key.get(), &der);
  if (bytes <= 0) return broken("write a key");
  made.key_der = Secret(std::string_view(reinterpret_cast<const char*>(der), static_cast<std::size_t>(bytes)));
  OPENSSL_clear_free(der, static_cast<std::size_t>(bytes));
  return made;
}

struct Authority::State {
  struct Leaf {
    Certificate certificate;
    std::chrono::steady_clock::time_point made;
    std::list<std::string>::iterator place;
  };
  Context context;
  Certificate certificate;
  Key key;
  Key leaf_key;  // one for all leaves: making keys is what costs
  std::unordered_map<std::string, Leaf> leaves;
  std::list<std::string> recent;  // the latest used in front
};

Authority::Authority(std::unique_ptr<State> state) : state_(std::move(state)) {}
Authority::~Authority() = default;

Result<std::shared_ptr<Authority>> Authority::load(const std::string& certificate_pem, const Secret& key_der) {
  auto state = std::make_unique<State>();
  const Bio in(BIO_new_mem_buf(certificate_pem.data(), static_cast<int>(certificate_pem.size())));
  state->certificate.reset(PEM_read_bio_X509(in.get(), nullptr, nullptr, nullptr));
  const auto* der = reinterpret_cast<const unsigned char*>(key_der.view().data());
  state->key.reset(d2i_AutoPrivateKey(nullptr, &der, static_cast<long>(key_der.view().size())));
  state->leaf_key.reset(EVP_EC_gen("P-256"));
  state->context.reset(SSL_CTX_new(TLS_server_method()));
  if (!state->certificate || !state->key || !state->leaf_key || !state->context ||
      X509_check_private_key(state->certificate.get(), state->key.get()) != 1)
    return broken("load an authority");
  harden(state->context.get());
  SSL_CTX_set_num_tickets(state->context.get(), 0);
  SSL_CTX_set_alpn_select_cb(state->context.get(), choose_protocol, nullptr);
  return std::shared_ptr<Authority>(new Authority(std::move(state)));
}

Result<> Authority::sign(const std::string& name) {
  State& s = *state_;
  Certificate certificate(X509_new());
  if (!certificate || !set_basics(certificate.get(), s.leaf_key.get(), -kBackDays * kDay, kLeafDays * kDay))
    return broken("make a certificate");
  X509_NAME* subject = X509_get_subject_name(certificate.get());
  // A common name has at most 64 bytes (RFC 5280, ub-common-name); clients look at the alternative name.
  if ((name.size() <= 64 && !add_name(subject, "CN", name)) ||
      X509_set_issuer_name(certificate.get(), X509_get_subject_name(s.certificate.get())) != 1 ||
      !extension(certificate.get(), s.certificate.get(), NID_basic_constraints, "critical,CA:FALSE") ||
      !extension(certificate.get(), s.certificate.get(), NID_key_usage, "critical,digitalSignature") ||
      !extension(certificate.get(), s.certificate.get(), NID_ext_key_usage, "serverAuth") ||
      !extension(certificate.get(), s.certificate.get(), NID_subject_alt_name, (name.size() <= 64 ? "DNS:" : "critical,DNS:") + name) ||
      !extension(certificate.get(), s.certificate.get(), NID_authority_key_identifier, "keyid:always") ||
      X509_sign(certificate.get(), s.key.get(), EVP_sha256()) == 0)
    return broken("sign a certificate");
  if (s.leaves.size() >= kMostLeaves) {
    s.leaves.erase(s.recent.back());
    s.recent.pop_back();
  }
  s.recent.push_front(name);
  s.leaves[name] = {std::move(certificate), std::chrono::steady_clock::now(), s.recent.begin()};
  return {};
}

Result<SslPtr> Authority::accept(const std::string& name, const std::string& protocol) {
  State& s = *state_;
  auto found = s.leaves.find(name);
  if (found != s.leaves.end() && std::chrono::steady_clock::now() - found->second.made > kLeafLife) {
    s.recent.erase(found->second.place);
    s.leaves.erase(found);
    found = s.leaves.end();
  }
  if (found == s.leaves.end()) {
    TRY_VOID(sign(name));
    found = s.leaves.find(name);
  } else {
    s.recent.splice(s.recent.begin(), s.recent, found->second.place);
  }
  SslPtr ssl(SSL_new(s.context.get()));
  if (!ssl || SSL_use_certificate(ssl.get(), found->second.certificate.get()) != 1 || SSL_use_PrivateKey(ssl.get(), s.leaf_key.get()) != 1)
    return broken("start TLS");
  const int index = app_data_index();
  auto wanted = std::make_unique<std::string>(protocol);
  if (index < 0 || SSL_set_app_data(ssl.get(), wanted.get()) != 1 || SSL_set_ex_data(ssl.get(), index, wanted.get()) != 1)
    return broken("start TLS");
  wanted.release();
  SSL_set_accept_state(ssl.get());
  return ssl;
}

Result<std::unique_ptr<UpstreamTls>> UpstreamTls::make(const std::string& ca_file) {
  Context context(SSL_CTX_new(TLS_client_method()));
  if (!context) return broken("start TLS");
  harden(context.get());
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  // Loaded as files, whole: a folder of hashed names would be opened at each handshake, and the worker opens nothing later.
  bool system = false;
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", X509_get_default_cert_file()})
    if (!system) system = SSL_CTX_load_verify_locations(context.get(), file, nullptr) == 1;
  ERR_clear_error();
  if (!ca_file.empty() && SSL_CTX_load_verify_locations(context.get(), ca_file.c_str(), nullptr) != 1)
    return fail(ErrorKind::invalid_argument, "bad_certificate", fmt::format("{}: {}", ca_file, openssl_error()),
                "--egress-ca names a file of PEM certificates");
  return std::unique_ptr<UpstreamTls>(new UpstreamTls(context.release()));
}

UpstreamTls::~UpstreamTls() { SSL_CTX_free(context_); }

Result<SslPtr> UpstreamTls::connect(const std::string& name, const std::vector<std::string>& protocols) {
  SslPtr ssl(SSL_new(context_));
  if (!ssl || SSL_set_tlsext_host_name(ssl.get(), name.c_str()) != 1) return broken("start TLS");
  X509_VERIFY_PARAM* checks = SSL_get0_param(ssl.get());
  X509_VERIFY_PARAM_set_hostflags(checks, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (X509_VERIFY_PARAM_set1_host(checks, name.data(), name.size()) != 1) return broken("start TLS");
  std::string offered;
  for (const std::string& protocol : protocols) offered.append(1, static_cast<char>(protocol.size())).append(protocol);
  if (!offered.empty() &&
      SSL_set_alpn_protos(ssl.get(), reinterpret_cast<const unsigned char*>(offered.data()), static_cast<unsigned>(offered.size())) != 0)
    return broken("start TLS");
  SSL_set_connect_state(ssl.get());
  return ssl;
}

}  // namespace space::egress
