// Certificate authorities of lineages. The root of a lineage and everything forked or restored from it trust one CA, whose key
// only the gateway has: the parent makes and stores it, the tenant's worker signs with it.
#pragma once

#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <openssl/ssl.h>
#include <string>
#include <unordered_map>

#include "base/result.h"
#include "base/secret.h"
#include "egress/tls_stream.h"

namespace space::egress {

struct MadeAuthority {
  std::string certificate_pem;
  Secret key_der;
};
// An ECDSA P-256 key and its certificate, valid for ten years, that may sign servers' certificates and nothing else.
Result<MadeAuthority> make_authority(const std::string& lineage);

class Authority {
 public:
  static constexpr std::size_t kMostLeaves = 1024;
  static Result<std::shared_ptr<Authority>> load(const std::string& certificate_pem, const Secret& key_der);
  ~Authority();

  // The server's side of a connection to `name`, with a certificate for it (made once, kept for some days). ALPN answers with
  // `protocol` when the client offers it; "" or not offered: none.
  Result<SslPtr> accept(const std::string& name, const std::string& protocol);

 private:
  struct State;
  explicit Authority(std::unique_ptr<State> state);
  Result<> sign(const std::string& name);
  std::unique_ptr<State> state_;
};

// Those of a worker's tenant.
class Authorities {
 public:
  void set(const std::string& lineage, std::shared_ptr<Authority> authority) { known_[lineage] = std::move(authority); }
  void forget(const std::string& lineage) { known_.erase(lineage); }
  std::shared_ptr<Authority> find(const std::string& lineage) const {
    const auto found = known_.find(lineage);
    return found == known_.end() ? nullptr : found->second;
  }

 private:
  std::map<std::string, std::shared_ptr<Authority>> known_;
};

// The client's side toward upstreams: TLS 1.2 and later, always verified, for exactly one name.
class UpstreamTls {
 public:
  // The system's authorities, and those of `ca_file` when it is not "". Blocks.
  static Result<std::unique_ptr<UpstreamTls>> make(const std::string& ca_file);
  ~UpstreamTls();
  // `protocols`: for ALPN, in order of preference; may be empty.
  Result<SslPtr> connect(const std::string& name, const std::vector<std::string>& protocols);

 private:
  explicit UpstreamTls(SSL_CTX* context) : context_(context) {}
  SSL_CTX* context_;
};

}  // namespace space::egress
